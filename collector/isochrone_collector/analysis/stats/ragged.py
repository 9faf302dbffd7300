"""Rows of different lengths in one array, so that thousands of pairs are estimated at once."""

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
        """Yield all rows but the empty ones, as matrices of rows of one length, with the rows' places.

        A row of n numbers takes `size(n)` cells, and a matrix at most `cells` unless it has a single row.
        """
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
