"""Nearest-rank quantiles with distribution-free confidence intervals.

The p-quantile of n values is the value of rank ceil(p·n). Its interval runs between two order statistics
X(l) and X(u): the number of values at or below the true quantile is Binomial(n, p), so the interval holds it with
probability P(l <= B < u), whatever the distribution of the values (H. A. David and H. N. Nagaraja, Order Statistics,
3rd ed., section 7.1). Below n = 6 for the median, 29 for p90, 59 for p95 and 299 for p99 no pair of ranks reaches 95 %.

Dependent values are as good as fewer independent ones (`long_run_variance`). The interval is then the one of that many
values, with each rank at the same share of all values.

A censored value, such as that of a probe that timed out, is known only to exceed its limit. It ranks above all others,
so that it raises p95 instead of being ignored.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, floor

import numpy as np
from scipy.special import bdtr, bdtrc

from isochrone_collector.analysis.stats.long_run_variance import Inflation, inflation
from isochrone_collector.analysis.stats.ragged import Ragged, Reals
from isochrone_wire.answers import Quantile

_ERROR = 0.05
# Binomial tails are computed; a bound that misses 0.95 by rounding alone is kept.
_ROUNDING = 1e-12


def quantile(
    values: Sequence[float], share: float, *, censored: Sequence[float] = (), factor: float = 1.0
) -> Quantile | None:
    """Return the quantile `share` (0 < share < 1) with its 95 % interval, or `None` without values.

    `censored` holds the limits of values known only to exceed them; a rank among them is reported as the larger of its
    limit and the largest value. `factor` is that of `Inflation` of the exceedances of the quantile.
    """
    ordered = _ordered(values, censored)
    n = len(ordered)
    if n == 0:
        return None
    value = float(ordered[_nearest_rank(n, share) - 1])
    ranks = dependent_ranks(n, share, factor)
    if ranks is None:
        return Quantile(value=value)
    return Quantile(value=value, low=float(ordered[ranks[0] - 1]), high=float(ordered[ranks[1] - 1]))


def dependent_ranks(n: int, share: float, factor: float) -> tuple[int, int] | None:
    """Return the ranks of `interval_ranks` for n values whose intervals are wider by `factor`."""
    worth = independent_size(n, factor)
    ranks = interval_ranks(worth, share)
    if ranks is None or worth == n:
        return ranks
    low, high = (rank / (worth + 1) * (n + 1) for rank in ranks)
    return max(1, floor(low)), min(n, ceil(high))


def independent_size(n: int, factor: float) -> int:
    """Return how many independent values are as good as n values whose intervals are wider by `factor`."""
    return min(n, floor(n / factor**2))


def exceedance_inflation(series: Ragged, quantiles: Reals) -> Inflation:
    """Return the inflation of exceeding a quantile, one per row of values in the order of their rounds."""
    above = series.values > np.repeat(quantiles, series.counts)
    return inflation(Ragged(values=above.astype(np.float64), offsets=series.offsets))


@lru_cache(maxsize=4096)
def interval_ranks(n: int, share: float) -> tuple[int, int] | None:
    """Return the ranks (l, u), from 1, whose order statistics bound the quantile with at least 95 %, or `None`.

    Each side gets half of the error; if even the extreme value leaves more than that on its side, the other side gets
    the rest.
    """
    least_below, least_above = float((1 - share) ** n), float(share**n)
    if least_below + least_above > _ERROR + _ROUNDING:
        return None
    below, above = _shares_of_error(least_below, least_above)
    # Rank l misses when fewer than l values lie below the quantile, rank u when u or more do.
    low = bisect_right(range(n), below + _ROUNDING, key=lambda count: float(bdtr(count, n, share)))
    high = bisect_left(range(n), True, key=lambda count: bool(bdtrc(count, n, share) <= above + _ROUNDING)) + 1
    return low, high


def _shares_of_error(least_below: float, least_above: float) -> tuple[float, float]:
    half = _ERROR / 2
    if least_above > half:
        return _ERROR - least_above, least_above
    if least_below > half:
        return least_below, _ERROR - least_below
    return half, half


def _nearest_rank(n: int, share: float) -> int:
    return min(n, max(1, ceil(share * n - _ROUNDING * n)))


def _ordered(values: Sequence[float], censored: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    known = np.sort(np.asarray(values, dtype=np.float64))
    limits = np.sort(np.asarray(censored, dtype=np.float64))
    return np.concatenate([known, np.maximum(limits, known[-1]) if len(known) else limits])
