"""Hourly levels of the past week of each series: made daily from the summaries of hours, and read with every question.

A question reads a row of less than a kilobyte per series, instead of the histograms of a week.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis import history
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_collector.store.postgres.pool import Connection, Database, execute, fetch, fetch_columns
from isochrone_collector.store.postgres.values import columns_of
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.rollups import portions
from isochrone_wire.durations import HOUR_US

_FLOATS = ">f4"


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


async def make(database: Database, until_at: int) -> int:
    """Make the levels of the week until an instant; return their number. Raises `DatabaseUnavailable`."""
    total = 0
    for target_ids in await portions(database):
        for target_id in target_ids:
            async with database.transaction() as connection:
                span = {"from_at": until_at - history.HOURS * HOUR_US, "until_at": until_at}
                values = await fetch(connection, "hours_of_target", history.HourOfValues, target_id=target_id, **span)
                outcomes = await fetch(
                    connection, "outcomes_of_target", history.HourOfOutcomes, target_id=target_id, **span
                )
                made = await asyncio.to_thread(history.computed_levels, values, outcomes, until_at)
                await _write(connection, target_id, made, until_at)
            total += len(made)
    return total


async def history_of(connection: Connection, scope: Scope, quantities: Sequence[history.Quantity]) -> history.History:
    """Return the levels of several quantities of the series of a scope; its window is ignored."""
    rows = await fetch_columns(
        connection,
        "hourly_levels",
        _LevelsRow,
        target_ids=scope.target_ids,
        regions=scope.regions,
        metrics=[metric for metric, _ in quantities],
        quantities=[quantity for _, quantity in quantities],
    )
    own: dict[history.Quantity, list[_LevelsRow]] = {quantity: [] for quantity in quantities}
    for row in rows:
        own[row.metric, row.quantity].append(row)
    return history.History(levels={quantity: _series_levels(found) for quantity, found in own.items()})


def _series_levels(rows: Sequence[_LevelsRow]) -> history.SeriesLevels:
    series = [(row.target_id, region) for row in rows for region in row.regions]
    values = np.frombuffer(b"".join(row.levels for row in rows), _FLOATS).astype(np.float64)
    return history.SeriesLevels(
        series={one: place for place, one in enumerate(series)},
        from_at=np.concatenate([np.empty(0, np.int64), *(row.until_at - history.HOURS * HOUR_US for row in rows)]),
        levels=history.Levels(
            values=values.reshape(len(series), history.HOURS),
            noise=np.concatenate([np.empty(0), *(row.noise for row in rows)]),
        ),
        quantile=np.concatenate([np.empty(0), *(row.quantile for row in rows)]),
    )


async def _write(connection: Connection, target_id: int, made: Iterable[history.ComputedLevels], until_at: int) -> None:
    # In one order, or two collectors could wait for each other.
    rows = sorted(made, key=lambda row: (row.region, row.metric, row.quantity))
    values: dict[str, object] = {
        "until_at": until_at,
        "target_id": [target_id] * len(rows),
        **columns_of(rows, "region", "metric", "quantity", "noise", "quantile"),
        "levels": [row.levels.astype(_FLOATS).tobytes() for row in rows],
    }
    for name in ("insert_hourly_levels", "update_hourly_levels") if rows else ():
        await execute(connection, name, **values)
