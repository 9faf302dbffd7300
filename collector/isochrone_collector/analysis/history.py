"""Hourly levels of series over a week: how far the level of a window may be from that of the long run.

The level of a window of w hours varies around the long run as the levels of such windows of the past week do: their
variance is that of all overlapping windows of w hours around the mean of the week (overlapping batch means; M. S.
Meketon and B. Schmeiser, Proc. Winter Simulation Conf. (1984) 227-230), with about 1.5·N/w degrees of freedom from N
hours. What the noise within the hours contributes is taken off, because the window itself shows that. Windows longer
than a fifth of the hours are few: their variance is the long-run variance of the hours, divided by their length. It is
estimated by the cosines of `stats.long_run_variance` whose period is at least the window, six at most and two at least:
faster ones do not see drift that lasts for days.

An hour's level is the median of its values, the share of its values above a quantile of the week, or the share of its
requests that succeeded. From a share, `History` knows how much more a count in a window varies than one of independent
requests. Requests within a limit vary as those above the quantile of the week that is near the limit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log, nan, pi

import numpy as np

from isochrone_collector.analysis.distribution import outcome_counts
from isochrone_collector.analysis.histogram import Histograms, merge
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals, ragged
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation, of_cosines
from isochrone_wire.answers import Metric
from isochrone_wire.durations import HOUR_US

Quantity = tuple[str, str]
"""A metric, and the kind of its level."""

HOURS = 168
"""The hours of a history."""

SUCCESS: Quantity = ("success", "share")
"""The share of requests that succeed, among those sent and not throttled."""

SHARES = (0.5, 0.9, 0.95, 0.99)
"""The quantiles whose exceedances have a history."""

_LEAST_HOURS = 48
_LONGEST_SHARE = 5
_MEDIAN = "median"
_PER_WINDOW = 1.5
_MOST_COSINES = 6
_MANY_SERIES = 20
_MOSTLY, _RARELY = 0.75, 0.2
# Of drift with a memory of 48 of 168 hours, cosine j has 1 / (1 + (π·j/3.5)²) of the long-run variance: its spectrum
# there by that at frequency 0. The variance by the slowest two is multiplied so that it holds for such a drift.
_DAYS_LONG = 2 / sum(1 / (1 + (pi * cosine / 3.5) ** 2) for cosine in (1, 2))
_Z = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The hourly levels of series, NaN for unknown hours, and the variance that the noise within an hour gives them."""

    values: Reals
    noise: Reals

    def minus(self, other: "Levels") -> "Levels":
        """Return the levels of the differences between the series of both."""
        return Levels(values=self.values - other.values, noise=self.noise + other.noise)

    def averaged(self, group: Integers, *, rows: int) -> "Levels":
        """Return the mean around its own level of the series of each group, from 0 to below `rows`."""
        known = np.isfinite(self.values)
        around = np.where(known, self.values - _row_means(self.values)[:, None], 0.0)
        sums, counts = np.zeros((2, rows, self.values.shape[1]))
        np.add.at(sums, group, around)
        np.add.at(counts, group, known)
        noise = np.bincount(group, weights=self.noise, minlength=rows) / np.bincount(group, minlength=rows) ** 2
        return Levels(values=np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0), noise=noise)

    def where(self, known: Flags) -> "Levels":
        """Return only these hours."""
        return replace(self, values=np.where(known, self.values, np.nan))

    def variances(self, hours: Reals) -> VarianceInflation:
        """Return the variance of the level of windows of so many hours, beyond the noise; NaN below 48 known hours."""
        count = np.isfinite(self.values).sum(axis=1)
        lengths = np.maximum(np.rint(np.nan_to_num(hours)), 1).astype(np.int64)
        found, freedom = np.full(len(hours), np.nan), np.maximum(_PER_WINDOW * count / lengths - 1, 1.0)
        enough, is_long = count >= _LEAST_HOURS, lengths * _LONGEST_SHARE > count
        for length in np.unique(lengths[enough & ~is_long]).tolist():
            rows = np.flatnonzero(enough & (lengths == length))
            found[rows] = _around_mean(self.values[rows], length)
        cosines = (2 * count // lengths).clip(2, _MOST_COSINES)
        for terms in np.unique(cosines[enough & is_long]).tolist():
            rows = np.flatnonzero(enough & is_long & (cosines == terms))
            found[rows] = _DAYS_LONG * _long_run(self.values[rows], terms) / hours[rows]
            freedom[rows] = terms
        noise = np.where(is_long, 0.0, self.noise / np.maximum(hours, 1.0))
        return VarianceInflation(ratio=np.maximum(found - noise, 0.0), freedom=freedom)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesLevels:
    """The levels of some series, the beginning of each, and the quantile of the week that they are shares above."""

    series: Mapping[tuple[int, str], int]
    from_at: Integers
    levels: Levels
    quantile: Reals | None = None

    def of(self, wanted: Sequence[tuple[int, str]], since_at: Sequence[int]) -> Levels:
        """Return the levels of series in this order, only of hours from an instant on; NaN for unknown series."""
        places = np.array([self.series.get(one, -1) for one in wanted], dtype=np.int64)
        known = places >= 0
        values, noise = np.full((len(wanted), HOURS), np.nan), np.zeros(len(wanted))
        values[known], noise[known] = self.levels.values[places[known]], self.levels.noise[places[known]]
        from_at = np.zeros(len(wanted), dtype=np.int64)
        from_at[known] = self.from_at[places[known]]
        hours_at = from_at[:, None] + HOUR_US * np.arange(HOURS)
        return Levels(values=values, noise=noise).where(hours_at >= np.asarray(since_at, np.int64)[:, None])

    def quantile_of(self, wanted: Sequence[tuple[int, str]]) -> Reals:
        """Return the quantile of series in this order; NaN for unknown ones."""
        values = np.full(len(self.series), np.nan) if self.quantile is None else self.quantile
        return np.append(values, np.nan)[[self.series.get(one, -1) for one in wanted]]

    def varies(self, wanted: Sequence[tuple[int, str]]) -> Flags:
        """Return which series in this order have a share above 0 in any hour."""
        values = np.append(np.nan_to_num(self.levels.values).any(axis=1), np.False_)
        return values[[self.series.get(one, -1) for one in wanted]]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The levels of several quantities that are shares."""

    levels: Mapping[Quantity, SeriesLevels] = field(default_factory=dict)

    def of(self, quantity: Quantity, wanted: Sequence[tuple[int, str]], hours: Reals) -> VarianceInflation:
        """Return the variance of the level of windows of so many hours, in units of one request's; NaN if unknown.

        Episodes may be rarer than one a week. If most of 20 or more series had one, the week of the others missed them.
        """
        known = self.levels.get(quantity)
        if known is None or not known.series:
            return VarianceInflation(ratio=np.full(len(wanted), np.nan), freedom=np.full(len(wanted), np.inf))
        levels = known.of(wanted, [0] * len(wanted))
        found = levels.variances(hours)
        share = np.nan_to_num(_row_means(levels.values))
        variance = share * (1 - share)
        ratio = np.divide(found.ratio, variance, out=np.where(np.isnan(found.ratio), np.nan, 0.0), where=variance > 0)
        had = _had_episode(levels.values)
        is_usual = len(had) >= _MANY_SERIES and bool(2 * np.count_nonzero(had) > len(had))
        return replace(found, ratio=np.where(is_usual & ~had, np.nan, ratio))

    def nearest(self, metric: Metric, wanted: Sequence[tuple[int, str]], limit: float) -> Integers:
        """Return, per series, the place in `SHARES` of the quantile of the week that is nearest to a limit above 0, on
        the scale of logarithms; -1 if none is known, or if the limit is farther outside of them than halfway to the
        next one. Above a value that is repeated there may be nothing: then the next lower quantile counts.
        """
        quantities = [self.levels.get(above_quantile(metric, share)) for share in SHARES]
        unknown = np.full(len(wanted), np.nan)
        values = np.stack([unknown if one is None else one.quantile_of(wanted) for one in quantities])
        known = np.isfinite(values).all(axis=0) & (values > 0).all(axis=0)
        scale = np.log(np.where(known, values, 1.0))
        distances = np.log(limit) - scale
        found = np.abs(distances).argmin(axis=0)
        below, above = (scale[place + 1] - scale[place] for place in (0, len(SHARES) - 2))
        is_far = (-2 * distances[0] > below) | (2 * distances[-1] > above)
        places = np.arange(len(SHARES))[:, None]
        shows = np.stack([unknown > 0 if one is None else one.varies(wanted) for one in quantities])
        lower = np.maximum.accumulate(np.where(shows, places, 0))[found, np.arange(len(wanted))]
        return np.where(known & ~is_far, lower, -1)


NO_HISTORY = History()


def median_of(metric: Metric) -> Quantity:
    """Return the quantity whose level of an hour is the median of its values."""
    return metric.value, _MEDIAN


def above_quantile(metric: Metric, share: float) -> Quantity:
    """Return the quantity whose level of an hour is the share of its values above a quantile of the week."""
    return metric.value, f"above_p{100 * share:g}"


def in_time(metric: Metric, near: Integers, known: Mapping[Quantity, VarianceInflation]) -> VarianceInflation:
    """Return the history of being in time: of the quantile `near` the limit, or of success if it varies more."""
    broken = slow = known[SUCCESS]
    for place, share in enumerate(SHARES):
        slow = known[above_quantile(metric, share)].where(near == place, slow)
    return slow.where((slow.ratio >= broken.ratio) | np.isnan(broken.ratio), broken)


def nearest_share(share: float) -> int:
    """Return the place in `SHARES` of the one that is nearest to `share`, on the scale of log odds; -1 for 0 and 1."""
    if not 0 < share < 1:
        return -1
    return min(range(len(SHARES)), key=lambda place: abs(_log_odds(SHARES[place]) - _log_odds(share)))


def _log_odds(share: float) -> float:
    return log(share / (1 - share))


def _row_means(values: Reals) -> Reals:
    known = np.isfinite(values)
    sums = np.where(known, values, 0.0).sum(axis=1)
    return np.asarray(np.divide(sums, known.sum(axis=1), out=np.full(len(values), np.nan), where=known.any(axis=1)))


def medians(hourly: Histograms) -> tuple[Reals, float]:
    """Return the median of each group, NaN for an empty one, and the mean variance that it has by chance."""
    low, high = hourly.bounds(0.5)
    variances = ((high - low) / (2 * _Z)) ** 2
    return hourly.interpolated(0.5), float(np.nanmean(variances)) if np.isfinite(variances).any() else 0.0


def exceedances(hourly: Histograms, limit: float) -> tuple[Reals, float]:
    """Return the share of each group's values above a limit, NaN if empty, and its mean variance by chance."""
    n = hourly.n
    above = np.divide(hourly.above(limit), n, out=np.full(len(n), np.nan), where=n > 0)
    level = float(np.nanmean(above)) if n.any() else 0.0
    return above, float(np.mean(level * (1 - level) / n[n > 0])) if n.any() else 0.0


def successes(ok: Reals, sent: Reals) -> tuple[Reals, float]:
    """Return the share of each hour's requests that succeeded, NaN without any, and its mean variance by chance."""
    shares = np.divide(ok, sent, out=np.full(len(sent), np.nan), where=sent > 0)
    level = float(ok.sum() / sent.sum()) if sent.any() else 0.0
    return shares, float(np.mean(level * (1 - level) / sent[sent > 0])) if sent.any() else 0.0


def _around_mean(values: Reals, length: int) -> Reals:
    """Return the mean square of the levels of windows, of which half of the hours are known, around each row's mean."""
    known = np.isfinite(values)
    off = np.where(known, values - np.nanmean(values, axis=1, keepdims=True), 0.0)
    sums, counts = _windows(off, length), _windows(known.astype(np.float64), length)
    counted = 2 * counts >= length
    levels = np.divide(sums, counts, out=np.zeros_like(sums), where=counted)
    squares = (levels**2).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
    # The mean of the same hours is nearer to each window than the long run is.
    return np.asarray(squares / (1 - length / known.sum(axis=1)))


def _long_run(values: Reals, terms: int) -> Reals:
    """Return the long-run variance of each row's known hours by so many cosines."""
    rows = [own[np.isfinite(own)] for own in values]
    return np.array([own.var() for own in rows]) * of_cosines(ragged(rows), terms).ratio


def _had_episode(shares: Reals) -> Flags:
    """Return which rows, of shares of values that are rarely exceeded, had two hours in a row that exceeded mostly."""
    is_high = (shares >= _MOSTLY) & (_row_means(shares) < _RARELY)[:, np.newaxis]
    return np.asarray((is_high[:, 1:] & is_high[:, :-1]).any(axis=1))


def _windows(values: Reals, length: int) -> Reals:
    """Return the sums of all windows of so many columns."""
    running = np.concatenate([np.zeros((len(values), 1)), values.cumsum(axis=1)], axis=1)
    return np.asarray(running[:, length:] - running[:, :-length])


@dataclass(frozen=True, slots=True, kw_only=True)
class HourOfValues:
    """The histograms of an hour of one metric from one region: of known values, and of limits."""

    region: str
    metric: str
    bucket_start: int
    histogram: bytes
    censored: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HourOfOutcomes:
    """The outcomes of an hour from one region."""

    region: str
    bucket_start: int
    outcomes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedLevels:
    """The hourly levels of one quantity from one region, and the quantile that they are shares above, else NaN."""

    region: str
    metric: str
    quantity: str
    noise: float
    levels: Reals
    quantile: float = nan


def computed_levels(
    values: Iterable[HourOfValues], outcomes: Iterable[HourOfOutcomes], until_at: int
) -> list[ComputedLevels]:
    """Return the levels of all quantities of a target in the week until an instant, by its summaries of hours."""
    by_series: dict[tuple[str, str], list[HourOfValues]] = defaultdict(list)
    for row in values:
        by_series[row.region, row.metric].append(row)
    by_region: dict[str, list[HourOfOutcomes]] = defaultdict(list)
    for one in outcomes:
        by_region[one.region].append(one)
    return [
        *(found for series, own in by_series.items() for found in _levels_of_values(*series, own, until_at)),
        *(_levels_of_outcomes(region, own, until_at) for region, own in by_region.items()),
    ]


def _levels_of_values(
    region: str, metric: str, rows: Sequence[HourOfValues], until_at: int
) -> Iterator[ComputedLevels]:
    hours = np.array([_hour(row, until_at) for row in rows])
    merged = merge((row.histogram for row in rows), (row.censored or b"" for row in rows), hours, of=HOURS)
    total = merged.total()
    found = [(median_of(Metric(metric)), nan, medians(merged))]
    for share in SHARES:
        value = float(total.quantile(share)[0])
        found.append((above_quantile(Metric(metric), share), value, exceedances(merged, value)))
    for (_, quantity), value, (levels, noise) in found:
        yield ComputedLevels(
            region=region, metric=metric, quantity=quantity, noise=noise, levels=levels, quantile=value
        )


def _levels_of_outcomes(region: str, rows: Iterable[HourOfOutcomes], until_at: int) -> ComputedLevels:
    ok, sent = np.zeros(HOURS), np.zeros(HOURS)
    for row in rows:
        hour, counts = _hour(row, until_at), outcome_counts(row.outcomes)
        ok[hour], sent[hour] = counts.ok, counts.sent
    levels, noise = successes(ok, sent)
    metric, quantity = SUCCESS
    return ComputedLevels(region=region, metric=metric, quantity=quantity, noise=noise, levels=levels)


def _hour(row: HourOfValues | HourOfOutcomes, until_at: int) -> int:
    return (row.bucket_start - until_at) // HOUR_US + HOURS
