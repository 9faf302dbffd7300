"""Wilcoxon's signed-rank statistic: its distribution, and p-values of differences that may be autocorrelated.

W is the sum of the ranks of |d| over the positive d; ties share their mean rank and a zero counts half. With no true
shift both signs are equally likely, so P(W <= w) counts subsets of 1..n by their sum: exact up to n = 50, and above
that normal with mean n(n+1)/4, variance n(n+1)(2n+1)/24 and a continuity correction (M. Hollander, D. A. Wolfe and E.
Chicken, Nonparametric Statistical Methods, 3rd ed., section 3.1).

Dependent differences make W vary more, so the standard score of its p-value is divided by the root of their inflation,
just as the interval is widened; see `long_run_variance`.
"""

from functools import lru_cache
from math import floor, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from isochrone_collector.analysis.stats.long_run_variance import Inflation
from isochrone_collector.analysis.stats.ragged import Ragged, Reals
from isochrone_collector.analysis.stats.ranks import mean_ranks

MIN_N = 6
"""The number of differences below which no interval reaches 95 %."""

_TAIL = 0.025
_MAX_EXACT_N = 50
_CELLS = 1 << 17


def signed_rank_counts(n: int) -> Reals:
    """Count the sign patterns, of 2^n, in which the statistic is 0, 1, 2, …: the subsets of 1..n by their sum."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1
    for rank in range(1, n + 1):
        counts[rank:] += counts[:-rank].copy()
    return counts


@lru_cache(maxsize=4096)
def interval_depth(n: int) -> int | None:
    """Return the rank, from 1, of the Walsh average that bounds the 95 % interval on either side; `None` without."""
    if n > _MAX_EXACT_N:
        mean, deviation = _moments(n)
        return floor(mean - 0.5 + float(ndtri(_TAIL)) * deviation) + 1
    depth = int(np.searchsorted(_tails(n), _TAIL, side="right"))
    return depth or None


def p_values(series: Ragged, inflation: Inflation) -> Reals:
    """Return each row's two-sided p-value of no shift, with effective size n/τ; NaN below `MIN_N` differences."""
    found = np.full(len(series), np.nan)
    for places, rows in series.portions(cells=_CELLS):
        n = rows.shape[1]
        if n >= MIN_N:
            statistics = _statistics(rows)
            smaller = np.minimum(statistics, n * (n + 1) / 2 - statistics)
            found[places] = np.minimum(2 * _tail(smaller, n), 1.0)
    return inflation.p_values(-ndtri(found / 2))


def _statistics(rows: Reals) -> Reals:
    ranks = mean_ranks(np.abs(rows))
    return np.asarray(np.einsum("ij,ij->i", ranks, (np.sign(rows) + 1) / 2))


def _tail(statistics: Reals, n: int) -> Reals:
    """Return P(W <= w)."""
    if n <= _MAX_EXACT_N:
        return _tails(n)[np.ceil(statistics).astype(np.int64)]
    mean, deviation = _moments(n)
    return np.asarray(ndtr((statistics + 0.5 - mean) / deviation))


def _moments(n: int) -> tuple[float, float]:
    return n * (n + 1) / 4, sqrt(n * (n + 1) * (2 * n + 1) / 24)


@lru_cache(maxsize=_MAX_EXACT_N + 1)
def _tails(n: int) -> Reals:
    return np.asarray(np.cumsum(signed_rank_counts(n)) / 2.0**n)
