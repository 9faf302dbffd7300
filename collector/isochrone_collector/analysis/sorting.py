"""Sorting and grouping of rows that are stored as columns."""

import numpy as np

from isochrone_collector.analysis.probes import Integers, Reals

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
    """Return the order of rows, given as runs of these lengths, by a key within each run; NaN sorts last. Runs of one
    row, the usual case, are skipped.
    """
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
