"""Rollups of samples into summaries of hours, and of these into summaries of days.

The laws:

1. A bucket is always made from everything in its span: an hour from all samples, a day from all hours. Rows are read
   and written under one lock, so that if a bucket is made twice, or by two collectors at once, the later read wins.
2. A few targets are read at a time, each few in one transaction, so that memory does not grow with the fleet.
3. Without samples nothing is written, and existing summaries stay.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from operator import attrgetter

import numpy as np

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.probe_records import Traits, outcomes
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.store.leaderboards import cut, measured
from isochrone_collector.store.postgres.pool import Connection, Database, execute, fetch, fetch_values
from isochrone_collector.store.postgres.values import columns_of, fields_of
from isochrone_collector.store.probe_queries import ProbeColumns, Scope, needed_columns, read
from isochrone_collector.store.summaries import JoinedRow, OutcomeRow, Piece, Resolution, Series, added, counted, joined
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import Outcome

# A dense fleet has a hundred thousand samples of this many targets in an hour: some ten megabytes.
_TARGETS_AT_ONCE = 8
_LOCK_KEY = 4_600_005
_METRICS = tuple(Metric)
Summaries = tuple[list[JoinedRow], list[OutcomeRow]]
_OUTCOMES = tuple(Outcome)
_COLUMNS = ("round_at", "cost_usd", *needed_columns(*_METRICS))


async def any_samples(connection: Connection, window: Window) -> bool:
    """Return whether there is any sample in a window of rounds."""
    return await fetch_values(connection, "any_samples", **fields_of(window)) == [True]


async def touched(connection: Connection, *, first: int, until: int, before_at: int) -> list[Window]:
    """Return the first instants of the first and last hours of the batches of the transactions from `first` to before
    `until`, with rounds before an instant.
    """
    return await fetch(connection, "touched_hours", Window, first=first, until=until, before_at=before_at)


async def summarise_hour(database: Database, hour_at: int) -> int:
    """Summarise the hour that begins at an instant; return the number of series. Raises `DatabaseUnavailable`."""
    return await _summarise(database, Resolution.HOUR, hour_at, from_samples)


async def summarise_day(database: Database, day_at: int) -> int:
    """Summarise a day (UTC) from its hours; return the number of series. Raises `DatabaseUnavailable`."""
    return await _summarise(database, Resolution.DAY, day_at, _from_hours)


async def _from_hours(connection: Connection, scope: Scope) -> Summaries:
    hours = Piece(resolution=Resolution.HOUR, window=scope.window)
    endings = added(await counted(connection, scope, hours))
    return await joined(connection, scope, hours, _METRICS), list(endings.values())


async def _summarise(
    database: Database,
    resolution: Resolution,
    bucket_at: int,
    summaries_of: Callable[[Connection, Scope], Awaitable[Summaries]],
) -> int:
    window, total = Window(from_at=bucket_at, until_at=bucket_at + resolution.size_us), 0
    for target_ids in await portions(database):
        async with database.transaction() as connection:
            await execute(connection, "take_lock", key=_LOCK_KEY)
            await execute(connection, "disable_jit")
            rows, endings = await summaries_of(connection, Scope(window=window, target_ids=target_ids))
            await _write(connection, resolution, bucket_at, rows, endings)
        total += len(endings)
    return total


async def portions(database: Database) -> list[tuple[int, ...]]:
    """Return the targets, a few at a time."""
    async with database.connection() as connection:
        ids = await fetch_values(connection, "target_ids")
    return [tuple(ids[start : start + _TARGETS_AT_ONCE]) for start in range(0, len(ids), _TARGETS_AT_ONCE)]


async def from_samples(connection: Connection, scope: Scope) -> Summaries:
    """Summarise the samples of a scope as those of one bucket."""
    return await asyncio.to_thread(_summarised, await read(connection, scope, *_COLUMNS, most=inf))


def _summarised(probes: ProbeColumns) -> Summaries:
    series, lengths, found = probes.by_series()
    rows = [
        JoinedRow(
            target_id=target_id,
            region=region,
            metric=metric,
            histogram=histogram.pack(own.values[~own.censored]),
            censored=histogram.pack(own.values[own.censored]) or None,
        )
        for metric in _METRICS
        for (target_id, region), own in zip(series, measured(found, metric, lengths), strict=True)
        if len(own.values)
    ]
    columns = [cut(found.column(name), lengths) for name in ("traits", "cost_usd", "round_at")]
    return rows, [_ending(key, *own) for key, *own in zip(series, *columns, strict=True)]


def _ending(key: Series, traits: Traits, cost_usd: Reals, round_at: Integers) -> OutcomeRow:
    counts = np.bincount(outcomes(traits), minlength=len(_OUTCOMES)).tolist()
    known = cost_usd[~np.isnan(cost_usd)]
    return OutcomeRow(
        target_id=key[0],
        region=key[1],
        outcomes={outcome.value: n for outcome, n in zip(_OUTCOMES, counts, strict=False) if n},
        cost_usd=float(known.sum()) if len(known) else None,
        newest_at=int(round_at.max()),
    )


async def _write(
    connection: Connection,
    resolution: Resolution,
    bucket_at: int,
    rows: Iterable[JoinedRow],
    endings: Iterable[OutcomeRow],
) -> None:
    """Insert first, then update: the later of two writers waits for the other's row, and then overwrites it."""
    bucket = {"resolution": resolution.value, "bucket_at": bucket_at}
    # Rows are written in one order, or two collectors could wait for each other.
    ordered = sorted(rows, key=attrgetter("metric", "target_id", "region"))
    values = columns_of(ordered, "target_id", "region", "metric", "histogram", "censored")
    values["values_count"] = [histogram.count(row.histogram) for row in ordered]
    listed = sorted(endings, key=attrgetter("target_id", "region"))
    counts = columns_of(listed, "target_id", "region", "outcomes", "cost_usd", "newest_at")
    if counts["target_id"]:
        for name in ("insert_summaries", "update_summaries"):
            await execute(connection, name, **bucket, **values)
        for name in ("insert_outcomes", "update_outcomes"):
            await execute(connection, name, **bucket, **counts)
