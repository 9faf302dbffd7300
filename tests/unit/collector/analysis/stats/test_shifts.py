"""Shifts, paired and unpaired: cases by hand, and the relation to the tests of Wilcoxon and of Mann and Whitney."""

import itertools

import numpy as np
import pytest
import scipy

from isochrone_collector.analysis.stats import shifts
from isochrone_collector.analysis.stats.arrays import Reals, ragged
from isochrone_collector.analysis.stats.long_run_variance import independent, of_correlation
from isochrone_collector.analysis.stats.shifts import (
    Shift,
    TwoSampleShift,
    interval_depth,
    p_values,
    paired_estimates,
    paired_shifts,
    signed_rank_tails,
    unpaired_shift,
)
from testdata.columns import present


@pytest.mark.parametrize("deviation_ms", [0.05, 0.2, 0.5, 2.0])
@pytest.mark.parametrize("n", [60, 288])
def test_ticks_of_a_clock_are_part_of_the_interval(deviation_ms: float, n: int) -> None:
    """Latencies in whole milliseconds that differ by a third of one: no interval contained it if they hardly vary."""
    chance = np.random.default_rng(n)
    levels = 20 + chance.random((200, 1))
    noise = deviation_ms * chance.standard_normal((2, 200, n))
    x, y = 1_000 * np.round(levels + noise[0]), 1_000 * np.round(levels + 0.3 + noise[1])
    paired = paired_shifts(ragged(list(y - x)))
    unpaired = [present(unpaired_shift(*sides)).shift for sides in zip(x, y, strict=True)]
    assert np.mean((paired.low <= 300) & (paired.high >= 300)) >= 0.9
    assert np.mean([present(one.low) <= 300 <= present(one.high) for one in unpaired]) >= 0.9


def shift_of(*differences: float) -> Shift:
    [found] = paired_shifts(ragged([np.array(differences)]), known=independent(1)).listed()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("differences", "estimate", "low", "high"),
    [
        ([5.0], 5.0, None, None),
        ([1.0, 3.0], 2.0, None, None),
        # Walsh averages 1 1.5 2 5.5 6 10: the middle ones are 2 and 5.5.
        ([1.0, 2.0, 10.0], 3.75, None, None),
        # Sorted Walsh averages of 0 1 4 9: 0 .5 1 2 2.5 4 4.5 5 6.5 9.
        ([9.0, 0.0, 4.0, 1.0], 3.25, None, None),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 3.0, None, None),
        # Six pairs: from the smallest to the largest difference (96.9 %).
        ([6.0, 1.0, 5.0, 2.0, 4.0, 3.0], 3.5, 1.0, 6.0),
        ([4_321.0] * 10, 4_321.0, 4_321.0, 4_321.0),
        ([4_321.0] * 600, 4_321.0, 4_321.0, 4_321.0),
        # By a clock that ticks milliseconds both values of a pair may be off by a half.
        ([4_000.0] * 10, 4_000.0, 3_000.0, 5_000.0),
        ([4_000.0] * 9 + [6_000.0], 4_000.0, 2_000.0, 6_000.0),
    ],
)
def test_shifts_done_by_hand(differences: list[float], estimate: float, low: float | None, high: float | None) -> None:
    """The estimate is the median of the Walsh averages; below six pairs there is no interval."""
    assert shift_of(*differences) == Shift(estimate=estimate, low=low, high=high)


@pytest.mark.parametrize("n", [6, 12, 30])
def test_the_interval_holds_what_wilcoxon_does_not_reject(n: int) -> None:
    """A shift inside the interval is not rejected at 5 % by Wilcoxon's exact test, and one outside is."""
    differences = np.random.default_rng(n).normal(3.0, 2.0, n)
    found = shift_of(*differences)
    rejected = {present(found.low): -1, present(found.high): 1}
    for bound, outside in rejected.items():
        for side in (-1e-6, 1e-6):
            p_value = scipy.stats.wilcoxon(differences - bound - side, method="exact").pvalue
            assert (p_value <= 0.05) == (side * outside > 0)


def test_many_pairs_take_little_memory_and_time() -> None:
    """Ten thousand pairs, which have fifty million Walsh averages, are estimated well."""
    found = shift_of(*np.random.default_rng(1).normal(10_000, 5_000, 10_000))
    assert present(found.low) < 10_000 < present(found.high) < present(found.low) + 300


def rows(lengths: list[int]) -> list[Reals]:
    chance = np.random.default_rng(sum(lengths))
    found = []
    for place, n in enumerate(lengths):
        values = chance.lognormal(10, 1, n) - 20_000
        kinds = (values, np.cumsum(values), np.round(values, -4), np.full(n, 4_000.0))
        found.append(kinds[place % len(kinds)])
    return found


@pytest.mark.parametrize(
    "lengths", [[0, 1, 5, 6, 7, 8, 9], [40] * 30, list(range(45, 60)), [0] * 3, [700, 700, 3, 700, 700], [111] * 99]
)
def test_many_at_once_are_what_each_is_alone(lengths: list[int]) -> None:
    """Rows together have the shifts that they have alone; an empty row has none."""
    own = rows(lengths)
    together, estimates = paired_shifts(ragged(own)), paired_estimates(ragged(own)).tolist()
    alone = [paired_shifts(ragged([row])) for row in own]
    for name in ("estimate", "low", "high", "n_eff", "p_value"):
        expected = [float(getattr(one, name)[0]) for one in alone]
        assert getattr(together, name).tolist() == pytest.approx(expected, rel=1e-12, abs=1e-6, nan_ok=True)
    assert estimates == pytest.approx(together.estimate.tolist(), rel=1e-12, abs=1e-6, nan_ok=True)
    assert [found is None for found in together.listed()] == [n == 0 for n in lengths]


def test_correlation_of_neighbours_widens_the_interval() -> None:
    """Runs leave the estimate, widen it by a factor, lower the effective number and raise the p-value; six at least."""
    values = np.random.default_rng(20261121).normal(0.1, 1.0, 60)
    found = paired_shifts(ragged([values, np.sort(values), values[:5]]))
    plain = shift_of(*values)
    assert found.estimate[1] == found.estimate[0] == plain.estimate
    factor = (found.high[1] - plain.estimate) / (present(plain.high) - plain.estimate)
    assert factor > 3
    assert (plain.estimate - found.low[1]) / (plain.estimate - present(plain.low)) == pytest.approx(factor)
    assert 20 < found.n_eff[0] <= 60
    assert found.n_eff[1] < 12
    assert np.isnan(found.p_value).tolist() == [False, False, True]
    assert found.p_value[1] > found.p_value[0]


def p_value(differences: list[float], *, tau: float = 1.0) -> float:
    series = ragged([np.array(differences)])
    return float(p_values(series, of_correlation(np.array([tau]), series.counts))[0])


@pytest.mark.parametrize(
    ("n", "depth"), [(5, None), (6, 1), (7, 3), (8, 4), (9, 6), (10, 9), (15, 26), (20, 53), (25, 90)]
)
def test_depths_are_the_tabled_critical_values(n: int, depth: int | None) -> None:
    """The depth is one more than the tabled two-sided 5 % critical value of the signed-rank test."""
    assert interval_depth(n) == depth


def test_the_distribution_is_that_of_all_sign_patterns() -> None:
    """Counting subsets agrees with listing all signs of five ranks; the normal one continues within one rank."""
    patterns = itertools.product((False, True), repeat=5)
    sums = [sum(rank for rank, sign in zip(range(1, 6), signs, strict=True) if sign) for signs in patterns]
    assert np.diff(signed_rank_tails(5) * 32, prepend=0).tolist() == [sums.count(total) for total in range(16)]
    n = shifts._MAX_EXACT_N + 1
    approximate = interval_depth(n)
    assert approximate is not None
    assert abs(approximate - int(np.searchsorted(signed_rank_tails(n), 0.025, side="right"))) <= 1


@pytest.mark.parametrize("n", [6, 13, 50, 51, 400])
@pytest.mark.parametrize("shift", [0.0, 0.4, 2.0])
def test_p_values_are_those_of_wilcoxon(n: int, shift: float) -> None:
    """Without ties the p-value of independent differences is that of the exact test, above fifty the normal one."""
    differences = np.random.default_rng(n).normal(shift if n <= 50 else shift / 10, 1.0, n)
    method = {"method": "exact"} if n <= 50 else {"method": "approx", "correction": True}
    assert p_value(differences.tolist()) == pytest.approx(scipy.stats.wilcoxon(differences, **method).pvalue, rel=1e-9)


def test_extreme_and_missing_p_values() -> None:
    """A zero counts half on either side; six of one sign have 2/64, and five have no p-value."""
    assert p_value([0.0] * 20) == p_value([0.0] * 100) == 1.0
    assert p_value([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 64)
    assert np.isnan(p_value([1.0] * 5))


@pytest.mark.parametrize("tau", [1.5, 4.0, 9.0])
def test_correlation_makes_evidence_weaker(tau: float) -> None:
    """The p-value of the same differences grows with their autocorrelation."""
    differences = np.random.default_rng(1).normal(0.6, 1.0, 60).tolist()
    assert p_value(differences) < p_value(differences, tau=tau) < p_value(differences, tau=2 * tau) <= 1.0


def unpaired(x: Reals, y: Reals) -> tuple[TwoSampleShift, float, float]:
    found = unpaired_shift(x, y, known=independent(2))
    assert found is not None
    return found, present(found.shift.low), present(found.shift.high)


def test_an_unpaired_shift_worked_out_by_hand() -> None:
    """The middle of 36 differences is 10, the interval leaves five out per side; ties count half; six at least."""
    x = np.array([0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    found, low, high = unpaired(x, x + 10)
    differences = np.sort(((x + 10)[:, None] - x).ravel())
    assert (found.shift.estimate, low, high) == (10.0, differences[5], differences[30])
    assert (found.prob_superiority, found.n_eff) == (1.0, 6.0)
    equal, *_ = unpaired(np.full(20, 5.0), np.full(20, 5.0))
    assert (equal.prob_superiority, equal.p_value, equal.shift.estimate) == (0.5, 1.0, 0.0)
    assert unpaired_shift(np.arange(5.0), np.arange(50.0)) is unpaired_shift(np.arange(50.0), np.arange(5.0)) is None


@pytest.mark.parametrize(("m", "n"), [(6, 6), (10, 25), (60, 40)])
def test_the_unpaired_interval_holds_what_mann_and_whitney_do_not_reject(m: int, n: int) -> None:
    """A shift inside the interval is not rejected by Mann and Whitney's test, and one outside is."""
    chance = np.random.default_rng(m + n)
    x, y = chance.normal(0, 1, m), chance.normal(2, 1, n)
    _, low, high = unpaired(x, y)
    for shift, rejected in ((low - 1e-6, True), (low + 1e-6, False), (high - 1e-6, False), (high + 1e-6, True)):
        p = scipy.stats.mannwhitneyu(y - shift, x, method="asymptotic", use_continuity=True).pvalue
        assert (p <= 0.05) == rejected


@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
def test_p_values_and_superiority_are_those_of_mann_and_whitney(shift: float) -> None:
    """U/mn is the probability of superiority, and the p-value is U's."""
    chance = np.random.default_rng(8)
    x, y = chance.normal(0, 1, 40), chance.normal(shift, 1, 30)
    (found, *_), expected = unpaired(x, y), scipy.stats.mannwhitneyu(y, x, method="asymptotic", use_continuity=True)
    assert found.prob_superiority == pytest.approx(expected.statistic / 1_200)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def test_correlation_on_either_side_widens_the_unpaired_interval() -> None:
    """An autocorrelated side has a smaller effective size and a wider interval."""
    chance = np.random.default_rng(9)
    x, y = chance.normal(0, 1, 100), chance.normal(1, 1, 100)
    (plain, low, _), wide = unpaired(x, y), unpaired_shift(np.sort(x), y)
    assert wide is not None
    assert (plain.n_eff, wide.shift.estimate) == (100, plain.shift.estimate)
    assert wide.n_eff < 20
    assert present(wide.shift.low) < low
    assert wide.p_value > plain.p_value
