"""Hourly levels of the past week of each series: made daily from the summaries of hours, and read with every question.

A question reads a row of less than a kilobyte per series, instead of the histograms of a week.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from isochrone_collector.analysis import histogram, history
from isochrone_collector.analysis.distribution import outcome_counts
from isochrone_collector.analysis.history import (
    HOURS,
    SHARES,
    SUCCESS,
    History,
    Levels,
    Quantity,
    SeriesLevels,
    above_quantile,
    median_of,
)
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.store.postgres import columns
from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, Database, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.rollups import portions
from isochrone_wire.answers import Metric
from isochrone_wire.durations import HOUR_US

_FLOATS = ">f4"


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
    """The levels of one quantity of one target from all regions, concatenated."""

    target_id: int
    metric: str
    quantity: str
    regions: list[str]
    until_at: Integers
    noise: Reals
    quantile: Reals
    levels: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutcomesRow:
    """The outcomes of an hour from one region."""

    region: str
    bucket_start: int
    outcomes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The levels of one quantity of one series, and the quantile that they are the shares above, NaN for others."""

    target_id: int
    region: str
    metric: str
    quantity: str
    noise: float
    levels: Reals
    quantile: float = nan


async def make(database: Database, until_at: int) -> int:
    """Make the levels of the week until an instant; return their number. Raises `DatabaseUnavailable`."""
    total = 0
    for target_ids in await portions(database):
        for target_id in target_ids:
            async with database.transaction() as connection:
                span = {"from_at": Instant(until_at - HOURS * HOUR_US), "until_at": Instant(until_at)}
                rows = await fetch(connection, query("hours_of_target"), _HourRow, target_id=target_id, **span)
                counts = await fetch(connection, query("outcomes_of_target"), _OutcomesRow, target_id=target_id, **span)
                made = await asyncio.to_thread(_made_of_all, target_id, rows, counts, until_at)
                await _write(connection, made, until_at)
            total += len(made)
    return total


async def levels_of(connection: Connection, scope: Scope, quantity: Quantity) -> SeriesLevels:
    """Return the levels of a quantity of the series of a scope; its window is ignored."""
    return (await history_of(connection, scope, [quantity])).levels[quantity]


async def history_of(connection: Connection, scope: Scope, quantities: Sequence[Quantity]) -> History:
    """Return the levels of several quantities of the series of a scope; its window is ignored."""
    rows = await columns.fetch(
        connection,
        query("hourly_levels"),
        _LevelsRow,
        target_ids=list(scope.target_ids),
        regions=None if scope.regions is None else list(scope.regions),
        metrics=[metric for metric, _ in quantities],
        quantities=[quantity for _, quantity in quantities],
    )
    own: dict[Quantity, list[_LevelsRow]] = {quantity: [] for quantity in quantities}
    for row in rows:
        own[row.metric, row.quantity].append(row)
    return History(levels={quantity: _series_levels(found) for quantity, found in own.items()})


def _series_levels(rows: Sequence[_LevelsRow]) -> SeriesLevels:
    series = [(row.target_id, region) for row in rows for region in row.regions]
    values = np.frombuffer(b"".join(row.levels for row in rows), _FLOATS).astype(np.float64)
    return SeriesLevels(
        series={one: place for place, one in enumerate(series)},
        from_at=np.concatenate([np.empty(0, np.int64), *(row.until_at - HOURS * HOUR_US for row in rows)]),
        levels=Levels(
            values=values.reshape(len(series), HOURS),
            noise=np.concatenate([np.empty(0), *(row.noise for row in rows)]),
        ),
        quantile=np.concatenate([np.empty(0), *(row.quantile for row in rows)]),
    )


def _made_of_all(
    target_id: int, rows: Sequence[_HourRow], counts: Sequence[_OutcomesRow], until_at: int
) -> list[_Made]:
    return [*_made(target_id, rows, until_at), *_made_of_outcomes(target_id, counts, until_at)]


def _made_of_outcomes(target_id: int, rows: Sequence[_OutcomesRow], until_at: int) -> Iterator[_Made]:
    """Yield the levels of success of all regions of a target."""
    metric, quantity = SUCCESS
    by_region: dict[str, list[_OutcomesRow]] = defaultdict(list)
    for row in rows:
        by_region[row.region].append(row)
    for region, own in by_region.items():
        ok, sent = np.zeros(HOURS), np.zeros(HOURS)
        for row in own:
            hour, counts = (row.bucket_start - until_at) // HOUR_US + HOURS, outcome_counts(row.outcomes)
            ok[hour], sent[hour] = counts.ok, counts.sent
        levels, noise = history.successes(ok, sent)
        yield _Made(target_id=target_id, region=region, metric=metric, quantity=quantity, noise=noise, levels=levels)


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
        for (_, quantity), value, (levels, noise) in _quantities(Metric(metric), merged):
            yield _Made(
                target_id=target_id,
                region=region,
                metric=metric,
                quantity=quantity,
                noise=noise,
                levels=levels,
                quantile=value,
            )


def _quantities(metric: Metric, hourly: histogram.Histograms) -> Iterator[tuple[Quantity, float, tuple[Reals, float]]]:
    """Yield the levels of each quantity with their noise, and the quantile that they are the shares above."""
    yield median_of(metric), nan, history.medians(hourly)
    total = hourly.total()
    for share in SHARES:
        value = float(total.quantile(share)[0])
        yield above_quantile(metric, share), value, history.exceedances(hourly, value)


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
        "quantile": [row.quantile for row in rows],
        "levels": [row.levels.astype(_FLOATS).tobytes() for row in rows],
    }
    for name in ("insert_hourly_levels", "update_hourly_levels") if rows else ():
        await execute(connection, query(name), **values)
