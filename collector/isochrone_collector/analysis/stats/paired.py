"""Shift of paired differences: one-sample Hodges-Lehmann estimate with its signed-rank interval.

The estimate is the median of the n(n+1)/2 Walsh averages (d_i + d_j)/2, i <= j. If A(1) <= … <= A(N) are the Walsh
averages in order and W is Wilcoxon's signed-rank statistic under a true shift, then A(c) and A(N+1-c) bound the shift
with probability 1 - 2·P(W <= c - 1), assuming the differences to be independent and symmetric about it (M. Hollander,
D. A. Wolfe and E. Chicken, Nonparametric Statistical Methods, 3rd ed., sections 3.2 and 3.3).

Differences of neighbouring rounds are correlated, and their level drifts. Both half-widths of the interval are
therefore multiplied by the root of the inflation of their variance and a factor of Student's t (see
`long_run_variance`).

There are plain functions for one series, and `paired_shifts` for thousands at once, with the same results but without
the overhead of calling numpy for each.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan

import numpy as np
from scipy.special import ndtri

from isochrone_collector.analysis.stats.long_run_variance import Inflation, inflation
from isochrone_collector.analysis.stats.pairwise import PairSums
from isochrone_collector.analysis.stats.ragged import Integers, Ragged, Reals, ragged
from isochrone_collector.analysis.stats.signed_rank import interval_depth, p_values
from isochrone_collector.analysis.stats.walsh import walsh_averages

_Z = float(ndtri(0.975))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """An estimated shift in the unit of the differences, with its 95 % interval; bounds are `None` with too few of
    them.
    """

    estimate: float
    low: float | None
    high: float | None

    def widened(self, factor: float) -> "Shift":
        """Return the same estimate with both half-widths multiplied."""
        if self.low is None or self.high is None:
            return self
        low = self.estimate - factor * (self.estimate - self.low)
        return replace(self, low=low, high=self.estimate + factor * (self.high - self.estimate))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifts:
    """Many shifts as columns; NaN if unknown. `n_eff` independent rounds have as wide an interval, and `p_value` is the
    two-sided p-value of no shift.
    """

    estimate: Reals
    low: Reals
    high: Reals
    n_eff: Reals
    p_value: Reals

    def listed(self) -> list[Shift | None]:
        """Return the shifts as a list; `None` for a row without differences."""
        rows = zip(self.estimate.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [None if isnan(estimate) else _shift(estimate, low, high) for estimate, low, high in rows]


def _shift(estimate: float, low: float, high: float) -> Shift:
    return Shift(estimate=estimate, low=None if isnan(low) else low, high=None if isnan(high) else high)


def hodges_lehmann(differences: Reals) -> Shift | None:
    """Estimate the shift of independent differences from zero; `None` without differences."""
    n = len(differences)
    if n == 0:
        return None
    ordered = np.sort(differences)
    sums = PairSums(a=ordered, b=ordered, from_j=np.arange(n))
    total, depth = sums.total, interval_depth(n)
    estimate = (sums.select(total // 2 + 1) + sums.select(-(-total // 2))) / 4
    if depth is None:
        return Shift(estimate=estimate, low=None, high=None)
    return Shift(estimate=estimate, low=sums.select(depth) / 2, high=sums.select(total + 1 - depth) / 2)


def paired_shift(differences: Reals) -> Shift | None:
    """Estimate the shift of differences, in the order of their rounds, that may be dependent."""
    found = hodges_lehmann(differences)
    return found and found.widened(float(inflation(ragged([differences])).factor[0]))


def paired_shifts(differences: Ragged, *, known: Inflation | None = None, history: Inflation | None = None) -> Shifts:
    """Estimate the shift of each row as `paired_shift` does.

    `known` is the inflation of rows that are not a single series. `history` is that of `Inflation.with_history`.
    """
    counts = differences.counts
    depths = _by_count(counts, interval_depth)
    totals = counts * (counts + 1) // 2
    bounded = depths > 0
    usable = np.where(bounded, depths, totals // 2 + 1)
    walsh = walsh_averages(differences, np.column_stack([*_middles(totals), usable, totals + 1 - usable]))
    estimate = walsh[:, :2].mean(axis=1)
    inflated = inflation(differences) if known is None else known
    if history is not None:
        inflated = inflated.with_history(((walsh[:, 3] - walsh[:, 2]) / (2 * _Z)) ** 2, history)
    wider = inflated.factor
    return Shifts(
        estimate=estimate,
        low=np.where(bounded, estimate - wider * (estimate - walsh[:, 2]), np.nan),
        high=np.where(bounded, estimate + wider * (walsh[:, 3] - estimate), np.nan),
        n_eff=inflated.worth(counts),
        p_value=p_values(differences, inflated),
    )


def paired_estimates(differences: Ragged) -> Reals:
    """Return only the estimate of each row's shift; NaN for an empty row."""
    counts = differences.counts
    totals = counts * (counts + 1) // 2
    return np.asarray(walsh_averages(differences, np.column_stack(_middles(totals))).mean(axis=1))


def _middles(totals: Integers) -> tuple[Integers, Integers]:
    """Return the two ranks, from 1, whose mean is the median."""
    return totals // 2 + 1, -(-totals // 2)


def _by_count(counts: Integers, value: Callable[[int], int | None]) -> Integers:
    """Return the value of each count, 0 for `None`."""
    distinct, places = np.unique(counts, return_inverse=True)
    return np.array([value(int(n)) or 0 for n in distinct], dtype=np.int64)[places]
