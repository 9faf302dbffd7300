"""False-discovery rate of many comparisons.

Of a hundred equal pairs, five have an interval that excludes zero. The correction is Benjamini and Hochberg's step-up
procedure: with the p-values in order, p(1) <= … <= p(m), deciding for every comparison with q(i) = min over j >= i of
m·p(j)/j at or below 5 % keeps the expected share of false decisions at or below 5 %, for tests that are independent or
positively dependent, as those against a common baseline are (Y. Benjamini and Y. Hochberg, JRSS B 57 (1995) 289-300;
Y. Benjamini and D. Yekutieli, Annals of Statistics 29 (2001) 1165-1188).

The comparisons that count are a fixed family: those of one metric in one window against one baseline, for all targets
of the plan and all regions. A question about some of them gets the q-values that a question about all of them gets. A
comparison outside of the family, of a target that is no longer in the plan, counts as one more for itself only.

A family that would take too many probes to read is not read: each p-value is then multiplied by the size of the family
(Bonferroni), which is the largest q-value that the procedure could give.
"""

from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.probes import Flags, Reals


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The q-value of each comparison, NaN without a p-value, and the number of comparisons that it accounts for."""

    q_values: Reals
    comparisons: int


def family_rates(p_values: Reals, *, is_member: Flags, size: int | None = None) -> Rates:
    """Return the q-values of comparisons, of which some are the members of the family; `size` is the number of members
    of a family that was not read.
    """
    if size is not None:
        return Rates(q_values=np.minimum(p_values * max(size, 1), 1.0), comparisons=size)
    found = np.full(len(p_values), np.nan)
    members = p_values[is_member]
    found[is_member] = q_values(members)
    for place in np.flatnonzero(~is_member & ~np.isnan(p_values)).tolist():
        found[place] = q_values(np.append(members, p_values[place]))[-1]
    return Rates(q_values=found, comparisons=int(np.count_nonzero(~np.isnan(members))))


def q_values(p_values: Reals) -> Reals:
    """Return the lowest false-discovery rate at which each comparison is decided; NaN without a p-value.

    Of m p-values, the k-th smallest gets m/k times itself, and at most what the next larger one gets.
    """
    found = np.full(len(p_values), np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    falling = known[np.argsort(-p_values[known])]
    places = np.arange(len(falling), 0, -1)
    found[falling] = np.minimum.accumulate(np.minimum(p_values[falling] * len(falling) / places, 1.0))
    return found
