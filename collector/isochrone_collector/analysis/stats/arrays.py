"""Arrays of numbers: their types, rows of different lengths in one array, ranks and sorting."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged:
    """Rows in one array: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: Reals
    offsets: Integers

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> Integers:
        """The length of each row."""
        return np.diff(self.offsets)

    def row(self, place: int) -> Reals:
        """Return the numbers of one row."""
        return self.values[self.offsets[place] : self.offsets[place + 1]]

    def portions(self, *, cells: int, size: Callable[[int], int] = int) -> "Iterator[tuple[Integers, Reals]]":
        """Yield the rows of one length, with their places, in matrices of at most so many cells of `size(n)`."""
        counts = self.counts
        if not len(counts):
            return
        if len(counts) == 1:
            if counts[0]:
                yield np.zeros(1, dtype=np.int64), self.row(0)[np.newaxis].copy()
            return
        order = np.argsort(counts, kind="stable")
        lengths, starts = np.unique(counts[order], return_index=True)
        for n, places in zip(lengths.tolist(), np.split(order, starts[1:]), strict=True):
            if n:
                windows, taken = sliding_window_view(self.values, n), max(1, cells // size(n))
                for start in range(0, len(places), taken):
                    portion = places[start : start + taken]
                    yield portion, windows[self.offsets[portion]]


def grouped(values: Reals, groups: Integers, *, rows: int) -> Ragged:
    """Return values, whose groups ascend from 0 to below `rows`, as rows."""
    return Ragged(values=values, offsets=np.searchsorted(groups, np.arange(rows + 1)))


def ragged(rows: Sequence[Reals]) -> Ragged:
    """Concatenate rows."""
    values = np.concatenate(rows) if rows else np.empty(0)
    return Ragged(values=values, offsets=np.cumsum([0, *(len(row) for row in rows)]))


def mean_ranks(rows: Reals) -> Reals:
    """Return the ranks, from 1, of the numbers of each row (an m by n matrix); ties share the mean of their ranks."""
    if not rows.size:
        return np.zeros(rows.shape)
    # Not stable, which would take four times as long: ties share their ranks.
    order = np.argsort(rows, axis=1)
    ordered = np.take_along_axis(rows, order, axis=1)
    begins = np.ones(rows.shape, dtype=np.bool_)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    places = np.flatnonzero(begins)
    ties = np.diff(places, append=rows.size)
    shared = places % rows.shape[1] + (ties + 1) / 2
    ranks = np.empty(rows.shape)
    np.put_along_axis(ranks, order, np.repeat(shared, ties).reshape(rows.shape), axis=1)
    return ranks


# That of the coarsest usual clock, 15.625 ms: values that are farther apart are not next to each other by their clock.
_COARSEST_US = 15_625.0
_MS = 1_000.0


def granularities(ordered: Reals) -> Reals:
    """Return the granularity of each ascending row of microseconds: the smallest step between its values, if some
    repeat, at most 15.625 ms; a millisecond if all are the same number of whole milliseconds; else 0.

    A value by a clock that ticks so coarsely is off by up to a tick, and a difference of two values likewise. Infinite
    values are ignored.
    """
    found = np.zeros(len(ordered))
    repeats = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    values = np.where(np.isfinite(ordered[repeats]), ordered[repeats], np.nan)
    steps = np.diff(values, axis=1)
    smallest = np.where(steps > 0, steps, np.inf).min(axis=1, initial=np.inf)
    whole = np.where((values[:, :1] % _MS == 0).any(axis=1), _MS, 0.0)
    ticks = np.where(np.isfinite(smallest), np.minimum(smallest, _COARSEST_US), whole)
    found[repeats] = np.where((steps == 0).any(axis=1), ticks, 0.0)
    return found


_LARGEST = np.iinfo(np.int64).max


def order_by(group: Integers, at: Integers) -> Integers:
    """Return the order by group (from 0), then instant. Sorting one combined key is ten times as fast as two."""
    if not len(group):
        return np.empty(0, dtype=np.int64)
    place = at - at.min()
    span = int(place.max()) + 1
    if span > _LARGEST // (int(group.max()) + 1):
        return np.lexsort((at, group))
    return np.argsort(group * span + place)


def beginnings(group: Integers, at: Integers) -> Integers:
    """Return the place of the first row of each group and instant in sorted columns."""
    if not len(group):
        return np.empty(0, dtype=np.int64)
    new = (group[1:] != group[:-1]) | (at[1:] != at[:-1])
    return np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(new) + 1])


def order_within(key: Reals, lengths: Integers) -> Integers:
    """Return the order of rows, in runs of these lengths, by a key within each run; NaN sorts last."""
    order = np.arange(len(key))
    several = np.flatnonzero(np.repeat(lengths > 1, lengths))
    run = np.repeat(np.arange(len(lengths)), lengths)[several]
    order[several] = several[np.lexsort((key[several], run))]
    return order


def medians_within(values: Reals, lengths: Integers) -> Reals:
    """Return the median of each run of values; runs must not be empty, values not NaN."""
    ordered = values[order_within(values, lengths)]
    first = np.cumsum(lengths) - lengths
    return np.asarray((ordered[first + (lengths - 1) // 2] + ordered[first + lengths // 2]) / 2)
