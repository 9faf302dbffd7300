"""Memory of many series: drift that no single window shows is known from all of them."""

import numpy as np
import pytest

from bench.truth.series import drifting, independent, ragged_of
from isochrone_collector.analysis.stats.arrays import ragged
from isochrone_collector.analysis.stats.memory import unseen_inflation


def test_many_windows_show_the_drift_that_is_slower_than_each() -> None:
    """Of 2 000 windows with an autoregression of .97 the inflation is known to a tenth; of independent ones it is 1."""
    chance = np.random.default_rng(1)
    drift = unseen_inflation(ragged_of(drifting(0.3)(chance, 2_000, 60)))
    assert drift.ratio.mean() == pytest.approx(13.8, rel=0.1)
    assert unseen_inflation(ragged_of(independent(chance, 2_000, 60))).factor.mean() < 1.1


def test_one_window_proves_independence_only_if_it_is_long() -> None:
    """One window proves independence only if it is long; rows without variance have no inflation."""
    chance = np.random.default_rng(2)
    widths = {n: np.median([_factor(chance.standard_normal(n)) for _ in range(40)]) for n in (20, 60, 1_000)}
    assert widths[20] == 1
    assert widths[60] > 1.5
    assert widths[1_000] < 1.2
    chance = np.random.default_rng(3)
    varying = chance.standard_normal(300)
    found = unseen_inflation(ragged([np.ones(40), varying, np.zeros(0), np.arange(6.0)]))
    assert found.ratio[[0, 2, 3]].tolist() == pytest.approx([1, 1, 1], abs=0.2)
    assert found.ratio[1] == pytest.approx(unseen_inflation(ragged([varying])).ratio[0])
    assert len(unseen_inflation(ragged([])).ratio) == 0


def _factor(row: np.ndarray) -> float:
    return float(unseen_inflation(ragged([row])).factor[0])
