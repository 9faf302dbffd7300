"""The inflation of the variance of dependent values: by cosines, by autocorrelation, and with history."""

import numpy as np
import pytest

from isochrone_collector.analysis.stats.arrays import Ragged, Reals, ragged
from isochrone_collector.analysis.stats.long_run_variance import (
    VarianceInflation,
    correlation_times,
    independent,
    inflation,
    inflation_of_flags,
    of_correlation,
)
from isochrone_collector.analysis.stats.shifts import paired_shifts

SEED = 20261122


def chained(draws: int, n: int, *, correlation: float, seed: int = SEED) -> Reals:
    """Return autoregressive series of order 1 with variance 1."""
    chance = np.random.default_rng(seed)
    values = chance.standard_normal((draws, n))
    for place in range(1, n):
        values[:, place] = correlation * values[:, place - 1] + np.sqrt(1 - correlation**2) * values[:, place]
    return values


def drifting(draws: int, n: int) -> Reals:
    noise = np.random.default_rng(SEED + 1).standard_normal((draws, n))
    return np.asarray(np.sqrt(0.8) * noise + np.sqrt(0.2) * chained(draws, n, correlation=0.97))


def rows(values: Reals) -> Ragged:
    draws, n = values.shape
    return Ragged(values=values.ravel(), offsets=np.arange(draws + 1) * n)


@pytest.mark.parametrize(("correlation", "ratio"), [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)])
def test_long_series_show_their_true_inflation(correlation: float, ratio: float) -> None:
    """The inflation of a chain is known: (1 + φ) / (1 - φ). The wider of two estimates is a little larger."""
    found = inflation(rows(chained(400, 2_000, correlation=correlation)))
    assert 0.95 * ratio < found.ratio.mean() < 1.25 * ratio


def test_slow_drift_below_noise_is_seen() -> None:
    """Drift of a fifth of the variance inflates that of a day's mean more than six times, though neighbours differ."""
    found = inflation(rows(drifting(400, 288)))
    assert np.median(found.ratio) > 4
    assert found.ratio.mean() > 6


@pytest.mark.parametrize("values", [[], [5.0], [5.0] * 30, [1.0, 2.0]])
def test_without_variation_nothing_is_inflated(values: list[float]) -> None:
    """Constant values are as good as independent ones, and short series cause no error."""
    found = inflation(ragged([np.array(values)]))
    assert np.isfinite(found.factor).all()
    if len(set(values)) < 2:
        assert found.factor.tolist() == [1.0]
    if values:
        assert correlation_times(np.array([values])).tolist() == [1.0]


def test_many_at_once_are_what_each_is_alone() -> None:
    """Series of any length, together, have the inflation and the correlation time that they have alone."""
    series = [drifting(1, n)[0] for n in (6, 7, 12, 30, 30, 111, 400)] + [np.full(40, 3.0)]
    alone = [inflation(ragged([values])) for values in series]
    together = inflation(ragged(series))
    assert together.ratio.tolist() == pytest.approx([float(one.ratio[0]) for one in alone], rel=1e-9)
    assert together.freedom.tolist() == pytest.approx([float(one.freedom[0]) for one in alone], rel=1e-9)
    chains = np.concatenate([chained(3, 80, correlation=phi) for phi in (0.0, 0.6, 0.95)])
    each = [float(correlation_times(row[np.newaxis])[0]) for row in chains]
    assert correlation_times(chains).tolist() == pytest.approx(each, rel=1e-12)


@pytest.mark.parametrize(("correlation", "tau"), [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)])
def test_long_series_show_their_true_correlation_time(correlation: float, tau: float) -> None:
    """The sum of the correlations of a chain is known, τ = (1 + φ) / (1 - φ); values that alternate have 1."""
    assert correlation_times(chained(10, 5_000, correlation=correlation)).mean() == pytest.approx(tau, rel=0.12)
    assert correlation_times(np.tile([1.0, -1.0], (1, 50))).tolist() == [1.0]


def test_a_correlation_time_worked_out_by_hand() -> None:
    """Two runs of eight have the factor of the formula; without inflation it is 1, and p-values follow the interval."""
    lags = [(16 - 3 * k) / (16 - k) for k in range(1, 8)]
    kept = [r for k, r in enumerate(lags) if all(earlier > 0.5 for earlier in lags[: k + 1])]
    expected = (1 + 2 * sum(kept)) / max(0.5, 1 - 2 * (len(kept) - sum(kept)) / 16)
    assert correlation_times(np.repeat([0.0, 1.0], 8)[np.newaxis])[0] == pytest.approx(expected)
    plain = independent(2)
    assert plain.factor.tolist() == [1.0, 1.0]
    assert plain.p_values(np.array([1.959964, 0.0])).tolist() == pytest.approx([0.05, 1.0], abs=1e-6)
    for time, n in ((1.0, 40.0), (4.0, 48.0), (9.0, 2_700.0)):
        found = of_correlation(np.array([time]), np.array([n]))
        assert found.p_values(1.959964 * found.factor) == pytest.approx(0.05, rel=1e-5)


def test_the_wider_of_two_is_taken_with_its_freedom() -> None:
    """A smaller ratio with few degrees of freedom may be the wider one."""
    few = VarianceInflation(ratio=np.array([1.5, 1.0]), freedom=np.array([2.0, 6.0]))
    many = VarianceInflation(ratio=np.array([2.0, 4.0]), freedom=np.array([100.0, 100.0]))
    wider = few.wider(many)
    assert wider.ratio.tolist() == [1.5, 4.0]
    assert wider.freedom.tolist() == [2.0, 100.0]


def test_history_never_narrows_an_interval() -> None:
    """Known drift between windows widens an interval; unknown history and none leave it as it is."""
    values = rows(drifting(3, 60))
    plain = paired_shifts(values)
    drift = VarianceInflation(ratio=np.array([0.2, np.nan, 0.0]), freedom=np.full(3, 50.0))
    told = paired_shifts(values, history=drift)
    wider = (told.high - told.low) / (plain.high - plain.low)
    assert wider[0] > 1.5
    assert wider[1:].tolist() == [1.0, 1.0]
    assert told.p_value[0] > plain.p_value[0]
    assert told.n_eff[0] < plain.n_eff[0]


def history(ratio: float, freedom: float = 9.5) -> VarianceInflation:
    """The history of one row: by default as many degrees of freedom as a week has of windows of a day."""
    return VarianceInflation(ratio=np.array([ratio]), freedom=np.array([freedom]))


def test_a_history_without_memory_narrows_nothing() -> None:
    """A week without movement leaves requests independent, and none at all is like none asked for."""
    assert history(0.0).of_counts(np.array([72])).tolist() == [72.0]
    assert inflation_of_flags(np.ones((1, 72), bool), history(0.0)).effective_n(72).tolist() == [72.0]
    tiny, small, large = (float(history(ratio).of_counts(np.array([72]))[0]) for ratio in (1e-6, 1e-2, 1.0))
    assert 71.9 < tiny < 72
    assert 30 < small < 60
    assert 1 <= large < 1.0001
    flags = np.random.default_rng(5).random((4, 100)) < 0.1
    told = inflation_of_flags(flags, VarianceInflation(ratio=np.full(4, np.nan), freedom=np.full(4, np.inf)))
    assert told.factor.tolist() == inflation_of_flags(flags).factor.tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 23, 24, 72])
def test_an_effective_number_is_between_one_and_all(n: int) -> None:
    """However strongly values depend on each other, they count as one independent value, and never as more than all."""
    trend = np.arange(n) >= n // 2
    for known in (None, history(0.0), history(50.0), history(float("nan"))):
        assert 1 <= float(inflation_of_flags(trend[np.newaxis], known).effective_n(n)[0]) <= n
