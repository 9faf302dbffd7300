"""Switches of the first choice between members that are equal in the long run, while their levels drift slowly."""

from functools import cache
from statistics import fmean

from testdata.routing_simulation import RoutingSimulation

DAYS = 6
EPOCHS_OF_A_DAY = 288
MEDIAN_MS = 350.0


@cache
def switches_a_day() -> float:
    """Return the mean number of switches in a day if a tenth of the variance is drift."""
    return fmean(_switches(seed) for seed in range(DAYS))


def _switches(seed: int) -> int:
    world = RoutingSimulation(seed=seed, regions=1, drift=0.1)
    return sum(moment.switched for moment in world.run(EPOCHS_OF_A_DAY, MEDIAN_MS, MEDIAN_MS))
