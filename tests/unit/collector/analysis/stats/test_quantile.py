"""Quantiles: nearest rank, coverage of the intervals, and no interval if n is too small."""

import numpy as np
import pytest
from scipy.stats import binom

from isochrone_collector.analysis.stats.quantile import interval_ranks, quantile
from isochrone_wire.answers import Quantile


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7.0], 0.5, 7.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        (list(range(1, 101)), 0.95, 95.0),
        (list(range(1, 101)), 0.99, 99.0),
        (list(range(1, 11)), 0.9, 9.0),
        (list(range(1, 11)), 0.91, 10.0),
    ],
)
def test_nearest_rank(values: list[float], share: float, expected: float) -> None:
    """The value has rank ceil(p·n): always a value that was measured, never one in between."""
    found = quantile(values, share)
    assert found is not None
    assert found.value == expected


def test_nothing_has_no_quantile() -> None:
    """Without values there is no quantile."""
    assert quantile([], 0.5) is None


@pytest.mark.parametrize(("share", "needed"), [(0.5, 6), (0.9, 29), (0.95, 59), (0.99, 299), (0.1, 29)])
def test_small_samples_have_no_bounds(share: float, needed: int) -> None:
    """A 95 % interval needs a minimum of values; with one fewer there is none."""
    assert interval_ranks(needed - 1, share) is None
    assert interval_ranks(needed, share) is not None


@pytest.mark.parametrize(("n", "ranks"), [(6, (1, 6)), (10, (2, 9)), (20, (6, 15)), (100, (40, 61))])
def test_median_intervals_are_the_tabled_ones(n: int, ranks: tuple[int, int]) -> None:
    """The ranks of the median's interval are those of the sign test's tables."""
    assert interval_ranks(n, 0.5) == ranks


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.95, 0.99])
def test_ranks_reach_the_confidence(share: float) -> None:
    """P(l <= B < u) is at least 95 %, and one rank further in on either side would break a half of the error."""
    for n in (6, 29, 59, 60, 100, 299, 300, 1_000, 5_000):
        ranks = interval_ranks(n, share)
        if ranks is None:
            continue
        low, high = ranks
        assert 1 <= low < high <= n
        assert binom.cdf(high - 1, n, share) - binom.cdf(low - 1, n, share) >= 0.95 - 1e-9
        if n >= 1_000:
            assert binom.cdf(low, n, share) > 0.025
            assert binom.sf(high - 2, n, share) > 0.025


def test_censored_values_lie_above_all_others() -> None:
    """A probe that timed out raises the upper quantiles by its limit and leaves the lower ones where they are."""
    fast = [100.0] * 90
    found = {share: quantile(fast, share, censored=[5_000.0] * 10) for share in (0.5, 0.95)}
    assert found[0.5] == Quantile(value=100.0, low=100.0, high=100.0)
    assert found[0.95] is not None
    assert found[0.95].value == 5_000.0


def test_a_small_limit_is_still_a_large_value() -> None:
    """A probe cut off at 10 took longer than any that came through, also than one that took 60."""
    found = quantile([60.0], 0.99, censored=[10.0])
    assert found is not None
    assert found.value == 60.0
    assert quantile([], 0.5, censored=[10.0, 20.0]) == Quantile(value=10.0)


def test_intervals_cover_the_truth() -> None:
    """Over many drawn samples the interval of p90 holds the true p90 in at least 95 % of them, give or take chance."""
    chance = np.random.default_rng(20261121)
    truth = -np.log(0.1)
    draws = chance.exponential(size=(2_000, 80))
    held = 0
    for values in draws:
        found = quantile(values.tolist(), 0.9)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert 0.94 <= held / len(draws) <= 0.99
