"""Ranks of numbers.

`scipy.stats` has them too, but its import takes about as long as all others of the collector together.
"""

import numpy as np

from isochrone_collector.analysis.stats.ragged import Reals


def mean_ranks(rows: Reals) -> Reals:
    """Return the ranks, from 1, of the numbers of each row (an m by n matrix); ties share the mean of their ranks."""
    if not rows.size:
        return np.zeros(rows.shape)
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    begins = np.ones(rows.shape, dtype=np.bool_)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    places = np.flatnonzero(begins)
    ties = np.diff(places, append=rows.size)
    shared = places % rows.shape[1] + (ties + 1) / 2
    ranks = np.empty(rows.shape)
    np.put_along_axis(ranks, order, np.repeat(shared, ties).reshape(rows.shape), axis=1)
    return ranks
