"""The hourly levels of a week, and what they say of the level of a window."""

from collections.abc import Sequence

import numpy as np
import pytest

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.history import (
    HOURS,
    NO_HISTORY,
    SHARES,
    History,
    Levels,
    SeriesLevels,
    above_quantile,
    exceedances,
    medians,
    nearest_share,
)
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_wire.answers import Metric
from isochrone_wire.durations import HOUR_US


def chained(rows: int, correlation: float, *, seed: int = 1, hours: int = HOURS) -> Reals:
    """Return hourly levels that keep that share of the hour before, with variance 1."""
    chance = np.random.default_rng(seed)
    values = chance.standard_normal((rows, hours + 200))
    for place in range(1, hours + 200):
        values[:, place] = correlation * values[:, place - 1] + np.sqrt(1 - correlation**2) * values[:, place]
    return values[:, 200:]


def of(values: Reals, noise: float = 0.0) -> Levels:
    return Levels(values=values, noise=np.full(len(values), noise))


@pytest.mark.parametrize("hours", [1, 3, 6, 24])
def test_windows_vary_as_their_length_says(hours: int) -> None:
    """Independent hours vary as 1/w, and hours that keep 0.9 of the one before much more."""
    rows = 600
    wanted = np.full(rows, float(hours))
    independent = of(chained(rows, 0.0)).variances(wanted)
    assert independent.ratio.mean() == pytest.approx(1 / hours, rel=0.1)
    lags = np.arange(1, hours)
    truth = (1 + 2 * ((1 - lags / hours) * 0.9**lags).sum()) / hours
    assert of(chained(rows, 0.9)).variances(wanted).ratio.mean() == pytest.approx(truth, rel=0.2)
    assert independent.freedom[0] == pytest.approx(max(1.5 * HOURS / hours - 1, 1))


def test_windows_shorter_than_an_hour_vary_as_an_hour() -> None:
    """A level does not vary less because a window is short, and a window of days varies less in proportion."""
    levels = of(chained(400, 0.0))
    assert levels.variances(np.full(400, 0.1)).ratio.tolist() == levels.variances(np.full(400, 1.0)).ratio.tolist()
    longest = levels.variances(np.full(400, HOURS / 5 + 1)).ratio.mean()
    assert levels.variances(np.full(400, 2.0 * HOURS)).ratio.mean() == pytest.approx(longest / 10, rel=0.15)


@pytest.mark.parametrize(("days", "memory_hours"), [(2, 24), (7, 24), (30, 24), (30, 48), (30, 6), (30, 0.1)])
def test_a_week_covers_the_level_of_longer_windows(days: int, memory_hours: float) -> None:
    """A drift that lasts for days moves the mean of a month more than 33 hours show: one day was covered in 77 %."""
    levels = chained(2_000, float(np.exp(-1 / memory_hours)), hours=720)
    found = of(levels[:, -HOURS:]).variances(np.full(2_000, 24.0 * days))
    held = np.abs(levels[:, -24 * days :].mean(axis=1)) <= 1.96 * found.factor
    assert held.mean() >= 0.92


def test_noise_within_the_hours_is_taken_off() -> None:
    """What the window shows itself is not counted twice, and nothing becomes negative."""
    levels = chained(400, 0.0)
    found = of(levels, noise=1.0).variances(np.full(400, 6.0)).ratio
    assert found.min() == 0.0
    assert found.mean() < 0.06


@pytest.mark.parametrize("known", [0, 47])
def test_two_days_are_needed(known: int) -> None:
    """With fewer than 48 known hours the variance is unknown; a series without drift has variance 0."""
    values = chained(1, 0.5)
    values[:, known:] = np.nan
    assert np.isnan(of(values).variances(np.array([5.0])).ratio).all()
    assert of(np.full((1, HOURS), 7.0)).variances(np.array([5.0])).ratio.tolist() == [0.0]


def test_gaps_are_left_out() -> None:
    """Unknown hours change the variance little."""
    values = chained(400, 0.8)
    gaps = np.where(np.random.default_rng(2).random(values.shape) < 0.2, np.nan, values)
    whole, partly = (of(own).variances(np.full(400, 6.0)).ratio.mean() for own in (values, gaps))
    assert partly == pytest.approx(whole, rel=0.15)


def test_series_are_found_by_name_and_cut_at_a_change() -> None:
    """Levels come in the order asked for; unknown series, and hours before a change, are unknown."""
    kept = SeriesLevels(
        series={(1, "sg"): 0, (1, "us"): 1}, from_at=np.array([0, HOUR_US]), levels=of(chained(2, 0.0), noise=0.5)
    )
    found = kept.of([(1, "us"), (2, "us"), (1, "sg")], [0, 0, 10 * HOUR_US])
    assert np.isfinite(found.values).sum(axis=1).tolist() == [HOURS, 0, HOURS - 10]
    assert found.noise.tolist() == [0.5, 0.0, 0.5]
    assert found.minus(found).values[0].tolist() == [0.0] * HOURS
    unknown = SeriesLevels(series={}, from_at=np.empty(0, np.int64), levels=of(np.empty((0, HOURS))))
    assert np.isnan(unknown.of([(1, "us")], [0]).values).all()


def hourly(values: Reals) -> histogram.Histograms:
    return histogram.merge(map(histogram.pack, values), [b""] * len(values), np.arange(len(values)), of=len(values))


def test_medians_follow_a_level_within_a_bucket() -> None:
    """A rise within a bucket is seen in the medians; an empty hour has no level, neither a median nor a share."""
    chance = np.random.default_rng(3)
    values = 300_000 * np.exp(0.1 * chance.standard_normal((HOURS, 400)))
    values[HOURS // 2 :] *= 1.005
    levels, noise = medians(hourly(values))
    rise = levels[HOURS // 2 :].mean() / levels[: HOURS // 2].mean()
    assert rise == pytest.approx(1.005, abs=0.0015)
    assert noise == pytest.approx(np.pi / 2 * (0.1 * 300_000) ** 2 / 400, rel=0.3)
    groups = histogram.merge([histogram.pack([1.0] * 8), b""], [b"", b""], [0, 1], of=2)
    assert np.isnan(medians(groups)[0]).tolist() == [False, True]
    assert np.isnan(exceedances(groups, 1.0)[0]).tolist() == [False, True]
    assert medians(histogram.merge([], [], [], of=2))[1] == 0.0


def test_exceedances_show_when_the_slow_values_came() -> None:
    """With all slow values in one quarter of the hours, their shares are there; a censored one exceeds all."""
    values = np.full((HOURS, 100), 300_000.0)
    values[: HOURS // 4, :40] = 900_000.0
    shares, _ = exceedances(hourly(values), 400_000.0)
    assert shares.tolist() == [0.4] * (HOURS // 4) + [0.0] * (HOURS - HOURS // 4)
    cut = histogram.merge([histogram.pack([1.0] * 9)], [histogram.pack([0.5])], [0], of=1)
    assert exceedances(cut, 2.0)[0].tolist() == [0.1]


def told(values: list[float], shares: Sequence[float] = SHARES) -> History:
    """A history in which the quantiles of TTFT of the week have these values, and such a share is below them."""
    return History(
        levels={
            above_quantile(Metric.TTFT, share): SeriesLevels(
                series={(1, "us"): 0},
                from_at=np.zeros(1, np.int64),
                levels=of(np.full((1, HOURS), 1 - below)),
                quantile=np.array([value]),
            )
            for share, value, below in zip(SHARES, values, shares, strict=True)
        }
    )


@pytest.mark.parametrize(
    ("limit", "near"),
    [(50, -1), (71, 0), (100, 0), (140, 0), (142, 1), (400, 2), (550, 2), (800, 3), (1_131, 3), (1_132, -1), (9e9, -1)],
)
def test_the_quantile_that_is_near_a_limit(limit: float, near: int) -> None:
    """In logarithms the nearest of p50, p90, p95 and p99; none if the limit is too far outside of them."""
    found = told([100.0, 200.0, 400.0, 800.0]).nearest(Metric.TTFT, [(1, "us"), (2, "us")], limit)
    assert found.tolist() == [near, -1]


def test_no_quantile_is_near_without_its_value() -> None:
    """Without a value none is near, and equal quantiles are near nothing but themselves."""
    unknown = told([100.0, 200.0, 400.0, float("nan")])
    assert unknown.nearest(Metric.TTFT, [(1, "us")], 200.0).tolist() == [-1]
    assert NO_HISTORY.nearest(Metric.TTFT, [(1, "us")], 200.0).tolist() == [-1]
    constant = told([100.0] * 4)
    assert [constant.nearest(Metric.TTFT, [(1, "us")], limit).tolist() for limit in (100.0, 101.0)] == [[0], [-1]]


@pytest.mark.parametrize(("share", "had", "unknown"), [(0.05, 15, 5), (0.05, 9, 0), (0.5, 15, 0)])
def test_a_week_without_the_episodes_of_the_others_is_unknown(share: float, had: int, unknown: int) -> None:
    """If most series had an episode others may be lucky, if few, they are steady; frequent values have none."""
    values = np.full((20, HOURS), share)
    values[:had, 30:33] = 1.0
    keys = [(row, "us") for row in range(20)]
    series = SeriesLevels(
        series={key: row for row, key in enumerate(keys)}, from_at=np.zeros(20, np.int64), levels=of(values)
    )
    quantity = above_quantile(Metric.TTFT, 0.95)
    found = History(levels={quantity: series}).of(quantity, keys, np.full(20, 24.0)).ratio
    assert np.flatnonzero(np.isnan(found)).tolist() == list(range(20 - unknown, 20))


def test_a_repeated_quantile_with_nothing_above_it_says_nothing() -> None:
    """If 7 % of the values are the same late one, the p90 shows when they came, though the limit is nearer to it."""
    found = told([350.0, 350.0, 1_050.0, 1_050.0], [0.93, 0.93, 1.0, 1.0])
    assert found.nearest(Metric.TTFT, [(1, "us")], 700.0).tolist() == [1]


@pytest.mark.parametrize(("share", "place"), [(0.0, -1), (0.3, 0), (0.8, 1), (0.93, 2), (0.999, 3), (1.0, -1)])
def test_the_quantile_that_is_near_a_share(share: float, place: int) -> None:
    """On the scale of log odds; all and nothing are near none."""
    assert nearest_share(share) == place
