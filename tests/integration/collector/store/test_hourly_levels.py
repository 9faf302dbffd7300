"""Hourly levels of a week, made by the rollup from summaries, and read by questions."""

from dataclasses import replace

import numpy as np
import pytest
from psycopg import sql

from fixtures.inprocess_collector import DAY_AT, PLAN, InProcessCollector
from isochrone_collector.analysis.history import HOURS, SUCCESS, above_quantile, median_of
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.differentials import differentials, region_costs
from isochrone_collector.store import hourly_levels
from isochrone_collector.store.postgres.pool import execute
from isochrone_wire.answers import Differential, Metric, Selection, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import RegionCost
from isochrone_wire.model import DAY_US, MINUTE_US, Sample, Vantage
from testdata.columns import present

MS = 1_000
DAYS = 8
EVERY_US = 5 * MINUTE_US
US, SG = Vantage(name="us-1", region="us"), Vantage(name="sg-1", region="sg")


def samples(local: InProcessCollector, day: int, *, drift_ms: float, seed: int) -> list[Sample]:
    """A day of rounds around 400 ms; with drift, the level rises and falls over seven hours."""
    chance = np.random.default_rng([seed, day])
    rounds_at = DAY_AT + day * DAY_US + np.arange(DAY_US // EVERY_US) * EVERY_US
    level = 400 * MS + drift_ms * MS * np.sin(2 * np.pi * (rounds_at - DAY_AT) / (7 * HOUR_US))
    values = level + 20 * MS * chance.standard_normal(len(rounds_at))
    return [local.sample(int(at), int(value)) for at, value in zip(rounds_at, values, strict=True)]


async def a_week(local: InProcessCollector) -> None:
    """Push a week and a day from two regions, the second with drift, and make the summaries of all days."""
    await local.begin(DAY_AT + MINUTE_US)
    await local.plans.apply(f"every: 5m\n{PLAN}", dry_run=False, applied_by="a test")
    for day in range(DAYS):
        await local.turn_to(DAY_AT + (day + 1) * DAY_US)
        await local.push(US, samples(local, day, drift_ms=0, seed=1))
        await local.push(SG, samples(local, day, drift_ms=100, seed=2))
    await local.turn_to(DAY_AT + DAYS * DAY_US + HOUR_US)
    await local.rollup.run()


async def check_levels(local: InProcessCollector) -> None:
    """Check the levels of the newest week: drift and none, and shares above quantiles."""
    scope = local.scope(Window(from_at=DAY_AT, until_at=DAY_AT + DAY_US))
    median, slow = median_of(Metric.TTFT), above_quantile(Metric.TTFT, 0.95)
    async with local.database.connection() as connection:
        history = await hourly_levels.history_of(connection, scope, [median, SUCCESS])
        shares = (await hourly_levels.history_of(connection, replace(scope, regions=("us",)), [slow])).levels[slow]
    medians, success = history.levels[median], history.levels[SUCCESS]
    places = [medians.series[local.target_id, region] for region in ("us", "sg")]
    assert medians.from_at.tolist() == [DAY_AT + DAYS * DAY_US - HOURS * HOUR_US] * 2
    steady, drifting = medians.levels.values[places]
    assert np.isfinite(steady).all()
    assert steady.std() < 10 * MS
    assert drifting.std() == pytest.approx(100 * MS / np.sqrt(2), rel=0.1)
    assert np.nanmean(shares.levels.values) == pytest.approx(0.05, abs=0.02)
    assert list(shares.series) == [(local.target_id, "us")]
    assert shares.quantile_of([(local.target_id, "us")]) == pytest.approx(400 * MS + 1.645 * 20 * MS, rel=0.01)
    assert np.isnan(medians.quantile_of([(local.target_id, "us")])).all()
    assert success.series.keys() == medians.series.keys()
    assert (success.levels.values == 1).all()


async def asked(local: InProcessCollector, hours: int) -> tuple[Differential, RegionCost]:
    until_at = DAY_AT + DAYS * DAY_US
    context = QueryContext(database=local.database, plans=local.plans, clock=local.clock)
    selection = Selection(window=Window(from_at=until_at - hours * HOUR_US, until_at=until_at))
    found = await differentials(context, selection, baseline="us", against=("sg",), metric=Metric.TTFT)
    costs = await region_costs(context, selection, metric=Metric.TTFT)
    return found.differentials[0], costs.costs[1]


async def test_history_widens_intervals_of_series_that_drift(local: InProcessCollector) -> None:
    """The rollup leaves levels of a week, which say of two hours on a slope that such levels do not last."""
    await a_week(local)
    await check_levels(local)
    told, told_cost = await asked(local, 2)
    async with local.database.connection() as connection:
        await execute(connection, sql.SQL("DELETE FROM hourly_levels"))
    alone, cost_alone = await asked(local, 2)
    widths = [present(one.shift_high) - present(one.shift_low) for one in (told, alone)]
    assert told.shift == alone.shift
    assert widths[0] > 2.5 * widths[1]
    assert told_cost.added == cost_alone.added == pytest.approx(abs(present(told.shift)))
    of_costs = [present(one.added_high) - present(one.added_low) for one in (told_cost, cost_alone)]
    assert of_costs[0] == pytest.approx(widths[0])
    # Without a week, a pair alone is decided by the drift that is plausible; costs are those of a provider's targets.
    assert of_costs[1] < widths[1]
    assert told.n_eff is not None
    assert alone.n_eff is not None
    assert told.n_eff < alone.n_eff
    assert told.shift_low is not None
    assert told.shift_low < 0
