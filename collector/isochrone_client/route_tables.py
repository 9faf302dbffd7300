"""The route tables of several regions, one call per region."""

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import RefusedError
from isochrone_wire.routes import RouteTable


def collect_tables(client: ObservatoryClient, regions: tuple[str, ...], route: str) -> tuple[RouteTable, ...]:
    """The tables in force in `regions` (empty: all regions with tables), of one route or of all (empty name).

    Returns an empty tuple if no region has a table yet. Raises `ClientError`; `RefusedError` if the region or route is
    unknown while other tables exist.
    """
    found: list[RouteTable] = []
    refusal: RefusedError | None = None
    for region in regions or client.regions():
        try:
            found += client.get_tables(region, route).tables
        except RefusedError as error:
            refusal = error
    if refusal is not None and (regions or not found) and _has_tables(client):
        raise refusal
    return tuple(found)


def _has_tables(client: ObservatoryClient) -> bool:
    return any(_is_known(client, region) for region in client.regions())


def _is_known(client: ObservatoryClient, region: str) -> bool:
    try:
        return bool(client.get_tables(region).tables)
    except RefusedError:
        return False
