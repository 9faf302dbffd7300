"""Shares with their Wilson intervals."""

import pytest
import scipy

from isochrone_collector.analysis.stats.binomial import wilson


@pytest.mark.parametrize(("count", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (1, 10), (37, 100), (9_999, 10_000)])
def test_intervals_are_wilsons(count: int, n: int) -> None:
    """The interval is the textbook's, and never leaves 0 to 1."""
    expected = scipy.stats.binomtest(count, n).proportion_ci(method="wilson")
    found = wilson(count, n)
    assert found is not None
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)
    assert (found.value, found.n) == (count / n, n)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_fewer_independent_trials_have_a_wider_interval() -> None:
    """A hundred trials that are as good as ten have the interval of ten, around the share of the hundred."""
    found, ten = wilson(30, 100, n_eff=10.0), wilson(3, 10)
    assert found is not None
    assert ten is not None
    assert (found.value, found.n, found.n_eff) == (0.3, 100, 10.0)
    assert (found.low, found.high) == pytest.approx((ten.low, ten.high))


def test_no_trials_have_no_share() -> None:
    """Without trials there is no proportion."""
    assert wilson(0, 0) is None


def test_none_of_few_may_still_be_many() -> None:
    """No failure in ten probes leaves room for more than a quarter of failures."""
    found = wilson(0, 10)
    assert found is not None
    assert found.low == 0.0
    assert found.high == pytest.approx(0.2775, abs=1e-4)
