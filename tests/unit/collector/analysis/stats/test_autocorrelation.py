"""Correlation times."""

import numpy as np
import pytest

from isochrone_collector.analysis.stats.arrays import Reals, mean_ranks, ragged
from isochrone_collector.analysis.stats.long_run_variance import correlation_time, times_of_ranks


def chained(n: int, *, correlation: float, seed: int) -> Reals:
    """Return an autoregressive series of order 1."""
    chance = np.random.default_rng(seed)
    values = chance.normal(0, 1, n)
    for place in range(1, n):
        values[place] += correlation * values[place - 1]
    return values


@pytest.mark.parametrize(("correlation", "tau"), [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)])
def test_long_series_show_their_true_correlation_time(correlation: float, tau: float) -> None:
    """The sum of the correlations of a chain is known: τ = (1 + φ) / (1 - φ)."""
    found = np.mean([correlation_time(chained(5_000, correlation=correlation, seed=seed)) for seed in range(10)])
    assert found == pytest.approx(tau, rel=0.12)


@pytest.mark.parametrize("values", [[], [5.0], [5.0] * 30, [1.0, 2.0]])
def test_nothing_to_see_is_no_likeness(values: list[float]) -> None:
    """Without values, or with equal ones, τ is 1."""
    assert correlation_time(np.array(values, dtype=np.float64)) == 1.0


def test_values_that_alternate_are_worth_no_more_than_they_are() -> None:
    """A correlation below zero never makes n rounds count as more than n."""
    assert correlation_time(np.tile([1.0, -1.0], 50)) == 1.0


def test_worked_out_by_hand() -> None:
    """Sixteen values in two runs of eight: r_k = (16 - 3k) / (16 - k), and those before the first that is not above
    2/√16 count.
    """
    values = np.repeat([0.0, 1.0], 8)
    lags = [(16 - 3 * k) / (16 - k) for k in range(1, 8)]
    kept = [r for k, r in enumerate(lags) if all(earlier > 0.5 for earlier in lags[: k + 1])]
    total = sum(kept)
    assert correlation_time(values) == pytest.approx((1 + 2 * total) / max(0.5, 1 - 2 * (len(kept) - total) / 16))


def test_many_at_once_are_what_each_is_by_itself() -> None:
    """Series of any length, together, have the correlation times they have alone."""
    series = [chained(n, correlation=phi, seed=n) for n in (0, 1, 7, 30, 30, 111, 111, 400) for phi in (0.0, 0.6, 0.95)]
    series += [np.full(40, 3.0), np.arange(50.0), np.round(chained(80, correlation=0.7, seed=1))]
    expected = [correlation_time(values) for values in series]
    found = np.ones(len(series))
    for places, rows in ragged(series).portions(cells=1_000):
        found[places] = times_of_ranks(mean_ranks(rows) - (rows.shape[1] + 1) / 2)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
