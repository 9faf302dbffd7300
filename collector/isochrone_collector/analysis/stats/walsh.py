"""Walsh averages by rank, of many rows of differences at once.

The averages (d_i + d_j)/2, i <= j, of n sorted values grow with i and with j. So given ranks are searched among the
pairs whose i + j is about what it would be if that sum alone decided: in a band of diagonals of the triangle of all
pairs. The result is then verified. Every pair below the band is at most as large as one on the diagonal next to it, and
every pair above at least as large as one on the diagonal there; so if no average on the lower diagonal exceeds the
smallest found, and none on the upper one falls below the largest, the ranks within the band are those among all pairs.
Otherwise the band was too narrow, and a wider one is searched; the last one has all pairs.

Most rows of a day of probes need a fifth of the averages for the median, and a quarter for each bound of the interval.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, sqrt

import numpy as np

from isochrone_collector.analysis.stats.pairwise import MAX_LISTED, PairSums
from isochrone_collector.analysis.stats.ragged import Flags, Integers, Ragged, Reals

# The longest row whose averages are listed.
_MAX_LISTED_N = isqrt(2 * MAX_LISTED) - 1
# The margin of a band on either side of its ranks, as a share of all pairs, times √n. It is enough for four of five
# rows of probes; a wider band costs more than repeating the others.
_MEDIAN_SLACK, _SLACK = 1.0, 1.3
_WIDER = 1.5
# About one in so many averages is in a band.
_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Band:
    """The pairs (i, j) of some diagonals, the number of pairs `below` them, and the pairs of the next diagonal on
    either side, `before` and `after`, which are empty at the ends.
    """

    i: Integers
    j: Integers
    below: int
    before: tuple[Integers, Integers]
    after: tuple[Integers, Integers]


def walsh_averages(differences: Ragged, ranks: Integers) -> Reals:
    """Return, for each row, the Walsh averages of its ranks (from 1, equal for rows of one length); NaN for an empty
    row.
    """
    found = np.full(ranks.shape, np.nan)
    for places, rows in differences.portions(cells=MAX_LISTED, size=_size):
        ordered, wanted = np.sort(rows, axis=1), ranks[places[0]]
        few = ordered.shape[1] <= _MAX_LISTED_N
        found[places] = _listed(ordered, wanted) if few else _counted(ordered[0], wanted)
    return found


def _size(n: int) -> int:
    return 1 + n * (n + 1) // 2 // _SHARE if n <= _MAX_LISTED_N else MAX_LISTED


def _listed(ordered: Reals, ranks: Integers) -> Reals:
    """Return the averages of these ranks, each from a band of its own, which neighbours share.

    The bands of the median and both bounds have more averages than one band of all three ranks, but each is partitioned
    only once.
    """
    found = np.empty((len(ordered), len(ranks)))
    distinct = np.unique(ranks)
    for near in np.split(distinct, np.flatnonzero(np.diff(distinct) > 1) + 1):
        columns = np.flatnonzero(np.isin(ranks, near))
        found[:, columns] = _banded(ordered, ranks[columns])
    return found


def _banded(ordered: Reals, ranks: Integers) -> Reals:
    n = ordered.shape[1]
    slack = (_MEDIAN_SLACK if int(ranks.max()) == n * (n + 1) // 4 + 1 else _SLACK) / sqrt(n)
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


def _counted(ordered: Reals, ranks: Integers) -> Reals:
    sums = PairSums(a=ordered, b=ordered, from_j=np.arange(len(ordered)))
    distinct, places = np.unique(ranks, return_inverse=True)
    return np.array([sums.select(int(rank)) / 2 for rank in distinct])[places]
