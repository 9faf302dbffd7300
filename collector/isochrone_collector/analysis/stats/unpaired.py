"""Shift between two regions that share no rounds: two-sample Hodges-Lehmann estimate with its interval.

The estimate is the median of all m·n differences y_j - x_i: the median of differences, not the difference of medians.
The interval runs from the k-th to the (mn+1-k)-th of them in order, with k from Mann and Whitney's U in its normal
approximation: mean mn/2, variance mn(m+n+1)/12, continuity correction (M. Hollander, D. A. Wolfe and E. Chicken,
Nonparametric Statistical Methods, 3rd ed., sections 4.1 to 4.3; from m = n = 6 on the approximation gives the exact
table's k, or one less).

The values of each side are dependent. A median of m values with inflation f varies as one of m/f, so the inflation of
the comparison is (f_x/m + f_y/n) / (1/m + 1/n); interval and p-value are corrected by it, see `long_run_variance`.
`n_eff` is that of the side with the smaller one.

Effects common to both regions, such as a provider's busy hour, are not removed as they are by pairing, so intervals are
wider.
"""

from dataclasses import dataclass
from math import floor, sqrt

import numpy as np
from scipy.special import ndtri

from isochrone_collector.analysis.stats.long_run_variance import Inflation, inflation
from isochrone_collector.analysis.stats.paired import Shift
from isochrone_collector.analysis.stats.pairwise import PairSums
from isochrone_collector.analysis.stats.ragged import Ragged, Reals
from isochrone_collector.analysis.stats.signed_rank import MIN_N

_Z = float(ndtri(0.975))


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """The shift between two samples. `greater` is the share of pairs in which y is greater than x, ties counting half:
    U/mn, the probability of superiority.
    """

    shift: Shift
    n_eff: float
    p_value: float
    greater: float


def separation(x: Reals, y: Reals, *, known: Inflation | None = None) -> Separation | None:
    """Estimate the shift from x to y, each in order of its rounds; `None` if either has fewer than `MIN_N` values.

    `known` is the inflation of both sides, if it is not to be estimated from the values.
    """
    m, n = len(x), len(y)
    if min(m, n) < MIN_N:
        return None
    sides = (
        inflation(Ragged(values=np.concatenate([x, y]), offsets=np.array([0, m, m + n]))) if known is None else known
    )
    inflated = _combined(sides, m, n)
    greater = _superiority(x, y)
    deviation = sqrt(m * n * (m + n + 1) / 12)
    score = max(0.0, abs(greater - 0.5) * m * n - 0.5) / deviation
    return Separation(
        shift=_independent(x, y, depth=floor(m * n / 2 - 0.5 - _Z * deviation) + 1).widened(float(inflated.factor[0])),
        n_eff=float(sides.worth(np.array([m, n])).min()),
        p_value=float(inflated.p_values(np.array([score]))[0]),
        greater=greater,
    )


def _combined(sides: Inflation, m: int, n: int) -> Inflation:
    """Return the inflation of the comparison from those of its sides, with the degrees of freedom of B. L. Welch
    (Biometrika 34 (1947) 28-35).
    """
    parts = sides.ratio / np.array([m, n])
    known = float((parts**2 / sides.freedom).sum())
    freedom = float(parts.sum()) ** 2 / known if known else np.inf
    return Inflation(ratio=np.array([parts.sum() / (1 / m + 1 / n)]), freedom=np.array([freedom]))


def _independent(x: Reals, y: Reals, *, depth: int) -> Shift:
    sums = PairSums(a=np.sort(-x), b=np.sort(y), from_j=np.zeros(len(x), dtype=np.int64))
    total = sums.total
    estimate = (sums.select(total // 2 + 1) + sums.select(-(-total // 2))) / 2
    return Shift(estimate=estimate, low=sums.select(depth), high=sums.select(total + 1 - depth))


def _superiority(x: Reals, y: Reals) -> float:
    ordered = np.sort(x)
    below, until = np.searchsorted(ordered, y, side="left"), np.searchsorted(ordered, y, side="right")
    return float((below + until).sum() / 2 / (len(x) * len(y)))
