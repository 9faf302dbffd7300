"""Partial failures: found by their share, and seldom by chance."""

import numpy as np
import pytest

from isochrone_collector.alerts.failure_cusum import FAILING, FailureCusum, alarm_limit
from isochrone_wire.model import DAY_US, SECOND_US


def after_history(usual: float, n: int = 20_000) -> FailureCusum:
    cusum = FailureCusum()
    for at in range(n):
        cusum.add(at, failed=usual > 0 and at % round(1 / usual) == 0)
    return cusum


@pytest.mark.parametrize("every_s", [10, 60, 300])
@pytest.mark.parametrize("vantages", [1, 2, 4])
def test_chance_raises_less_than_an_alarm_a_year(every_s: int, vantages: int) -> None:
    """At 1 % failing, whatever the interval and the number of vantages; by importance sampling (Siegmund 1985)."""
    limit, usual = alarm_limit(every_us=every_s * SECOND_US, vantages=vantages), after_history(0.01).usual
    rng = np.random.default_rng(1)
    failure, answer = np.log(FAILING / usual), np.log((1 - FAILING) / (1 - usual))
    value, weight = np.full(4000, failure), np.ones(4000)
    while (is_open := (value > 0) & (value < limit)).any():
        failed = rng.random(4000) < FAILING
        value[is_open] += np.where(failed, failure, answer)[is_open]
        weight[is_open] *= np.where(failed, 0.01 / FAILING, 0.99 / (1 - FAILING))[is_open]
    chance = 0.01 * np.mean(weight * (value >= limit))
    trials = vantages * 365 * DAY_US / (every_s * SECOND_US)
    assert 2 * trials * chance < 1


@pytest.mark.parametrize(("usual", "least", "most"), [(0.0, 0.01, 0.01), (0.02, 0.02, 0.024), (1 / 16, 0.05, 0.05)])
def test_the_usual_share_is_learned_within_bounds(usual: float, least: float, most: float) -> None:
    """From the trials of about a week of one-minute rounds; a partial failure is not learned while it lasts."""
    cusum = after_history(usual)
    assert least <= cusum.usual <= most
    before = cusum.usual
    for at in range(20_000, 21_000):
        cusum.add(at, failed=at % 3 == 0)
    assert cusum.usual == pytest.approx(before, rel=1e-3)


def test_failures_in_one_round_count_once() -> None:
    """Those of several vantages are one event; the newest and the first one are known."""
    cusum = FailureCusum()
    for _ in range(4):
        cusum.add(7, failed=True)
    once = cusum.value
    cusum.add(9, failed=True)
    assert cusum.value > once > 0
    assert (cusum.since_at, cusum.until_at) == (7, 9)
