"""Queries for the explanation of a route table and for route events, answered from the stored tables."""

import asyncio

from isochrone_collector.errors import UnknownName
from isochrone_collector.queries.context import QueryContext, check_regions, check_window
from isochrone_collector.routing import serialization
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.switch import State
from isochrone_collector.routing.table import explain_steps, replay
from isochrone_collector.store import routes, vantages
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.routes import FullTableRow
from isochrone_wire.answers import Selection
from isochrone_wire.routes import Explanation, RouteEventList, RouteTable

NO_TABLE = "there is no route table yet: it takes a plan with `routes`, and 6 samples of a member"


async def explanation(context: QueryContext, client_region: str, route: str, *, generation: int = 0) -> Explanation:
    """Explain a table (generation 0: the newest) by a replay. Raises `UnknownName` and `DatabaseUnavailable`."""
    async with context.database.connection() as connection:
        row = await routes.in_full(connection, client_region=client_region, route=route, generation=generation)
        if row is None:
            raise await _unknown(connection, client_region, route, generation)
    return await asyncio.to_thread(_explained, row)


async def events(context: QueryContext, selection: Selection, *, route: str = "") -> RouteEventList:
    """Return route events, newest first. Raises `BadRequest`, `UnknownName` and `DatabaseUnavailable`."""
    check_window(selection.window)
    async with context.database.connection() as connection:
        check_regions(selection.regions, await vantages.regions(connection))
        if route:
            known = {name for _, name in await routes.known(connection)}
            if route not in known:
                raise UnknownName.among("route", route, known)
        found = await routes.events(connection, selection.window, regions=selection.regions, route=route)
    return RouteEventList(window=selection.window, events=tuple(found))


def _explained(row: FullTableRow) -> Explanation:
    inputs, before = serialization.decompress(row.inputs), serialization.decompress(row.before)
    document, decision = replay(row.document, inputs, before)
    return Explanation(
        table=serialization.load(RouteTable, row.document),
        steps=explain_steps(serialization.load(Inputs, inputs), serialization.load(State, before), decision),
        inputs=inputs,
        before=before,
        replays=document == row.document,
    )


async def _unknown(connection: Connection, client_region: str, route: str, generation: int) -> UnknownName:
    known = await routes.known(connection)
    regions = {region for region, _ in known}
    if not regions:
        return UnknownName(NO_TABLE)
    if client_region not in regions:
        return UnknownName.among("client region", client_region, regions)
    inside = {name for region, name in known if region == client_region}
    if route not in inside:
        return UnknownName.among("route", route, inside)
    return UnknownName(
        f"there is no generation {generation} of {route!r} in {client_region!r}; "
        "it may be of another route or region, or no longer stored"
    )
