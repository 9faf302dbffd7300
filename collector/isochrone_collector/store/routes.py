from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.errors import UniqueViolation

from isochrone_collector.errors import Conflict
from isochrone_collector.store import job_state
from isochrone_collector.store.job_state import Channel
from isochrone_collector.store.postgres.pool import Connection, execute, fetch, fetch_one, fetch_tuples, fetch_values
from isochrone_collector.store.postgres.values import fields_of
from isochrone_wire.answers import Window
from isochrone_wire.routes import RouteEvent, RouteTable

MAX_CATCH_UP = 1_000
MAX_EVENTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A table to be published, with the inputs of its decision and the states before and after."""

    generation: int
    client_region: str
    route: str
    built_at: int
    change: str
    sentence: str
    document: str
    inputs: bytes
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A published table."""

    generation: int
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTableRow(TableRow):
    """The newest table of a route in a region, and the state after it."""

    after: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FullTableRow(TableRow):
    """A table with the inputs of its decision."""

    inputs: bytes
    before: bytes


async def publish(connection: Connection, tables: Sequence[NewTable]) -> None:
    """Store tables and notify all collectors in a transaction. Raises `Conflict` if another one has published."""
    try:
        async with connection.pipeline():
            for table in tables:
                await execute(connection, "insert_route_table", **fields_of(table))
            await job_state.notify(connection, Channel.TABLES)
    except UniqueViolation as error:
        raise Conflict(f"another collector has published generation {tables[0].generation}") from error


async def newest(connection: Connection) -> list[LastTableRow]:
    """Return the newest table of each route and region."""
    return await fetch(connection, "newest_route_tables", LastTableRow)


async def has(connection: Connection, table: RouteTable) -> bool:
    """Return whether a table is stored: not after the database was set back, even if its generation is used again."""
    asked = {"generation": table.generation, "built_at": table.built_at}
    return await fetch_values(connection, "has_route_table", **asked) == [True]


async def newest_generation(connection: Connection) -> int:
    """Return the highest generation so far."""
    (generation,) = await fetch_values(connection, "newest_generation")
    return int(generation)


async def after(
    connection: Connection, generation: int, *, client_region: str = "", route: str = "", limit: int = MAX_CATCH_UP
) -> list[TableRow]:
    """Return at most `limit` tables after a generation, in order; empty names mean all regions and routes."""
    asked = {"after": generation, "client_region": client_region, "route": route, "limit": limit}
    return await fetch(connection, "route_tables_after", TableRow, **asked)


async def in_full(connection: Connection, *, client_region: str, route: str, generation: int) -> FullTableRow | None:
    """Return one table with the inputs of its decision; generation 0 means the newest."""
    asked = {"client_region": client_region, "route": route, "generation": generation}
    return await fetch_one(connection, "route_table_in_full", FullTableRow, **asked)


async def known(connection: Connection) -> list[tuple[Any, ...]]:
    """Return the (region, route) pairs that have a table."""
    return await fetch_tuples(connection, "known_routes")


async def events(
    connection: Connection, window: Window, *, regions: Sequence[str], route: str, limit: int = MAX_EVENTS
) -> list[RouteEvent]:
    """Return at most `limit` changes in a window, newest first; empty names mean all regions and routes."""
    asked = {**fields_of(window), "regions": regions or None, "route": route, "limit": limit}
    return await fetch(connection, "route_events", RouteEvent, **asked)


async def delete_old(connection: Connection, *, evidence_before: int, events_before: int) -> None:
    """Delete old tables, except the newest of each route: refreshes before one instant, changes before another."""
    await execute(connection, "forget_route_tables", evidence_at=evidence_before, events_at=events_before)
