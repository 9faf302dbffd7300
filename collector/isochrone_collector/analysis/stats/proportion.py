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


# Goodput asks for sizes that are no integers, and 70.0 equals 70: an untyped cache would return one n for the other.
@lru_cache(maxsize=4096, typed=True)
def wilson(count: int, n: int) -> Proportion | None:
    """Return the share of `count` in `n` trials with its 95 % interval; `None` without trials."""
    if n == 0:
        return None
    share, spread = count / n, _Z**2 / n
    centre = (share + spread / 2) / (1 + spread)
    half = _Z * sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    low = 0.0 if count == 0 else centre - half
    high = 1.0 if count == n else centre + half
    return Proportion(value=share, low=low, high=high, n=n)
