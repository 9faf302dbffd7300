"""The shift of paired differences: one-sample Hodges-Lehmann estimate with its signed-rank interval.

The estimate is the median of the n(n+1)/2 Walsh averages (d_i + d_j)/2, i <= j. If A(1) <= … <= A(N) are the Walsh
averages in order and W is Wilcoxon's signed-rank statistic under a true shift, then A(c) and A(N+1-c) bound the shift
with probability 1 - 2·P(W <= c - 1), assuming the differences to be independent and symmetric about it (M. Hollander,
D. A. Wolfe and E. Chicken, Nonparametric Statistical Methods, 3rd ed., sections 3.2 and 3.3).

The distribution of W is exact up to n = 50; above, it is normal with mean n(n+1)/4, variance n(n+1)(2n+1)/24 and a
continuity correction. Below n = 6 no interval reaches 95 %.

Many pairs would have very many Walsh averages (50 million for n = 10 000), so above n = 200 the wanted one is found by
bisection on its value: counting the averages up to a value takes n binary searches and no memory.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import floor, sqrt

import numpy as np
from scipy.special import ndtri

Values = np.ndarray[tuple[int], np.dtype[np.float64]]

_TAIL = 0.025
_MAX_EXACT_N = 50
_MAX_LISTED_N = 200
# As many as a double has bits to halve: the bracket ends 2^-54 of the spread of the differences wide.
_BISECTIONS = 54


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The estimated shift in the unit of the differences, with its 95 % interval or `None` for too few of them."""

    estimate: float
    low: float | None
    high: float | None


def hodges_lehmann(differences: Values) -> Shift | None:
    """The shift of the differences from zero; `None` of none at all."""
    n = len(differences)
    if n == 0:
        return None
    walsh = _walsh_averages(differences)
    total = n * (n + 1) // 2
    estimate = (walsh(total // 2 + 1) + walsh(-(-total // 2))) / 2
    depth = interval_depth(n)
    if depth is None:
        return Shift(estimate=estimate, low=None, high=None)
    return Shift(estimate=estimate, low=walsh(depth), high=walsh(total + 1 - depth))


@lru_cache(maxsize=4096)
def interval_depth(n: int) -> int | None:
    """How many Walsh averages in from either end the 95 % interval begins, from 1; `None` where there is none."""
    if n > _MAX_EXACT_N:
        mean, deviation = n * (n + 1) / 4, sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return floor(mean - 0.5 + float(ndtri(_TAIL)) * deviation) + 1
    tails = np.cumsum(signed_rank_counts(n)) / 2.0**n
    depth = int(np.searchsorted(tails, _TAIL, side="right"))
    return depth or None


def signed_rank_counts(n: int) -> Values:
    """In how many of the 2^n sign patterns the statistic is 0, 1, 2, …: the subsets of 1..n by their sum."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1
    for rank in range(1, n + 1):
        counts[rank:] += counts[:-rank].copy()
    return counts


class _ListedWalsh:
    """All Walsh averages, sorted; called with a rank from 1."""

    def __init__(self, ordered: Values) -> None:
        rows, columns = np.triu_indices(len(ordered))
        self._averages = np.sort((ordered[rows] + ordered[columns]) / 2)

    def __call__(self, rank: int) -> float:
        return float(self._averages[rank - 1])


class _CountedWalsh:
    """The Walsh average of a rank from 1, found by counting those below a guess."""

    def __init__(self, ordered: Values) -> None:
        self._ordered = ordered
        self._order = np.arange(len(ordered))

    def __call__(self, rank: int) -> float:
        low, high = float(self._ordered[0]), float(self._ordered[-1])
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if self._up_to(middle) >= rank:
                high = middle
            else:
                low = middle
        return high

    def _up_to(self, value: float) -> int:
        # For each i the partners j with d_j <= 2·value - d_i, of which those with j >= i are counted.
        ends = np.searchsorted(self._ordered, 2 * value - self._ordered, side="right")
        return int(np.maximum(ends - self._order, 0).sum())


def _walsh_averages(differences: Values) -> "_ListedWalsh | _CountedWalsh":
    ordered = np.sort(differences)
    return _ListedWalsh(ordered) if len(ordered) <= _MAX_LISTED_N else _CountedWalsh(ordered)
