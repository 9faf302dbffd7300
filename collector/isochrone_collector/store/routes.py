"""Stored route tables, and the probes from which they are decided."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from psycopg.errors import UniqueViolation

from isochrone_collector.analysis.probes import Integers, Reals
from isochrone_collector.errors import Conflict
from isochrone_collector.routing.probe_cache import Columns
from isochrone_collector.store import notifications
from isochrone_collector.store.notifications import Channel
from isochrone_collector.store.postgres import columns
from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import ANSWER_FROM, PUNCTUAL, VALID
from isochrone_wire.answers import Window

MAX_CATCH_UP = 1_000
MAX_EVENTS = 1_000

Number = TypeVar("Number", np.int64, np.float64)

# The bits of `traits` in the statement `probe_columns`.
_CENSORED, _KIND_BIT, _KINDS, _COMPARABLE_BIT, _PLACE_BIT = 1, 1, 3, 3, 4
_REALS = ("ttft_us", "rtt_us", "tokens_per_second", "answer_from_us", "first_chunk_tokens")


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
class LastTableRow:
    """The newest table of a route in a region, and the state after it."""

    generation: int
    document: str
    after: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FullTableRow:
    """A table with the inputs of its decision."""

    generation: int
    document: str
    inputs: bytes
    before: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """A change of a route; `weights` are those of the members since then."""

    generation: int
    client_region: str
    route: str
    at: int
    change: str
    sentence: str
    weights: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ProbeColumnsRow:
    target_id: int
    traits: NDArray[np.int32]
    round_at: Integers
    vantage_id: Integers
    epoch: Integers
    seq: Integers
    idx: NDArray[np.int32]
    ttft_us: Reals
    rtt_us: Reals
    tokens_per_second: Reals
    answer_from_us: Reals
    first_chunk_tokens: Reals


@dataclass(frozen=True, slots=True, kw_only=True)
class _RouteRow:
    client_region: str
    route: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _NumberRow:
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _InstantRow:
    at: int | None


async def publish(connection: Connection, tables: Sequence[NewTable]) -> None:
    """Store tables and notify all collectors, inside the caller's transaction.

    Raises `Conflict` if another collector has published meanwhile.
    """
    try:
        for table in tables:
            values = {name: getattr(table, name) for name in NewTable.__slots__}
            await execute(connection, query("insert_route_table"), **{**values, "built_at": Instant(table.built_at)})
    except UniqueViolation as error:
        raise Conflict(f"another collector has published generation {tables[0].generation}") from error
    await notifications.notify(connection, Channel.TABLES)


async def newest(connection: Connection) -> list[LastTableRow]:
    """Return the newest table of each route and region."""
    return await fetch(connection, query("newest_route_tables"), LastTableRow)


async def generation_at(connection: Connection, at: int) -> int:
    """Return the highest generation that was built by an instant; 0 if there is none."""
    (row,) = await fetch(connection, query("generation_at"), _NumberRow, at=Instant(at))
    return row.generation


async def newest_generation(connection: Connection) -> int:
    """Return the highest generation so far."""
    (row,) = await fetch(connection, query("newest_generation"), _NumberRow)
    return row.generation


async def after(
    connection: Connection, generation: int, *, client_region: str = "", route: str = "", limit: int = MAX_CATCH_UP
) -> list[TableRow]:
    """Return at most `limit` tables after a generation, in order; empty names mean all regions and routes."""
    return await fetch(
        connection,
        query("route_tables_after"),
        TableRow,
        after=generation,
        client_region=client_region,
        route=route,
        limit=limit,
    )


async def in_full(connection: Connection, *, client_region: str, route: str, generation: int) -> FullTableRow | None:
    """Return one table with the inputs of its decision; generation 0 means the newest."""
    found = await fetch(
        connection,
        query("route_table_in_full"),
        FullTableRow,
        client_region=client_region,
        route=route,
        generation=generation,
    )
    return found[0] if found else None


async def known(connection: Connection) -> list[tuple[str, str]]:
    """Return the (region, route) pairs that have a table."""
    rows = await fetch(connection, query("known_routes"), _RouteRow)
    return [(row.client_region, row.route) for row in rows]


async def events(
    connection: Connection, window: Window, *, regions: Sequence[str], route: str, limit: int = MAX_EVENTS
) -> list[EventRow]:
    """Return at most `limit` changes in a window, newest first; empty names mean all regions and routes."""
    return await fetch(
        connection,
        query("route_events"),
        EventRow,
        from_at=Instant(window.from_at),
        until_at=Instant(window.until_at),
        regions=list(regions) or None,
        route=route,
        limit=limit,
    )


async def delete_old(connection: Connection, *, evidence_before: int, events_before: int) -> None:
    """Delete old tables, except the newest of each route: refreshes before one instant, changes before another."""
    before = {"evidence_before": Instant(evidence_before), "events_before": Instant(events_before)}
    await execute(connection, query("forget_route_tables"), **before)


async def oldest_round_since(connection: Connection, since_at: int) -> int | None:
    """Return the oldest round of the batches received since an instant; `None` if there are none."""
    (row,) = await fetch(connection, query("oldest_round_since"), _InstantRow, since_at=Instant(since_at))
    return row.at


async def probe_columns(
    connection: Connection, *, targets: Sequence[int], regions: Sequence[str], from_at: int, since_at: int
) -> Columns:
    """Return the probes received since one instant, of rounds since another, as columns for the probe cache."""
    statement = query("probe_columns").format(
        valid=sql.SQL(VALID), punctual=sql.SQL(PUNCTUAL), answer_from=sql.SQL(ANSWER_FROM)
    )
    rows = await columns.fetch(
        connection,
        statement,
        _ProbeColumnsRow,
        target_ids=list(targets),
        regions=list(regions),
        from_at=Instant(from_at),
        since_at=Instant(since_at),
    )
    traits = _joined(rows, "traits", np.int64)
    sizes = [len(row.traits) for row in rows]
    return {
        "target_id": np.repeat(np.array([row.target_id for row in rows], np.int64), sizes),
        **{name: _joined(rows, name, np.int64) for name in ("round_at", "vantage_id", "epoch", "seq", "idx")},
        "region": traits >> _PLACE_BIT,
        "kind": traits >> _KIND_BIT & _KINDS,
        "censored": traits & _CENSORED,
        "comparable": traits >> _COMPARABLE_BIT & 1,
        **{name: _joined(rows, name, np.float64) for name in _REALS},
    }


def _joined(rows: Sequence[_ProbeColumnsRow], name: str, kind: type[Number]) -> NDArray[Number]:
    return np.concatenate([np.empty(0, kind), *(getattr(row, name) for row in rows)], dtype=kind)
