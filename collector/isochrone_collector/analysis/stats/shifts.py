"""Shifts between two samples, paired by round or not: Hodges-Lehmann estimates, intervals and p-values.

Sections are those of M. Hollander, D. A. Wolfe and E. Chicken, Nonparametric Statistical Methods, 3rd ed.

Paired (3.1 to 3.3): the estimate is the median of the N = n(n+1)/2 Walsh averages (d_i + d_j)/2, i <= j. If A(1) <= …
<= A(N) are these in order and W is Wilcoxon's signed-rank statistic under a true shift, then A(c) and A(N+1-c) bound
the shift with probability 1 - 2·P(W <= c - 1), if the differences are independent and symmetric about it. W is the sum
of the ranks of |d| over the positive d; ties share their mean rank and a zero counts half. Without a shift both signs
are equally likely, so P(W <= w) counts subsets of 1..n by their sum: exact up to n = 50, and above that normal with
mean n(n+1)/4, variance n(n+1)(2n+1)/24 and a continuity correction.

Unpaired (4.1 to 4.3): the estimate is the median of all m·n differences y_j - x_i. The interval runs from the k-th to
the (mn+1-k)-th of them, with k from Mann and Whitney's U in its normal approximation: mean mn/2, variance mn(m+n+1)/12,
continuity correction (from m = n = 6 on it gives the exact table's k, or one less). What both sides have in common,
such as a provider's busy hour, is not removed, so intervals are wider than those of pairs.

Values of neighbouring rounds are correlated, and their level drifts: half-widths are multiplied, and standard scores
divided, by the factor of `long_run_variance`. A median of m values with inflation f varies as one of m/f, so that of
two sides is (f_x/m + f_y/n) / (1/m + 1/n). Half-widths are at least the granularity of the values.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, isnan, sqrt

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from isochrone_collector.analysis.stats.arrays import Integers, Ragged, Reals, granularities, mean_ranks, ragged
from isochrone_collector.analysis.stats.long_run_variance import LEAST_ROUNDS, VarianceInflation, inflation
from isochrone_collector.analysis.stats.pair_sums import PairSums, walsh_averages

MIN_N = 6
"""The number of differences below which no interval reaches 95 %."""

_TAIL = 0.025
_MAX_EXACT_N = 50
_CELLS = 1 << 17


@lru_cache(maxsize=4096)
def interval_depth(n: int) -> int | None:
    """Return the rank, from 1, of the Walsh average that bounds the 95 % interval on either side; `None` without."""
    if n > _MAX_EXACT_N:
        mean, deviation = _moments(n)
        return floor(mean - 0.5 + float(ndtri(_TAIL)) * deviation) + 1
    return int(np.searchsorted(signed_rank_tails(n), _TAIL, side="right")) or None


def p_values(series: Ragged, inflation: VarianceInflation) -> Reals:
    """Return each row's two-sided p-value of no shift, with effective size n/τ; NaN below `MIN_N` differences."""
    found = np.full(len(series), np.nan)
    for places, rows in series.portions(cells=_CELLS):
        n = rows.shape[1]
        if n >= MIN_N:
            statistics = np.einsum("ij,ij->i", mean_ranks(np.abs(rows)), (np.sign(rows) + 1) / 2)
            smaller = np.minimum(statistics, n * (n + 1) / 2 - statistics)
            found[places] = np.minimum(2 * _tail(smaller, n), 1.0)
    return inflation.p_values(-ndtri(found / 2))


def _tail(statistics: Reals, n: int) -> Reals:
    """Return P(W <= w)."""
    if n <= _MAX_EXACT_N:
        return signed_rank_tails(n)[np.ceil(statistics).astype(np.int64)]
    mean, deviation = _moments(n)
    return np.asarray(ndtr((statistics + 0.5 - mean) / deviation))


def _moments(n: int) -> tuple[float, float]:
    return n * (n + 1) / 4, sqrt(n * (n + 1) * (2 * n + 1) / 24)


@lru_cache(maxsize=_MAX_EXACT_N + 1)
def signed_rank_tails(n: int) -> Reals:
    """Return P(W <= w) for each w from 0 on: the share of subsets of 1..n with at most this sum."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1
    for rank in range(1, n + 1):
        counts[rank:] += counts[:-rank].copy()
    return np.asarray(np.cumsum(counts) / 2.0**n)


_Z = float(ndtri(0.975))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """An estimated shift in the unit of the differences, with its 95 % interval; no bounds with too few of them."""

    estimate: float
    low: float | None
    high: float | None

    def chance_beyond(self, margin: float, *, freedom: float) -> float:
        """Return the larger p-value of "slower by the margin" and "faster by the margin"; 1 without an interval."""
        if self.low is None or self.high is None:
            return 1.0
        rooms = (
            (margin + self.estimate, self.estimate - self.low),
            (margin - self.estimate, self.high - self.estimate),
        )
        scores = [room / half if half > 0 else np.sign(room) * np.inf for room, half in rooms]
        return float(stdtr(freedom, -min(scores) * stdtrit(freedom, 1 - _TAIL)))

    def widened(self, factor: float, *, least: float = 0.0) -> "Shift":
        """Return the same estimate with both half-widths multiplied, and at least `least`."""
        if self.low is None or self.high is None:
            return self
        below, above = (max(factor * half, least) for half in (self.estimate - self.low, self.high - self.estimate))
        return replace(self, low=self.estimate - below, high=self.estimate + above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifts:
    """Many shifts as columns, NaN if unknown, with their effective numbers, two-sided p-values of no shift, and the
    degrees of freedom of the intervals.
    """

    estimate: Reals
    low: Reals
    high: Reals
    n_eff: Reals
    p_value: Reals
    freedom: Reals

    def among(self, comparisons: Integers) -> "Shifts":
        """Return the shifts with intervals and p-values that hold for all of so many comparisons (Bonferroni)."""
        wider = stdtrit(self.freedom, 1 - _TAIL / comparisons) / stdtrit(self.freedom, 1 - _TAIL)
        return replace(
            self,
            low=self.estimate - wider * (self.estimate - self.low),
            high=self.estimate + wider * (self.high - self.estimate),
            p_value=np.minimum(self.p_value * comparisons, 1.0),
        )

    def listed(self) -> list[Shift | None]:
        """Return the shifts as a list; `None` for a row without differences."""
        rows = zip(self.estimate.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [
            None
            if isnan(estimate)
            else Shift(estimate=estimate, low=None if isnan(low) else low, high=None if isnan(high) else high)
            for estimate, low, high in rows
        ]


def paired_shifts(
    differences: Ragged, *, known: VarianceInflation | None = None, history: VarianceInflation | None = None
) -> Shifts:
    """Estimate the shift of each row of differences, in order; `known` is the inflation of rows that are no series."""
    counts = differences.counts
    distinct, places = np.unique(counts, return_inverse=True)
    depths = np.array([interval_depth(int(n)) or 0 for n in distinct], dtype=np.int64)[places]
    totals = counts * (counts + 1) // 2
    bounded = depths > 0
    usable = np.where(bounded, depths, totals // 2 + 1)
    walsh = walsh_averages(differences, np.column_stack([*_middles(totals), usable, totals + 1 - usable]))
    estimate = walsh[:, :2].mean(axis=1)
    inflated = inflation(differences) if known is None else known
    if history is not None:
        inflated = inflated.with_history(((walsh[:, 3] - walsh[:, 2]) / (2 * _Z)) ** 2, history)
    wider, least = inflated.factor, _granularities(differences)
    halves = np.maximum(estimate - walsh[:, 2], walsh[:, 3] - estimate)
    return Shifts(
        estimate=estimate,
        low=np.where(bounded, estimate - np.maximum(wider * (estimate - walsh[:, 2]), least), np.nan),
        high=np.where(bounded, estimate + np.maximum(wider * (walsh[:, 3] - estimate), least), np.nan),
        n_eff=inflated.effective_n(counts),
        p_value=_p_values(differences, inflated, estimate, np.maximum(halves, least / wider)),
        freedom=np.minimum(inflated.freedom, np.maximum(counts - 1, 1)),
    )


def _granularities(series: Ragged) -> Reals:
    found = np.zeros(len(series))
    for places, rows in series.portions(cells=_CELLS):
        found[places] = granularities(np.sort(rows, axis=1))
    return found


def _p_values(differences: Ragged, inflated: VarianceInflation, estimate: Reals, halves: Reals) -> Reals:
    """Return the p-values of no shift; `halves` are the larger half-widths for independent rounds.

    That of ranks is bounded by their number: n rounds of one sign have the score √(3n)/2, which large inflation makes
    insignificant however far the shift is. From 24 rounds on, the distance in half-widths counts if it says more.
    """
    counts = differences.counts
    is_long = counts >= LEAST_ROUNDS
    scores = _Z * np.divide(np.abs(estimate), halves, out=np.where(estimate == 0, 0.0, np.inf), where=halves > 0)
    freedom = np.minimum(inflated.freedom, np.maximum(counts - 1, 1))
    by_width = VarianceInflation(ratio=inflated.ratio, freedom=freedom).p_values(scores)
    by_rank = p_values(differences, inflated)
    return np.where(is_long, np.minimum(by_width, by_rank), by_rank)


def paired_estimates(differences: Ragged) -> Reals:
    """Return only the estimate of each row's shift; NaN for an empty row."""
    counts = differences.counts
    totals = counts * (counts + 1) // 2
    return np.asarray(walsh_averages(differences, np.column_stack(_middles(totals))).mean(axis=1))


def _middles(totals: Integers) -> tuple[Integers, Integers]:
    """Return the two ranks, from 1, whose mean is the median."""
    return totals // 2 + 1, -(-totals // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSampleShift:
    """The shift from x to y. `prob_superiority` is the share of pairs with y above x, ties counting half: U/mn."""

    shift: Shift
    n_eff: float
    p_value: float
    prob_superiority: float


def unpaired_shift(x: Reals, y: Reals, *, known: VarianceInflation | None = None) -> TwoSampleShift | None:
    """Estimate the shift from x to y, in order, with the `known` inflation of both; `None` below `MIN_N` values."""
    m, n = len(x), len(y)
    if min(m, n) < MIN_N:
        return None
    sides = inflation(ragged([x, y])) if known is None else known
    inflated = _combined(sides, m, n)
    ordered = np.sort(x)
    below, until = np.searchsorted(ordered, y, side="left"), np.searchsorted(ordered, y, side="right")
    superiority = float((below + until).sum() / 2 / (m * n))
    deviation = sqrt(m * n * (m + n + 1) / 12)
    score = max(0.0, abs(superiority - 0.5) * m * n - 0.5) / deviation
    return TwoSampleShift(
        shift=_independent(x, y, depth=floor(m * n / 2 - 0.5 - _Z * deviation) + 1).widened(
            float(inflated.factor[0]), least=float(_granularities(ragged([x, y])).max())
        ),
        n_eff=float(sides.effective_n(np.array([m, n])).min()),
        p_value=float(inflated.p_values(np.array([score]))[0]),
        prob_superiority=superiority,
    )


def _combined(sides: VarianceInflation, m: int, n: int) -> VarianceInflation:
    """Combine the inflations of two sides, with B. L. Welch's degrees of freedom (Biometrika 34 (1947) 28-35)."""
    parts = sides.ratio / np.array([m, n])
    known = float((parts**2 / sides.freedom).sum())
    freedom = float(parts.sum()) ** 2 / known if known else np.inf
    return VarianceInflation(ratio=np.array([parts.sum() / (1 / m + 1 / n)]), freedom=np.array([freedom]))


def _independent(x: Reals, y: Reals, *, depth: int) -> Shift:
    sums = PairSums(a=np.sort(-x), b=np.sort(y), from_j=np.zeros(len(x), dtype=np.int64))
    total = sums.total
    estimate = (sums.select(total // 2 + 1) + sums.select(-(-total // 2))) / 2
    return Shift(estimate=estimate, low=sums.select(depth), high=sums.select(total + 1 - depth))
