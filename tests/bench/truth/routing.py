"""Switches of the first choice between members that are equal in the long run, while their levels drift slowly.

The collector knows the hourly levels of the week before.
"""

from statistics import fmean

import numpy as np

from bench.truth.series import ROUNDS_PER_HOUR, autoregressive
from isochrone_collector.analysis.history import HOURS, History, Levels, SeriesLevels, median_of
from isochrone_wire.answers import Metric
from testdata.routing_worlds import START_AT, RoutingSimulation

DAYS = 6
EPOCHS_OF_A_DAY = 288
MEDIAN_MS = 350.0
DRIFT = 0.1
PROBES_PER_HOUR = 144
_HOUR_US = 3_600_000_000


def switches_a_day(seed: int) -> float:
    """Return the mean number of switches in a day if a tenth of the variance is drift."""
    return fmean(_switches(seed, day) for day in range(DAYS))


def _switches(seed: int, day: int) -> int:
    world = RoutingSimulation(seed=seed + day, regions=1, drift=DRIFT)
    world.history = week([seed, 5, day], [target.id for target in world.plan.targets], world.sigma)
    return sum(moment.switched for moment in world.run(EPOCHS_OF_A_DAY, MEDIAN_MS, MEDIAN_MS))


def week(seed: list[int], target_ids: list[int], sigma: float) -> History:
    """Return the hourly medians of another week of the same members, of two vantages with 72 rounds an hour each."""
    chance, shape = np.random.default_rng(seed), (len(target_ids), HOURS)
    steps = autoregressive(chance, len(target_ids), HOURS * ROUNDS_PER_HOUR, 0.97).reshape(*shape, ROUNDS_PER_HOUR)
    deviation = sigma * np.sqrt((1 - DRIFT) * np.pi / 2 / PROBES_PER_HOUR)
    scores = sigma * np.sqrt(DRIFT) * steps.mean(axis=2) + deviation * chance.standard_normal(shape)
    medians = SeriesLevels(
        series={(target_id, "r0"): place for place, target_id in enumerate(target_ids)},
        from_at=np.full(len(target_ids), START_AT - HOURS * _HOUR_US),
        levels=Levels(
            values=1000 * MEDIAN_MS * np.exp(scores),
            noise=np.full(len(target_ids), (1000 * MEDIAN_MS * deviation) ** 2),
        ),
    )
    return History(levels={median_of(Metric.TTFT): medians})
