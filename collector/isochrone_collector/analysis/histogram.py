"""Histograms with logarithmic buckets: small enough to keep for years, and mergeable without loss.

After DDSketch (C. Masson, J. E. Rim and H. K. Lee, DDSketch: a fast and fully-mergeable quantile sketch with relative-
error guarantees, PVLDB 12(12), 2019), without collapsing buckets.

The laws:

1. Bucket b holds the values x with g^(b-1) < x <= g^b, g = 1.01/0.99, and is represented by 2g^b/(g+1), which differs
   from x by at most 1 %. Values of zero or less have their own bucket, represented by 0.
2. Merging adds counts, so the order does not matter, and blobs of `pack` may be concatenated.
3. Ranks are exact: a quantile is the bucket of the very value that `stats.binomial` would have chosen, and its interval
   lies between the buckets of the same two order statistics, but its half-width is at least the bucket's.
4. Censored values rank above all others, as in `stats.binomial`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isochrone_collector.analysis.stats.arrays import Integers, Reals, granularities
from isochrone_collector.analysis.stats.binomial import dependent_ranks, interval_ranks, ranks_of
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Quantile

GAMMA = 1.01 / 0.99
RELATIVE_ERROR = 0.01

_LOG_GAMMA = log(GAMMA)
_NOTHING = -32_768
_LOWEST, _HIGHEST = -32_767, 32_767
_ENTRY = np.dtype([("bucket", "<i2"), ("count", "<u4")])
# As in stats.binomial: rounding in share * n must not raise a rank.
_ROUNDING = 1e-12


def buckets_of(values: ArrayLike) -> Integers:
    """Return the bucket of each value."""
    given = np.asarray(values, np.float64)
    above = given > 0
    exponents = np.ceil(np.log(np.where(above, given, 1.0)) / _LOG_GAMMA)
    return np.where(above, np.clip(exponents, _LOWEST, _HIGHEST), _NOTHING).astype(np.int64)


def values_of(buckets: ArrayLike) -> Reals:
    """Return the value that represents each bucket."""
    given = np.asarray(buckets, np.int64)
    return np.where(given == _NOTHING, 0.0, 2 / (GAMMA + 1) * np.exp(_LOG_GAMMA * np.maximum(given, _LOWEST)))


def pack(values: ArrayLike) -> bytes:
    """Encode values for storage: six bytes per bucket, its number and its count, buckets ascending."""
    return _packed(*np.unique(buckets_of(values), return_counts=True))


def count(blob: bytes) -> int:
    """Count the values in a blob. Raises `ValueError` if it is not a histogram."""
    return int(np.frombuffer(blob, _ENTRY)["count"].sum(dtype=np.int64))


def _packed(buckets: Integers, counts: Integers) -> bytes:
    entries = np.empty(len(buckets), _ENTRY)
    entries["bucket"], entries["count"] = buckets, counts
    return entries.tobytes()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histograms:
    """Histograms of many groups over the same buckets, ascending: a row of counts of values and one of limits each."""

    buckets: Integers
    known: Integers
    limits: Integers

    def __len__(self) -> int:
        return len(self.known)

    @property
    def n(self) -> Integers:
        """The number of values of each group, censored ones included."""
        return np.asarray(self.known.sum(axis=1) + self.limits.sum(axis=1))

    def quantile(self, share: float) -> Reals:
        """Return the nearest-rank quantile `share` (0 < share < 1) of each group; NaN for a group without values."""
        n = self.n
        ranks = np.clip(np.ceil(share * n - _ROUNDING * n), 1, np.maximum(n, 1)).astype(np.int64)
        return np.where(n > 0, self.at(ranks), np.nan)

    def bounds(self, share: float) -> tuple[Reals, Reals]:
        """Return the 95 % interval of the quantile `share` of independent values of each group; NaN with too few."""
        ranks = ranks_of(self.n, lambda n: interval_ranks(int(n), share))
        low, high = (np.where(rank > 0, self.at(np.maximum(rank, 1)), np.nan) for rank in ranks)
        return low, high

    def interpolated(self, share: float) -> Reals:
        """Return the quantile `share` of each group, linear within its bucket; NaN without values."""
        if not len(self.buckets):
            return np.full(len(self), np.nan)
        running = self.known.cumsum(axis=1)
        total = running[:, -1]
        wanted = np.clip(share * self.n, 0.5, np.maximum(total, 1)).astype(np.float64)
        place = _first_reaching(running, np.ceil(wanted).astype(np.int64))
        rows = np.arange(len(self))
        inside = self.known[rows, place]
        within = np.divide(wanted - (running[rows, place] - inside), inside, out=np.ones(len(self)), where=inside > 0)
        upper = np.exp(_LOG_GAMMA * np.maximum(self.buckets[place], _LOWEST))
        level = np.where(self.buckets[place] == _NOTHING, 0.0, upper * (1 - (1 - within) * (1 - 1 / GAMMA)))
        return np.where(total > 0, level, np.nan)

    def above(self, value: float) -> Integers:
        """Count the values of each group in buckets above that of `value`, censored ones included."""
        (bucket,) = buckets_of([value])
        return np.asarray(self.known[:, self.buckets > bucket].sum(axis=1) + self.limits.sum(axis=1))

    def coarsened(self, most: int) -> tuple[Reals, Reals, Integers]:
        """Join buckets to at most `most` bins and one of zeros: edges, and the known values of each group in each."""
        above = self.buckets > _NOTHING
        width = 1
        while len(_bins(self.buckets[above], width)) and np.ptp(_bins(self.buckets[above], width)) >= most:
            width *= 2
        places = np.where(above, _bins(self.buckets, width), _NOTHING - 1)
        bins, starts = np.unique(places, return_index=True)
        counts = np.add.reduceat(self.known, starts, axis=1) if len(starts) else self.known
        low, high = (np.where(bins < _NOTHING, 0.0, np.exp(_LOG_GAMMA * width * edge)) for edge in (bins, bins + 1))
        return low, high, counts

    def total(self) -> "Histograms":
        """Return all groups merged into one."""
        known, limits = (counts.sum(axis=0, keepdims=True) for counts in (self.known, self.limits))
        return Histograms(buckets=self.buckets, known=known, limits=limits)

    def blobs(self) -> list[tuple[bytes, bytes]]:
        """Encode each group's values and limits as `pack` does."""
        known, limits = (
            [_packed(self.buckets[row > 0], row[row > 0]) for row in counts] for counts in (self.known, self.limits)
        )
        return list(zip(known, limits, strict=True))

    def group(self, place: int) -> "Histogram":
        """Return one of the groups."""
        row = slice(place, place + 1)
        return Histogram(Histograms(buckets=self.buckets, known=self.known[row], limits=self.limits[row]))

    def at(self, ranks: Integers) -> Reals:
        """Return the value of each group's rank, counted from 1; undefined for ranks above n."""
        if not len(self.buckets):
            return np.zeros(len(self))
        known = self.known.cumsum(axis=1)
        among_known = _first_reaching(known, ranks)
        largest = _first_reaching(known, known[:, -1])
        among_limits = _first_reaching(self.limits.cumsum(axis=1), ranks - known[:, -1])
        has_known = known[:, -1] > 0
        beyond = np.where(has_known, np.maximum(among_limits, largest), among_limits)
        return values_of(self.buckets[np.where(ranks <= known[:, -1], among_known, beyond)])


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """One histogram: a `distribution.Distribution`."""

    _alone: Histograms

    @property
    def known(self) -> int:
        """The number of values that are not censored."""
        return int(self._alone.known.sum())

    @property
    def n(self) -> int:
        """The number of values, censored ones included."""
        return int(self._alone.n[0])

    def quantile(self, share: float, history: VarianceInflation | None = None) -> Quantile | None:
        """Return the quantile `share` (0 < share < 1), with an interval if there is history: the order is not known."""
        if not self.n:
            return None
        value = float(self._alone.quantile(share)[0])
        if history is None or not np.isfinite(history.ratio[0]):
            return Quantile(value=value)
        n_eff = float(history.of_counts(np.array([self.n]))[0])
        ranks = dependent_ranks(self.n, share, n_eff) or (0, 0)
        low, high = (float(self._alone.at(np.array([rank]))[0]) if rank else None for rank in ranks)
        least = self._granularity(value)
        return Quantile(
            value=value,
            low=None if low is None else min(low, value - least),
            high=None if high is None else max(high, value + least),
            n_eff=n_eff,
        )

    def _granularity(self, value: float) -> float:
        """Return that of the values, by the buckets that occur, and at least the relative error of `value`."""
        occurring = values_of(self._alone.buckets[self._alone.known[0] > 0])
        of_values = granularities(np.append(occurring[:1], occurring)[np.newaxis])[0]
        return max(float(of_values), RELATIVE_ERROR * value)

    def within(self, limit: float) -> tuple[int, int]:
        """Return how many values are certainly at most `limit`, and with its own bucket and limits below it."""
        (bucket,) = buckets_of([limit])
        known, limits = self._alone.known[0], self._alone.limits[0]
        inside = self._alone.buckets <= bucket
        sure = _shares_within(self._alone.buckets, limit) == 1
        return int(known[sure].sum()), int(known[inside].sum() + limits[inside].sum())

    def up_to(self, limit: float) -> int:
        """Estimate how many values are at most `limit`, as if those of a bucket were spread evenly over it."""
        return round(float(self._alone.known[0] @ _shares_within(self._alone.buckets, limit)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SortedEntries:
    """Histograms of many small groups, 0 to `of` - 1, as the buckets that occur, by group and then ascending."""

    groups: Integers
    buckets: Integers
    counts: Integers
    of: int

    @property
    def n(self) -> Integers:
        """The number of values of each group."""
        return self._added(self.counts)

    def at(self, ranks: Integers) -> Reals:
        """Return the value of each group's rank, counted from 1; undefined for ranks above n."""
        if not len(self.buckets):
            return np.zeros(self.of)
        n = self.n
        places = np.searchsorted(self.counts.cumsum(), n.cumsum() - n + ranks)
        return values_of(self.buckets[places.clip(max=len(self.buckets) - 1)])

    def up_to(self, limit: float) -> Integers:
        """Estimate how many values of each group are at most `limit`, as `Histogram.up_to` does."""
        return self._added(self.counts * _shares_within(self.buckets, limit))

    def _added(self, counts: Integers | Reals) -> Integers:
        return np.rint(np.bincount(self.groups, weights=counts, minlength=self.of)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joined:
    """Concatenated blobs, with the size in bytes and the group of each."""

    content: bytes
    sizes: Integers
    groups: Integers


def merge(known: Iterable[bytes], limits: Iterable[bytes], groups: ArrayLike, *, of: int) -> Histograms:
    """Merge blobs of values and of limits, by their group, into groups 0 to `of` - 1. Raises `ValueError`."""
    owners = np.asarray(groups, np.int64)
    return merge_joined(_join(known, owners), _join(limits, owners), of=of)


def merge_joined(known: Joined, limits: Joined, *, of: int) -> Histograms:
    """As `merge`, for blobs that are already concatenated."""
    of_known, of_limits = _entries(known), _entries(limits)
    occupied = np.zeros(_HIGHEST - _NOTHING + 1, np.bool_)
    for entries, _ in (of_known, of_limits):
        occupied[entries["bucket"].astype(np.int64) - _NOTHING] = True
    places = np.cumsum(occupied) - 1
    buckets = np.flatnonzero(occupied) + _NOTHING
    return Histograms(
        buckets=buckets,
        known=_added(*of_known, places=places, shape=(of, len(buckets))),
        limits=_added(*of_limits, places=places, shape=(of, len(buckets))),
    )


def sort_entries(joined: Joined, *, of: int) -> SortedEntries:
    """Return the histograms of groups 0 to `of` - 1. Raises `ValueError` for an invalid blob."""
    entries, groups = _entries(joined)
    buckets = entries["bucket"].astype(np.int64)
    order = np.lexsort((buckets, groups))
    counts = entries["count"].astype(np.int64)
    return SortedEntries(groups=groups[order], buckets=buckets[order], counts=counts[order], of=of)


def split(joined: Joined, *, of: int) -> list[bytes]:
    """Return the blobs of each group, concatenated. Raises `ValueError` for an invalid blob."""
    entries, groups = _entries(joined)
    ordered = entries[np.argsort(groups, kind="stable")]
    return [part.tobytes() for part in np.split(ordered, np.bincount(groups, minlength=of).cumsum()[:-1])]


def _join(blobs: Iterable[bytes], groups: Integers) -> Joined:
    listed = list(blobs)
    sizes = np.fromiter(map(len, listed), np.int64, len(listed))
    return Joined(content=b"".join(listed), sizes=sizes, groups=groups)


def _entries(joined: Joined) -> tuple[NDArray[np.void], Integers]:
    """Return all entries of all blobs, and the group of each."""
    counts, rest = np.divmod(joined.sizes, _ENTRY.itemsize)
    if rest.any():
        raise ValueError(f"a histogram has {_ENTRY.itemsize} bytes per bucket")
    return np.frombuffer(joined.content, _ENTRY), np.repeat(joined.groups, counts)


def _added(entries: NDArray[np.void], owners: Integers, *, places: Integers, shape: tuple[int, int]) -> Integers:
    cells = owners * shape[1] + places[entries["bucket"].astype(np.int64) - _NOTHING]
    # bincount adds floats, in which sums of integers below 2^53 are exact.
    totals = np.bincount(cells, weights=entries["count"], minlength=shape[0] * shape[1])
    return totals.astype(np.int64).reshape(shape)


def _first_reaching(running: Integers, ranks: Integers) -> Integers:
    """Return, for each row of running totals, the first place that reaches the rank; the last if none does."""
    short: Integers = (running < ranks[:, None]).sum(axis=1)
    return short.clip(max=running.shape[1] - 1)


def _bins(buckets: Integers, width: int) -> Integers:
    """Return the bins of `width` buckets each; their edges are those of buckets, the same for all data."""
    return (buckets - 1) // width


def _shares_within(buckets: Integers, limit: float) -> Reals:
    """Return the share of each bucket that is at most `limit`: of its own one, that of the width below it."""
    (bucket,) = buckets_of([limit])
    upper_edge = 0.0 if bucket == _NOTHING else float(np.exp(_LOG_GAMMA * bucket))
    own = 1.0 if upper_edge <= limit else (limit * GAMMA / upper_edge - 1) / (GAMMA - 1)
    return np.where(buckets == bucket, np.clip(own, 0.0, 1.0), np.where(buckets < bucket, 1.0, 0.0))
