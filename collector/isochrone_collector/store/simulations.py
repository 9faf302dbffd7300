"""Recorded rounds for simulations: every probe that was sent, the region of its vantage, and the interval of its
target.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from isochrone_collector.analysis.simulation import SentProbes
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.store.postgres import columns
from isochrone_collector.store.postgres.pool import Connection, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import VALID, Scope


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TargetRow:
    """The probes of one target, as columns."""

    target_id: int
    vantage_id: Integers
    round_at: Integers
    dispatched_at: Integers
    throttled: NDArray[np.int32]
    ttft_us: Reals
    limit_us: Reals
    cost_usd: Reals


@dataclass(frozen=True, slots=True, kw_only=True)
class _VantageRegionRow:
    id: int
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _IntervalRow:
    id: int
    every_us: int


_MEASURED = ("ttft_us", "limit_us", "cost_usd")


async def sent_probes(connection: Connection, scope: Scope, *, limit: int) -> SentProbes:
    """Return at most `limit` probes of a scope that were sent."""
    statement = query("probes_asked").format(valid=sql.SQL(VALID))
    rows = await columns.fetch(connection, statement, _TargetRow, **scope.parameters(), limit=limit)
    several = {
        part.name: np.concatenate([np.empty(0, _dtype(part.name)), *(getattr(row, part.name) for row in rows)])
        for part in fields(_TargetRow)
        if part.name != "target_id"
    }
    several["throttled"] = several["throttled"].astype(np.bool_)
    counts = [len(row.round_at) for row in rows]
    target_id = np.repeat(np.array([row.target_id for row in rows], np.int64), counts)
    return SentProbes(target_id=target_id, **several)


async def vantage_regions(connection: Connection) -> dict[int, str]:
    """Return the region of every vantage, by its id."""
    return {row.id: row.region for row in await fetch(connection, query("vantage_regions"), _VantageRegionRow)}


async def intervals(connection: Connection, target_ids: tuple[int, ...]) -> dict[int, int]:
    """Return the interval of each target in microseconds, by its id."""
    rows = await fetch(connection, query("target_intervals"), _IntervalRow, target_ids=list(target_ids))
    return {row.id: row.every_us for row in rows}


def _dtype(name: str) -> type[np.generic]:
    return np.float64 if name in _MEASURED else np.int64
