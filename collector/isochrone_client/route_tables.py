"""The route tables of several regions: a collector is asked for those of one at a time."""

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import RefusedError
from isochrone_wire.routes import RouteTable


def collect_tables(client: ObservatoryClient, regions: tuple[str, ...], route: str) -> tuple[RouteTable, ...]:
    """The tables in force of these regions, or of all that have some, of one route or of all.

    Nothing at all when there is no table anywhere yet. Raises `ClientError`, and `RefusedError` for a region or route
    that is not known although others are.
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
