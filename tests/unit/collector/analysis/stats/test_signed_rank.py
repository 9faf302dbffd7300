"""The signed-rank statistic: tables, all sign patterns, and the p-values of Wilcoxon's test."""

import itertools

import numpy as np
import pytest
import scipy

from isochrone_collector.analysis.stats import shifts
from isochrone_collector.analysis.stats.arrays import ragged
from isochrone_collector.analysis.stats.long_run_variance import of_correlation
from isochrone_collector.analysis.stats.shifts import interval_depth, p_values, signed_rank_counts


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
    """Counting subsets agrees with writing down every pattern of signs of five ranks."""
    patterns = itertools.product((False, True), repeat=5)
    sums = [sum(rank for rank, sign in zip(range(1, 6), signs, strict=True) if sign) for signs in patterns]
    assert signed_rank_counts(5).tolist() == [sums.count(total) for total in range(16)]


def test_normal_and_exact_depths_meet() -> None:
    """Where the exact distribution ends, the normal one continues within one rank."""
    n = shifts._MAX_EXACT_N + 1
    tails = np.cumsum(signed_rank_counts(n)) / 2.0**n
    exact = int(np.searchsorted(tails, 0.025, side="right"))
    approximate = interval_depth(n)
    assert approximate is not None
    assert abs(approximate - exact) <= 1


@pytest.mark.parametrize("n", [6, 13, 50])
@pytest.mark.parametrize("shift", [0.0, 0.4, 2.0])
def test_p_values_are_those_of_wilcoxon(n: int, shift: float) -> None:
    """Of independent differences without ties the p-value is that of the exact test."""
    differences = np.random.default_rng(n).normal(shift, 1.0, n)
    exact = scipy.stats.wilcoxon(differences, method="exact").pvalue
    assert p_value(differences.tolist()) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("n", [51, 400])
def test_large_p_values_are_the_normal_ones(n: int) -> None:
    """Above fifty the p-value is that of the normal approximation with continuity correction."""
    differences = np.random.default_rng(n).normal(0.1, 1.0, n)
    normal = scipy.stats.wilcoxon(differences, method="approx", correction=True).pvalue
    assert p_value(differences.tolist()) == pytest.approx(normal, rel=1e-9)


def test_differences_that_are_all_zero_are_no_evidence() -> None:
    """A zero counts half on either side, so that no difference at all gives a p-value of 1."""
    assert p_value([0.0] * 20) == 1.0
    assert p_value([0.0] * 100) == 1.0


@pytest.mark.parametrize("tau", [1.5, 4.0, 9.0])
def test_likeness_makes_evidence_weaker(tau: float) -> None:
    """The p-value of the same differences grows with their autocorrelation."""
    differences = np.random.default_rng(1).normal(0.6, 1.0, 60).tolist()
    assert p_value(differences) < p_value(differences, tau=tau) < p_value(differences, tau=2 * tau) <= 1.0


def test_few_rounds_have_no_p_value() -> None:
    """Below six rounds, where there is no interval, there is no p-value either."""
    assert np.isnan(p_value([1.0] * 5))
    assert p_value([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 64)
