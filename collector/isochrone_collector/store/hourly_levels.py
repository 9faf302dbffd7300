"""Hourly levels of the past week of each series: made daily from the summaries of hours, and read with every question.

A question reads a row of less than a kilobyte per series, instead of the histograms of a week.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis import histogram, history
from isochrone_collector.analysis.history import HOURS, SHARES, Levels, SeriesLevels
from isochrone_collector.analysis.stats.ragged import Reals
from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, Database, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.rollups import portions
from isochrone_collector.store.summaries import HOUR_US
from isochrone_wire.answers import Metric

MEDIAN = "median"
"""The level of an hour that is the median of its values; `above_quantile` names the others."""

_FLOATS = ">f4"


def above_quantile(share: float) -> str:
    """Return the name of the level of an hour that is the share of its values above a quantile of the week."""
    return f"above_p{100 * share:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _HourRow:
    """The histogram of an hour of a series."""

    region: str
    metric: str
    bucket_start: int
    histogram: bytes
    censored: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LevelsRow:
    target_id: int
    region: str
    until_at: int
    noise: float
    levels: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The levels of one quantity of one series."""

    target_id: int
    region: str
    metric: str
    quantity: str
    noise: float
    levels: Reals


async def make(database: Database, until_at: int) -> int:
    """Make the levels of the week until an instant; return their number. Raises `DatabaseUnavailable`."""
    total = 0
    for target_ids in await portions(database):
        for target_id in target_ids:
            async with database.transaction() as connection:
                span = {"from_at": Instant(until_at - HOURS * HOUR_US), "until_at": Instant(until_at)}
                rows = await fetch(connection, query("hours_of_target"), _HourRow, target_id=target_id, **span)
                made = await asyncio.to_thread(_made_of_all, target_id, rows, until_at)
                await _write(connection, made, until_at)
            total += len(made)
    return total


async def levels_of(connection: Connection, scope: Scope, metric: Metric, quantity: str) -> SeriesLevels:
    """Return the levels of a quantity of the series of a scope; its window is ignored."""
    rows = await fetch(
        connection,
        query("hourly_levels"),
        _LevelsRow,
        target_ids=list(scope.target_ids),
        regions=None if scope.regions is None else list(scope.regions),
        metric=metric.value,
        quantity=quantity,
    )
    return SeriesLevels(
        series={(row.target_id, row.region): place for place, row in enumerate(rows)},
        from_at=np.array([row.until_at - HOURS * HOUR_US for row in rows], dtype=np.int64),
        levels=Levels(
            values=np.array([_decoded(row.levels) for row in rows]).reshape(len(rows), HOURS),
            noise=np.array([row.noise for row in rows]),
        ),
    )


def _decoded(content: bytes) -> Reals:
    return np.frombuffer(content, _FLOATS).astype(np.float64)


def _made_of_all(target_id: int, rows: Sequence[_HourRow], until_at: int) -> list[_Made]:
    return list(_made(target_id, rows, until_at))


def _made(target_id: int, rows: Sequence[_HourRow], until_at: int) -> Iterator[_Made]:
    """Yield the levels of all series of a target."""
    by_series: dict[tuple[str, str], list[_HourRow]] = defaultdict(list)
    for row in rows:
        by_series[row.region, row.metric].append(row)
    for (region, metric), own in by_series.items():
        hours = [(row.bucket_start - until_at) // HOUR_US + HOURS for row in own]
        merged = histogram.merge(
            (row.histogram for row in own), (row.censored or b"" for row in own), np.array(hours), of=HOURS
        )
        for quantity, (levels, noise) in _quantities(merged):
            yield _Made(
                target_id=target_id, region=region, metric=metric, quantity=quantity, noise=noise, levels=levels
            )


def _quantities(hourly: histogram.Histograms) -> Iterator[tuple[str, tuple[Reals, float]]]:
    yield MEDIAN, history.medians(hourly)
    for share in SHARES:
        yield above_quantile(share), history.exceedances(hourly, share)


async def _write(connection: Connection, made: Iterable[_Made], until_at: int) -> None:
    # In one order, or two collectors could wait for each other.
    rows = sorted(made, key=lambda row: (row.region, row.metric, row.quantity))
    values: dict[str, object] = {
        "until_at": Instant(until_at),
        "target_id": [row.target_id for row in rows],
        "region": [row.region for row in rows],
        "metric": [row.metric for row in rows],
        "quantity": [row.quantity for row in rows],
        "noise": [row.noise for row in rows],
        "levels": [row.levels.astype(_FLOATS).tobytes() for row in rows],
    }
    for name in ("insert_hourly_levels", "update_hourly_levels") if rows else ():
        await execute(connection, query(name), **values)
