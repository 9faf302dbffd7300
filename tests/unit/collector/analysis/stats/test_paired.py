"""The shift of paired differences: hand-made cases, the relation to Wilcoxon's test, and many pairs at once."""

import numpy as np
import pytest
import scipy

from isochrone_collector.analysis.stats.arrays import ragged
from isochrone_collector.analysis.stats.shifts import (
    Shift,
    hodges_lehmann,
    paired_estimates,
    paired_shift,
    paired_shifts,
)


def shift_of(*differences: float) -> Shift:
    found = hodges_lehmann(np.array(differences, dtype=np.float64))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("differences", "estimate"),
    [
        ([5.0], 5.0),
        ([1.0, 3.0], 2.0),
        # Walsh averages 1 1.5 2 5.5 6 10: the middle ones are 2 and 5.5.
        ([1.0, 2.0, 10.0], 3.75),
        # Sorted Walsh averages of 0 1 4 9: 0 .5 1 2 2.5 4 4.5 5 6.5 9.
        ([9.0, 0.0, 4.0, 1.0], 3.25),
    ],
)
def test_estimates_worked_out_by_hand(differences: list[float], estimate: float) -> None:
    """The estimate is the median of the Walsh averages."""
    assert shift_of(*differences).estimate == estimate


def test_nothing_has_no_shift() -> None:
    """Without pairs there is no shift."""
    assert hodges_lehmann(np.array([], dtype=np.float64)) is None


def test_five_rounds_are_too_few() -> None:
    """Below six pairs there is an estimate and no interval."""
    assert shift_of(1, 2, 3, 4, 5) == Shift(estimate=3.0, low=None, high=None)


def test_six_rounds_are_bounded_by_their_extremes() -> None:
    """With six pairs the interval runs from the smallest to the largest difference (96.9 %)."""
    assert shift_of(6, 1, 5, 2, 4, 3) == Shift(estimate=3.5, low=1.0, high=6.0)


@pytest.mark.parametrize("n", [6, 12, 30])
def test_the_interval_holds_what_wilcoxon_does_not_reject(n: int) -> None:
    """A shift inside the interval is not rejected at 5 % by Wilcoxon's exact test, and one outside is."""
    differences = np.random.default_rng(n).normal(3.0, 2.0, n)
    found = shift_of(*differences)
    assert found.low is not None
    assert found.high is not None
    for shift, rejected in (
        (found.low - 1e-6, True),
        (found.low + 1e-6, False),
        (found.estimate, False),
        (found.high - 1e-6, False),
        (found.high + 1e-6, True),
    ):
        assert (scipy.stats.wilcoxon(differences - shift, method="exact").pvalue <= 0.05) == rejected


def test_many_pairs_take_little_memory_and_time() -> None:
    """Ten thousand pairs, which have fifty million Walsh averages, are estimated well."""
    differences = np.random.default_rng(1).normal(10_000, 5_000, 10_000)
    found = shift_of(*differences)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 10_000 < found.high
    assert found.high - found.low < 300


def test_equal_differences_are_their_own_shift() -> None:
    """When every round differs by the same, the interval is that number."""
    for n in (10, 500):
        assert shift_of(*[4_000.0] * n) == Shift(estimate=4_000.0, low=4_000.0, high=4_000.0)


def rows(lengths: list[int]) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Differences of every kind: independent, alike to their neighbours, tied, all the same."""
    chance = np.random.default_rng(sum(lengths))
    found = []
    for place, n in enumerate(lengths):
        values = chance.lognormal(10, 1, n) - 20_000
        kinds = (values, np.cumsum(values), np.round(values, -4), np.full(n, 4_000.0))
        found.append(kinds[place % len(kinds)])
    return found


def known(shift: Shift) -> list[float]:
    return [value for value in (shift.estimate, shift.low, shift.high) if value is not None]


@pytest.mark.parametrize(
    "lengths", [[0, 1, 5, 6, 7, 8, 9], [40] * 30, list(range(45, 60)), [0] * 3, [700, 700, 3, 700, 700], [111] * 99]
)
def test_many_at_once_are_what_each_is_by_itself(lengths: list[int]) -> None:
    """Thousands of pairs take a way of their own, and its results are those of the plain functions."""
    alone = rows(lengths)
    together = paired_shifts(ragged(alone))
    estimates = paired_estimates(ragged(alone)).tolist()
    for differences, found, estimate in zip(alone, together.listed(), estimates, strict=True):
        expected = paired_shift(differences)
        if expected is None:
            assert found is None
            continue
        assert found is not None
        assert known(found) == pytest.approx(known(expected), rel=1e-12, abs=1e-6)
        assert estimate == pytest.approx(expected.estimate, rel=1e-12, abs=1e-6)


def test_likeness_of_neighbours_widens_the_interval() -> None:
    """The estimate stays, and both half-widths grow by the same factor, when the same differences come in runs."""
    chance = np.random.default_rng(20261121)
    mixed = chance.normal(5.0, 1.0, 100)
    in_order = np.sort(mixed)
    plain, wide = hodges_lehmann(mixed), paired_shift(in_order)
    assert plain is not None
    assert wide is not None
    assert wide.estimate == plain.estimate
    assert plain.low is not None
    assert plain.high is not None
    assert wide.low is not None
    assert wide.high is not None
    factor = (wide.high - wide.estimate) / (plain.high - plain.estimate)
    assert factor > 4
    assert (wide.estimate - wide.low) / (plain.estimate - plain.low) == pytest.approx(factor)


def test_what_a_pair_is_worth_comes_with_it() -> None:
    """Independent rounds are worth about half their number, rounds in runs less; below six there is no p-value."""
    chance = np.random.default_rng(20261121)
    values = chance.normal(0.0, 1.0, 60)
    found = paired_shifts(ragged([values, np.sort(values), values[:5]]))
    assert 20 < found.n_eff[0] <= 60
    assert found.n_eff[1] < 12
    assert np.isnan(found.p_value).tolist() == [False, False, True]
    assert found.p_value[1] > found.p_value[0]
