"""Unpaired shifts: the relation to Mann and Whitney's test, and too few values."""

import numpy as np
import pytest
import scipy

from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_collector.analysis.stats.long_run_variance import independent
from isochrone_collector.analysis.stats.shifts import TwoSampleShift, separation


def apart(x: Reals, y: Reals) -> TwoSampleShift:
    """The separation of independent values."""
    found = separation(x, y, known=independent(2))
    assert found is not None
    return found


def test_worked_out_by_hand() -> None:
    """Of the thirty-six differences between 0, 3, 1, 4, 2, 5 and the same plus 10 the middle is 10, and the interval
    leaves out the tabled five on either side.
    """
    x = np.array([0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    found = apart(x, x + 10)
    differences = np.sort(((x + 10)[:, None] - x).ravel())
    assert found.shift.estimate == 10.0
    assert (found.shift.low, found.shift.high) == (differences[5], differences[30])
    assert (found.greater, found.n_eff) == (1.0, 6.0)


def test_five_rounds_on_a_side_are_too_few() -> None:
    """With fewer than six rounds on a side there is no result."""
    assert separation(np.arange(5.0), np.arange(50.0)) is None
    assert separation(np.arange(50.0), np.arange(5.0)) is None


@pytest.mark.parametrize(("m", "n"), [(6, 6), (10, 25), (60, 40)])
def test_the_interval_holds_what_the_test_does_not_reject(m: int, n: int) -> None:
    """A shift inside the interval is not rejected by Mann and Whitney's test, and one outside is."""
    chance = np.random.default_rng(m + n)
    x, y = chance.normal(0, 1, m), chance.normal(2, 1, n)
    found = apart(x, y)
    assert found.shift.low is not None
    assert found.shift.high is not None
    for shift, rejected in (
        (found.shift.low - 1e-6, True),
        (found.shift.low + 1e-6, False),
        (found.shift.high - 1e-6, False),
        (found.shift.high + 1e-6, True),
    ):
        p_value = scipy.stats.mannwhitneyu(y - shift, x, method="asymptotic", use_continuity=True).pvalue
        assert (p_value <= 0.05) == rejected


@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
def test_p_values_and_superiority_are_those_of_mann_and_whitney(shift: float) -> None:
    """U over mn is the chance that the region is the slower, and U's p-value is the one reported."""
    chance = np.random.default_rng(8)
    x, y = chance.normal(0, 1, 40), chance.normal(shift, 1, 30)
    found, expected = apart(x, y), scipy.stats.mannwhitneyu(y, x, method="asymptotic", use_continuity=True)
    assert found.greater == pytest.approx(expected.statistic / 1_200)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def test_ties_count_half() -> None:
    """Of two equal sides, each is the slower in half of the pairs."""
    found = apart(np.full(20, 5.0), np.full(20, 5.0))
    assert (found.greater, found.p_value, found.shift.estimate) == (0.5, 1.0, 0.0)


def test_likeness_on_either_side_widens_the_interval() -> None:
    """An autocorrelated side has a smaller effective size and a wider interval."""
    chance = np.random.default_rng(9)
    x, y = chance.normal(0, 1, 100), chance.normal(1, 1, 100)
    plain, wide = apart(x, y), separation(np.sort(x), y)
    assert wide is not None
    assert plain.n_eff == 100
    assert wide.n_eff < 20
    assert wide.shift.estimate == plain.shift.estimate
    assert plain.shift.low is not None
    assert wide.shift.low is not None
    assert wide.shift.low < plain.shift.low
    assert wide.p_value > plain.p_value
