"""Nearest-rank quantiles with distribution-free confidence intervals.

The p-quantile of n values is the value of rank ceil(p·n). Its interval runs between two order statistics
X(l) and X(u): the number of values at or below the true quantile is Binomial(n, p), so the interval holds it with
probability P(l <= B < u), whatever the distribution of the values (H. A. David and H. N. Nagaraja, Order Statistics,
3rd ed., section 7.1). Below n = 6 for the median, 29 for p90, 59 for p95 and 299 for p99 no pair of ranks reaches 95 %.

Values in the order of their rounds are as good as fewer independent ones: as many as would give the exceedances of the
quantile the same interval (`long_run_variance`). The interval is then the one of that many values, with each rank at
the same share of all values. A censored value, such as that of a probe that timed out, is known only to exceed its
limit, and ranks above all others. The half-width is at least the granularity of the values: the ticks of their clock.

A window may miss episodes that are slower than the rest, and then its exceedances look independent. So a quantile above
the median has an upper bound only with the history of a week; without, it is "at least" its lower bound. What is slow
comes in stretches, but the window may contain too few of them to show it: the memory of the median, if it is longer,
counts for such a bound.

Proportions have Wilson's score interval: of k successes in n trials, with p = k/n and z = 1.96, it is
(p + z²/2n ± z·√(p(1-p)/n + z²/4n²)) / (1 + z²/n). Unlike p ± z·√(p(1-p)/n) its coverage holds near 0 and 1 and for
few trials (E. B. Wilson, JASA 22 (1927) 209-212; recommended by L. D. Brown, T. T. Cai and A. DasGupta, Statistical
Science 16 (2001) 101-133).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, isnan, sqrt

import numpy as np
from scipy.special import bdtr, bdtrc, ndtri

from isochrone_collector.analysis.stats.arrays import Flags, Integers, Ragged, Reals, granularities
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation, inflation_of_flags
from isochrone_wire.answers import Proportion, Quantile

_Z = float(ndtri(0.975))


@lru_cache(maxsize=4096)
def wilson(count: int, n: int, *, n_eff: float | None = None) -> Proportion | None:
    """Return the share of `count` in `n` trials with the 95 % interval of `n_eff` independent ones, by default n."""
    if n == 0:
        return None
    # The formula holds for sizes that are no integers.
    size = n if n_eff is None else n_eff
    share, spread = count / n, _Z**2 / size
    centre = (share + spread / 2) / (1 + spread)
    half = _Z * sqrt(share * (1 - share) / size + spread / (4 * size)) / (1 + spread)
    low = 0.0 if count == 0 else centre - half
    high = 1.0 if count == n else centre + half
    return Proportion(value=share, low=low, high=high, n=n, n_eff=n_eff)


_ERROR = 0.05
_MEDIAN = 0.5
# Binomial tails are computed; a bound that misses 0.95 by rounding alone is kept.
_ROUNDING = 1e-12
_CELLS = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantiles:
    """A quantile of many rows, with their effective number of values; NaN without values, or without bounds."""

    value: Reals
    low: Reals
    high: Reals
    n_eff: Reals

    def listed(self) -> list[Quantile | None]:
        """Return one quantile per row, `None` for an empty one."""
        columns = (column.tolist() for column in (self.value, self.low, self.high, self.n_eff))
        return [
            None
            if isnan(value)
            else Quantile(value=value, low=None if isnan(low) else low, high=None if isnan(high) else high, n_eff=n_eff)
            for value, low, high, n_eff in zip(*columns, strict=True)
        ]


def quantiles(
    series: Ragged, histories: Mapping[float, VarianceInflation | None], censored: Flags
) -> dict[float, Quantiles]:
    """Return quantiles of each row of values in the order of their rounds, by their shares (0 < share < 1), with 95 %
    intervals. A `censored` value is a limit; a rank among these is reported as the larger of its limit and the largest
    value. `histories` has that of `inflation_of_flags` for each share.
    """
    known = Ragged(values=np.where(censored, np.inf, series.values), offsets=series.offsets)
    limits = Ragged(values=np.where(censored, series.values, np.inf), offsets=series.offsets)
    found = {share: np.full((4, len(series)), np.nan) for share in histories}
    for (places, own), (_, other) in zip(known.portions(cells=_CELLS), limits.portions(cells=_CELLS), strict=True):
        ordered = _Ordered.of(own, other)
        for share, history in histories.items():
            found[share][:, places] = _portion(own, ordered, share, history and history.at(places))
    return {
        share: Quantiles(value=value, low=low, high=high, n_eff=n_eff)
        for share, (value, low, high, n_eff) in found.items()
    }


def _portion(known: Reals, ordered: "_Ordered", share: float, history: VarianceInflation | None) -> Reals:
    """Return value, bounds and effective number of rows of one length; `known` values that are limits are infinite."""
    n = known.shape[1]
    value = ordered.at(np.full(len(known), _rank(n, share)))
    n_eff = inflation_of_flags(known > value[:, None], history).effective_n(n)
    is_proven = np.isfinite(history.ratio) if history else np.zeros(len(known), np.bool_)
    if share > _MEDIAN and not is_proven.all():
        middle = ordered.at(np.full(len(known), _rank(n, _MEDIAN)))
        of_median = inflation_of_flags(known > middle[:, None]).effective_n(n)
        n_eff = np.where(is_proven, n_eff, np.minimum(n_eff, of_median))
    low, high = ranks_of(np.floor(n_eff), lambda size: dependent_ranks(n, share, size))
    ranks = low, np.where(is_proven | (share <= _MEDIAN), high, 0)
    low_at, high_at = (np.where(rank > 0, ordered.at(np.maximum(rank, 1)), np.nan) for rank in ranks)
    # NaN stays: there is no bound to move.
    return np.stack([value, np.minimum(low_at, value - ordered.step), np.maximum(high_at, value + ordered.step), n_eff])


def _rank(n: int, share: float) -> int:
    """Return the rank of the quantile of n values."""
    return min(n, max(1, ceil(share * n - _ROUNDING * n)))


def ranks_of(sizes: Reals | Integers, ranks: Callable[[float], tuple[int, int] | None]) -> tuple[Integers, Integers]:
    """Return the ranks of the bounds of each size, 0 and 0 without any."""
    distinct, places = np.unique(sizes, return_inverse=True)
    low, high = np.array([ranks(size) or (0, 0) for size in distinct.tolist()], np.int64).reshape(-1, 2)[places].T
    return low, high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ordered:
    """Rows of values and of limits, each sorted, and the number and the granularity of the values in each row."""

    values: Reals
    limits: Reals
    counts: Integers
    step: Reals

    @classmethod
    def of(cls, known: Reals, limits: Reals) -> "_Ordered":
        """Sort rows of one length; of either matrix the values that belong into the other are infinite."""
        counts = np.isfinite(known).sum(axis=1)
        has_limits = bool((counts < known.shape[1]).any())
        values = np.sort(known, axis=1)
        return cls(
            values=values,
            limits=np.sort(limits, axis=1) if has_limits else limits,
            counts=counts,
            step=granularities(values),
        )

    def at(self, ranks: Integers) -> Reals:
        """Return the value of a rank (from 1) in each row."""
        rows, last = np.arange(len(ranks)), np.maximum(self.counts - 1, 0)
        largest = np.where(self.counts > 0, self.values[rows, last], -np.inf)
        beyond = np.maximum(self.limits[rows, np.maximum(ranks - self.counts - 1, 0)], largest)
        return np.where(ranks <= self.counts, self.values[rows, ranks - 1], beyond)


def dependent_ranks(n: int, share: float, n_eff: float) -> tuple[int, int] | None:
    """Return the ranks of `interval_ranks` for n values that are as good as `n_eff` independent ones. Above the median,
    fewer of them have a lower bound alone: then the upper rank is 0.
    """
    size = floor(n_eff)
    low, high = interval_ranks(size, share) or (_low_rank(size, share, _ERROR / 2) if share > _MEDIAN else 0, 0)
    if low == 0 or size >= n:
        return (low, high) if low else None
    growth = (n + 1) / (size + 1)
    return max(1, floor(low * growth)), min(n, ceil(high * growth))


@lru_cache(maxsize=4096)
def interval_ranks(n: int, share: float) -> tuple[int, int] | None:
    """Return the ranks (l, u), from 1, whose order statistics bound the quantile with at least 95 %, or `None`.

    Each side gets half of the error; if even the extreme value leaves more than that on its side, the other side gets
    the rest.
    """
    least_below, least_above = float((1 - share) ** n), float(share**n)
    if least_below + least_above > _ERROR + _ROUNDING:
        return None
    below = above = _ERROR / 2
    if least_above > above:
        below, above = _ERROR - least_above, least_above
    elif least_below > below:
        below, above = least_below, _ERROR - least_below
    # Rank u misses when u or more values lie below the quantile.
    high = bisect_left(range(n), True, key=lambda count: bool(bdtrc(count, n, share) <= above + _ROUNDING)) + 1
    return _low_rank(n, share, below), high


def _low_rank(n: int, share: float, error: float) -> int:
    """Return the largest rank below which fewer values lie than below the quantile, but for this error; 0 for none."""
    return bisect_right(range(n), error + _ROUNDING, key=lambda count: float(bdtr(count, n, share)))
