"""Rows of columns put together by what they share."""

import numpy as np

from isochrone_collector.analysis.probes import Integers, Reals

_LARGEST = np.iinfo(np.int64).max


def order_by(group: Integers, at: Integers) -> Integers:
    """The order by group and then instant; groups count from 0. One number instead of two is ten times as fast."""
    if not len(group):
        return np.empty(0, dtype=np.int64)
    place = at - at.min()
    span = int(place.max()) + 1
    if span > _LARGEST // (int(group.max()) + 1):
        return np.lexsort((at, group))
    return np.argsort(group * span + place)


def beginnings(group: Integers, at: Integers) -> Integers:
    """Where in sorted columns the first row of each group and instant is."""
    if not len(group):
        return np.empty(0, dtype=np.int64)
    new = (group[1:] != group[:-1]) | (at[1:] != at[:-1])
    return np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(new) + 1])


def order_within(key: Reals, lengths: Integers) -> Integers:
    """The order of rows, which come in runs of these lengths, by a key within each run; NaN is last. A run of a single
    row, as most are, takes next to no time.
    """
    order = np.arange(len(key))
    several = np.flatnonzero(np.repeat(lengths > 1, lengths))
    run = np.repeat(np.arange(len(lengths)), lengths)[several]
    order[several] = several[np.lexsort((key[several], run))]
    return order


def medians_within(values: Reals, lengths: Integers) -> Reals:
    """The median of each run of values, none of which is empty or unknown."""
    ordered = values[order_within(values, lengths)]
    first = np.cumsum(lengths) - lengths
    return np.asarray((ordered[first + (lengths - 1) // 2] + ordered[first + lengths // 2]) / 2)
