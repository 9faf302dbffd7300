"""Many comparisons at once: how many of those we call different are none.

Benjamini and Hochberg's step-up procedure: with the p-values in order, p(1) <= … <= p(m), calling different whatever
has q(i) = min over j >= i of m·p(j)/j at or below 5 % keeps the expected share of false calls among all calls at or
below 5 %, for tests that are independent or positively dependent, as those against a common baseline are (Y. Benjamini
and Y. Hochberg, JRSS B 57 (1995) 289-300; Y. Benjamini and D. Yekutieli, Annals of Statistics 29 (2001) 1165-1188).
"""

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

MAX_FALSE_SHARE = 0.05


def q_values(p_values: Reals) -> Reals:
    """The least false-discovery rate at which each is called different; NaN where there is no p-value."""
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known])]
    m = len(order)
    rates = p_values[order] * m / np.arange(1, m + 1)
    found = np.full(len(p_values), np.nan)
    found[order] = np.minimum(np.minimum.accumulate(rates[::-1])[::-1], 1.0)
    return found
