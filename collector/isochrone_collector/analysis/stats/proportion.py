"""Proportion of successes with its interval.

Wilson's score interval of k successes in n trials, p = k/n and z = 1.96:
(p + z²/2n ± z·√(p(1-p)/n + z²/4n²)) / (1 + z²/n). Unlike p ± z·√(p(1-p)/n) its coverage holds near 0 and 1 and for
few trials (E. B. Wilson, JASA 22 (1927) 209-212; recommended by L. D. Brown, T. T. Cai and A. DasGupta, Statistical
Science 16 (2001) 101-133).
"""

from functools import lru_cache
from math import sqrt

from scipy.special import ndtri

from isochrone_wire.answers import Proportion

_Z = float(ndtri(0.975))


@lru_cache(maxsize=4096)
def wilson(count: int, n: int, *, n_eff: float | None = None) -> Proportion | None:
    """Return the share of `count` in `n` trials with the 95 % interval of `n_eff` independent ones, of n without it;
    `None` without trials.
    """
    if n == 0:
        return None
    # The formula holds for sizes that are no integers.
    size = n if n_eff is None else n_eff
    share, spread = count / n, _Z**2 / size
    centre = (share + spread / 2) / (1 + spread)
    half = _Z * sqrt(share * (1 - share) / size + spread / (4 * size)) / (1 + spread)
    low = 0.0 if count == 0 else centre - half
    high = 1.0 if count == n else centre + half
    return Proportion(value=share, low=low, high=high, n=n, n_eff=n_eff)
