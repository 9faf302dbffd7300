"""Quantiles and proportions: nearest rank, coverage of the intervals, and no interval if n is too small."""

from collections.abc import Sequence

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from bench.truth.series import autoregressive
from isochrone_collector.analysis.stats.arrays import Reals, ragged
from isochrone_collector.analysis.stats.binomial import Quantiles, dependent_ranks, interval_ranks, wilson
from isochrone_collector.analysis.stats.binomial import quantiles as several_quantiles
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Quantile
from testdata.columns import independent_quantile, present, values_of
from testdata.series import alternating, steps, swinging

VALUES = st.lists(st.integers(1, 40).map(float), max_size=90)


def independent_of(rows: int) -> VarianceInflation:
    """A history without any memory."""
    return VarianceInflation(ratio=np.zeros(rows), freedom=np.full(rows, np.inf))


def quantiles(rows: Reals, share: float, history: VarianceInflation | None = None) -> Quantiles:
    series = ragged(list(rows))
    return several_quantiles(series, {share: history}, np.zeros(len(series.values), bool))[share]


def quantile(values: Sequence[float], share: float, *, censored: Sequence[float] = ()) -> Quantile | None:
    """The quantile of few values whose history has no memory."""
    return values_of(values, censored).quantile(share, independent_of(1))


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
    assert quantile([], share) is None


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
        assert scipy.stats.binom.cdf(high - 1, n, share) - scipy.stats.binom.cdf(low - 1, n, share) >= 0.95 - 1e-9
        if n >= 1_000:
            assert scipy.stats.binom.cdf(low, n, share) > 0.025
            assert scipy.stats.binom.sf(high - 2, n, share) > 0.025


def test_fewer_independent_values_widen_the_ranks() -> None:
    """A hundred values that are as good as 24 have the interval of 24, stretched over all of them."""
    assert dependent_ranks(100, 0.5, 100.0) == interval_ranks(100, 0.5)
    assert interval_ranks(24, 0.5) == (7, 18)
    assert dependent_ranks(100, 0.5, 24.9) == (28, 73)
    assert dependent_ranks(100, 0.5, 5.9) is None
    assert dependent_ranks(100, 0.95, 24.0) == (80, 0)


def test_censored_values_lie_above_all_others() -> None:
    """A probe that timed out raises the upper quantiles by its limit and leaves the lower ones where they are."""
    found = {share: quantile([100.0] * 90, share, censored=[5_000.0] * 10) for share in (0.5, 0.95)}
    assert found[0.5] is not None
    assert found[0.95] is not None
    assert (found[0.5].value, found[0.5].low, found[0.5].high, found[0.95].value) == (100.0, 100.0, 100.0, 5_000.0)


def test_a_small_limit_is_still_a_large_value() -> None:
    """A probe cut off at 10 took longer than any that came through, also than one that took 60."""
    for known, limits, share, value in (([60.0], [10.0], 0.99, 60.0), ([], [10.0, 20.0], 0.5, 10.0)):
        found = quantile(known, share, censored=limits)
        assert found is not None
        assert (found.value, found.high) == (value, None)


@given(VALUES, VALUES, st.sampled_from((0.5, 0.9, 0.95)), st.integers(6, 90))
def test_many_rows_at_once(values: list[float], limits: list[float], share: float, others: int) -> None:
    """Rows of different lengths, with limits and ties, have the quantile that sorting them gives."""
    own = values_of(values, limits)
    series = ragged([own.values, np.arange(float(others)), np.empty(0)])
    censored = np.concatenate([own.censored, np.zeros(others, bool)])
    found = several_quantiles(series, {share: independent_of(3)}, censored)[share].listed()
    true = independent_quantile(values, share, censored=limits)
    assert found[2] is None
    assert (found[0] is None) == (true is None)
    if found[0] is not None and true is not None:
        assert found[0].value == true.value
        if found[0].n_eff == own.n and len(set(values)) == len(values):
            assert (found[0].low, found[0].high) == (true.low, true.high)
        elif found[0].high is not None:
            assert present(found[0].low) <= present(true.low)


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_a_quantile_that_no_week_proves_is_at_least_its_lower_bound(share: float) -> None:
    """A window without hour-long episodes has a lower bound only; windows within one have few independent values."""
    chance = np.random.default_rng(37)
    slow = np.repeat(chance.random((400, 400)) < 0.15, 60, axis=1)[:, :288]
    slow = np.array([np.roll(row, chance.integers(60)) for row in slow])
    found = quantiles(chance.standard_normal(slow.shape) + 6 * slow, share)
    truth = 6 + float(scipy.stats.norm.ppf(1 - (1 - share) / 0.15))
    assert np.isnan(found.high).all()
    assert np.mean(found.low <= truth) >= 0.95


def test_a_week_that_shows_memory_leaves_a_lower_bound() -> None:
    """Twenty independent values do not bound a p95 from above, but from below."""
    history = VarianceInflation(ratio=np.full(1, 0.05), freedom=np.full(1, np.inf))
    found = quantiles(np.random.default_rng(2).permutation(288).astype(float)[np.newaxis], 0.95, history)
    assert np.isnan(found.high[0])
    assert 200 < found.low[0] < 288 * 0.95


@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize("deviation_ms", [0.05, 0.2, 0.5, 2.0])
def test_ticks_of_a_clock_are_part_of_the_interval(deviation_ms: float, share: float) -> None:
    """If latencies vary by less than the ticks of their clock, all order statistics are the same tick: none held."""
    chance = np.random.default_rng(11)
    levels = 20 + chance.random((200, 1))
    ticks = np.floor(levels + deviation_ms * chance.standard_normal((200, 288)))
    found = quantiles(1_000 * ticks, share, independent_of(200))
    truth = 1_000 * (levels[:, 0] + deviation_ms * scipy.stats.norm.ppf(share))
    assert np.mean((found.low <= truth) & (truth <= found.high)) >= 0.88


def known_and_held(found: Quantiles, truth: float) -> tuple[float, float]:
    """The share of rows with an interval, and the share of these that hold the truth."""
    known = ~np.isnan(found.high)
    return float(known.mean()), float(((found.low <= truth) & (truth <= found.high))[known].mean())


def test_intervals_cover_the_truth() -> None:
    """Over many drawn samples the interval of p90 holds the true p90 in at least 95 %, if a week shows no memory."""
    draws = np.random.default_rng(20261121).exponential(size=(2_000, 80))
    known, held = known_and_held(quantiles(draws, 0.9, independent_of(2_000)), -np.log(0.1))
    assert known > 0.9
    assert held >= 0.95


@pytest.mark.parametrize(("correlation", "least"), [(0.5, 0.95), (0.8, 0.94)])
def test_values_that_follow_their_neighbours_have_wider_intervals(correlation: float, least: float) -> None:
    """With a correlation of 0.8 the median of 288 values was covered in 60 %, when they counted as independent."""
    series = autoregressive(np.random.default_rng(8), 600, 288, correlation)
    _, held = known_and_held(quantiles(series, 0.5), 0.0)
    assert held >= least


def test_the_past_week_widens_what_the_window_does_not_show() -> None:
    """A level that wanders from window to window by as much as a tenth of a value's variance is ten values at most."""
    noise = np.random.default_rng(3).standard_normal((50, 288))
    history = VarianceInflation(ratio=np.full(50, 0.1), freedom=np.full(50, np.inf))
    told, alone = (quantiles(noise, 0.5, known) for known in (history, None))
    assert told.n_eff.max() <= 10
    assert alone.n_eff.min() > 60
    assert (told.low < alone.low).all()


@pytest.mark.parametrize("n", [1, 5, 6, 12, 15])
def test_few_values_have_no_interval_by_themselves(n: int) -> None:
    """Below sixteen values nothing shows whether they depend on each other; a week that says they do not is enough."""
    values = np.random.default_rng(n).standard_normal((1, n))
    assert np.isnan(quantiles(values, 0.5).low).all()
    assert bool(np.isnan(quantiles(values, 0.5, independent_of(1)).low)[0]) == (n < 6)


@pytest.mark.parametrize(
    ("values", "most"),
    [
        (np.full(288, 7.0), 288.0),
        (np.repeat([100.0, 200.0], 144), 10.0),
        (steps(288), 288.0),
        (swinging(576), 12.0),
        (alternating(288), 288.0 / 1.5),
        (np.arange(24.0), 6.0),
        (np.arange(2.0), 2.0),
    ],
    ids=["constant", "two levels", "a change five rounds ago", "day and night", "alternating", "a trend", "two"],
)
def test_bad_input_is_never_worth_more_than_it_is(values: Reals, most: float) -> None:
    """Constants and ties are bounded; levels, swings and trends count little, alternating values as independent."""
    found = quantiles(values[np.newaxis], 0.5)
    assert 1 <= found.n_eff[0] <= most
    if not np.isnan(found.low[0]):
        assert found.low[0] <= found.value[0] <= found.high[0]


def test_half_the_values_censored() -> None:
    """If half of the requests hang in turn, the median is known and its upper bound is the limit."""
    found = values_of([100.0] * 150, [60_000.0] * 149).quantile(0.5)
    assert found is not None
    assert (found.value, found.low, found.high) == (100.0, 100.0, 60_000.0)


@pytest.mark.parametrize(("count", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (1, 10), (37, 100), (9_999, 10_000)])
def test_intervals_of_proportions_are_wilsons(count: int, n: int) -> None:
    """The interval is the textbook's, and never leaves 0 to 1; without trials there is no proportion."""
    expected, found = scipy.stats.binomtest(count, n).proportion_ci(method="wilson"), wilson(count, n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.value, found.n) == (count / n, n)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert wilson(0, 0) is None


def test_fewer_independent_trials_have_a_wider_interval() -> None:
    """A hundred trials that are as good as ten have the interval of ten, around the share of the hundred."""
    found, ten = wilson(30, 100, n_eff=10.0), wilson(3, 10)
    assert found is not None
    assert ten is not None
    assert (found.value, found.n, found.n_eff) == (0.3, 100, 10.0)
    assert (found.low, found.high) == pytest.approx((ten.low, ten.high))
