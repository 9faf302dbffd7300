"""Order statistics of the sums of all pairs, without listing all sums.

With both arrays sorted, one binary search per a_i counts the sums a_i + b_j up to a value, and two list the sums
between two values. The wanted sum is first bracketed by two values, guessed from a coarse sample of both arrays and
verified by counting; the bracket is halved until it holds few sums, and these are partitioned. Of a few sums, all are.

Walsh averages (d_i + d_j)/2, i <= j, of n sorted values grow with i and with j. So given ranks are searched in a band
of diagonals of the triangle of all pairs, those whose i + j is about what it would be if that sum alone decided. The
result is then verified: if no average on the diagonal below the band exceeds the smallest found, and none on the one
above falls below the largest, the ranks within the band are those among all pairs. Otherwise a wider band is searched;
the last one has all pairs. Most rows of a day of probes need a fifth of the averages for the median, and a quarter for
each bound of the interval.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf, isqrt, sqrt

import numpy as np

from isochrone_collector.analysis.stats.arrays import Flags, Integers, Ragged, Reals

MAX_LISTED = 1 << 17
"""The maximum number of sums listed at once: one megabyte."""

# So few sums are listed faster than they are bracketed.
_FEW = 1 << 14

_COARSE = 64
# Tolerance of the guess from the coarse sample, as a share of all sums.
_SLACK = 0.012
# More halvings than a double has bits.
_BISECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSums:
    """The sums a_i + b_j of two sorted arrays; `from_j` is the first j that each a_i is paired with."""

    a: Reals
    b: Reals
    from_j: Integers

    def select(self, rank: int) -> float:
        """Return the sum of a rank, from 1, among all sums in order."""
        low, high = (-inf, inf) if self.total <= min(_FEW, MAX_LISTED) else self._guess(rank)
        for _ in range(_BISECTIONS):
            if int((self._until(high) - self._until(low)).sum()) <= MAX_LISTED:
                return self._listed(low, high, rank - self._up_to(low))
            middle = (low + high) / 2
            low, high = (low, middle) if self._up_to(middle) >= rank else (middle, high)
        # The remaining sums are equal: the largest one that is at most `high`.
        ends = self._until(high)
        i = np.flatnonzero(ends > self.from_j)
        return float((self.a[i] + self.b[ends[i] - 1]).max())

    @property
    def total(self) -> int:
        """The number of sums."""
        return int((len(self.b) - self.from_j).sum())

    def _until(self, value: float) -> Integers:
        """Return, for each a_i, the j before which its sums are at most the value."""
        return np.maximum(np.searchsorted(self.b, value - self.a, side="right"), self.from_j)

    def _up_to(self, value: float) -> int:
        return int((self._until(value) - self.from_j).sum())

    def _guess(self, rank: int) -> tuple[float, float]:
        """Return two values; fewer than `rank` sums are up to the first, at least `rank` up to the second."""
        a, b = (one[np.linspace(0, len(one) - 1, min(_COARSE, len(one))).astype(np.int64)] for one in (self.a, self.b))
        sums = np.sort((a[:, None] + b).ravel())
        place, slack = len(sums) * rank / self.total, _SLACK * len(sums)
        low = float(sums[max(0, int(place - slack))])
        high = float(sums[min(len(sums) - 1, int(place + slack))])
        # Outside all sums by more than rounding.
        beyond = 1.0 + float(np.abs(self.a).max() + np.abs(self.b).max())
        if self._up_to(low) >= rank:
            low = float(self.a[0] + self.b[0]) - beyond
        if self._up_to(high) < rank:
            high = float(self.a[-1] + self.b[-1]) + beyond
        return low, high

    def _listed(self, low: float, high: float, rank: int) -> float:
        """Return the sum of a rank, from 1, among those above `low` and up to `high`."""
        starts, counts = self._until(low), self._until(high) - self._until(low)
        i = np.repeat(np.arange(len(self.a)), counts)
        j = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts - starts, counts)
        return float(np.partition(self.a[i] + self.b[j], rank - 1)[rank - 1])


# The longest row whose averages are listed.
_MAX_LISTED_N = isqrt(2 * MAX_LISTED) - 1
# The margin of a band on either side of its ranks, as a share of all pairs, times √n. It is enough for four of five
# rows of probes; a wider band costs more than repeating the others.
_MEDIAN_SLACK, _BAND_SLACK = 1.0, 1.3
_WIDER = 1.5
# About one in so many averages is in a band.
_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Band:
    """The pairs (i, j) of some diagonals, the number of pairs `below` them, and the pairs of the diagonals beside."""

    i: Integers
    j: Integers
    below: int
    before: tuple[Integers, Integers]
    after: tuple[Integers, Integers]


def walsh_averages(differences: Ragged, ranks: Integers) -> Reals:
    """Return each row's Walsh averages of its ranks, from 1, equal for rows of one length; NaN for an empty row."""
    found = np.full(ranks.shape, np.nan)
    for places, rows in differences.portions(cells=MAX_LISTED, size=_size):
        ordered, wanted = np.sort(rows, axis=1), ranks[places[0]]
        if ordered.shape[1] <= _MAX_LISTED_N:
            found[places] = _listed(ordered, wanted)
        else:
            sums = PairSums(a=ordered[0], b=ordered[0], from_j=np.arange(ordered.shape[1]))
            averages = {rank: sums.select(rank) / 2 for rank in set(wanted.tolist())}
            found[places] = [averages[rank] for rank in wanted.tolist()]
    return found


def _size(n: int) -> int:
    return 1 + n * (n + 1) // 2 // _SHARE if n <= _MAX_LISTED_N else MAX_LISTED


def _listed(ordered: Reals, ranks: Integers) -> Reals:
    """Return the averages of these ranks, each from its own band, shared by neighbours and partitioned only once."""
    found = np.empty((len(ordered), len(ranks)))
    distinct = np.unique(ranks)
    for near in np.split(distinct, np.flatnonzero(np.diff(distinct) > 1) + 1):
        columns = np.flatnonzero((near[0] <= ranks) & (ranks <= near[-1]))
        found[:, columns] = _banded(ordered, ranks[columns])
    return found


def _banded(ordered: Reals, ranks: Integers) -> Reals:
    n = ordered.shape[1]
    slack = (_MEDIAN_SLACK if int(ranks.max()) == n * (n + 1) // 4 + 1 else _BAND_SLACK) / sqrt(n)
    found = np.empty((len(ordered), len(ranks)))
    left = np.arange(len(ordered))
    while len(left):
        band = _band(n, int(ranks.min()), int(ranks.max()), slack)
        sums, sure = _sought(ordered[left], ranks - 1 - band.below, band)
        found[left[sure]] = sums[sure] / 2
        left, slack = left[~sure], _WIDER * slack
    return found


def _sought(ordered: Reals, places: Integers, band: _Band) -> tuple[Reals, Flags]:
    """Return the sums at these places of the ordered band, and for which rows they are verified."""
    sums, start = _sums(ordered, band.i, band.j), 0
    # One place after the other takes half the time: numpy vectorizes only a partition at a single place.
    for place in sorted(set(places.tolist())):
        sums[:, start:].partition(place - start, axis=1)
        start = place + 1
    smallest, largest = sums[:, [places.min()]], sums[:, [places.max()]]
    misplaced = np.hstack((_sums(ordered, *band.before) > smallest, _sums(ordered, *band.after) < largest))
    return sums[:, places], np.asarray(~misplaced.any(axis=1))


def _sums(ordered: Reals, i: Integers, j: Integers) -> Reals:
    sums = ordered.take(i, axis=1)
    sums += ordered.take(j, axis=1)
    return sums


@lru_cache(maxsize=256)
def _band(n: int, first: int, last: int, slack: float) -> _Band:
    """Return the band to search for the ranks from `first` to `last` of the averages of n values."""
    i, j = np.triu_indices(n)
    diagonal = i + j
    ends = np.cumsum(np.bincount(diagonal))
    total = int(ends[-1])
    begin, end = np.searchsorted(ends, [first - slack * total, min(last + slack * total, total)])
    kept, before, after = (begin <= diagonal) & (diagonal <= end), diagonal == begin - 1, diagonal == end + 1
    return _Band(
        i=i[kept],
        j=j[kept],
        below=int(np.count_nonzero(diagonal < begin)),
        before=(i[before], j[before]),
        after=(i[after], j[after]),
    )
