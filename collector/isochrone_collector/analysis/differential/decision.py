"""Decisions on shifts: `faster`, `slower`, `equivalent`, or `undecided` with the reason in words.

The laws:

1. `faster` and `slower` need an interval that excludes zero and a shift that matters, and must survive the correction
   for all comparisons of the same answer: of a hundred equal pairs, five have an interval that excludes zero.
2. `equivalent` needs the whole interval to be within the margin. That is two one-sided tests at 2.5 % each, of "it is
   slower by the margin" and of "it is faster by the margin" (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987)
   657-680, who allows 5 % each).
3. No decision favours a side that lost most of its rounds: the remaining rounds are not what its users see. A decision
   against that side is still possible.
4. Everything else is `undecided`.

The correction is Benjamini and Hochberg's step-up procedure: with the p-values in order, p(1) <= … <= p(m), deciding
for every comparison with q(i) = min over j >= i of m·p(j)/j at or below 5 % keeps the expected share of false decisions
at or below 5 %, for tests that are independent or positively dependent, as those against a common baseline are
(Y. Benjamini and Y. Hochberg, JRSS B 57 (1995) 289-300; Y. Benjamini and D. Yekutieli, Annals of Statistics 29 (2001)
1165-1188).
"""

import numpy as np

from isochrone_collector.analysis.probes import Reals
from isochrone_collector.analysis.stats.paired import Shift
from isochrone_collector.analysis.stats.signed_rank import MIN_N
from isochrone_wire.answers import Decision, Metric

MARGIN_US = 20_000
MARGIN_SHARE = 0.05
MAX_FALSE_SHARE = 0.05

Verdict = tuple[Decision, str]
"""A decision and the reason for `undecided`, empty otherwise."""


def margin_of(metric: Metric, baseline_median: float) -> float:
    """Return the smallest difference that matters: 20 ms or 5 % of the baseline, if larger; 5 % for a rate."""
    share = MARGIN_SHARE * abs(baseline_median)
    return share if metric.more_is_better else max(MARGIN_US, share)


def decide(shift: Shift, *, n: int, margin: float, metric: Metric, undetermined: int = 0) -> Verdict:
    """Decide on one shift of n rounds alone; if n is too few, the reason mentions the `undetermined` rounds."""
    low, high = shift.low, shift.high
    if low is None or high is None:
        parts = (f"{n} of {MIN_N} rounds needed", undetermined_note(undetermined))
        return Decision.UNDECIDED, "; ".join(filter(None, parts))
    if -margin <= low and high <= margin:
        return Decision.EQUIVALENT, ""
    if low <= 0 <= high:
        return Decision.UNDECIDED, "the interval includes zero, and also differences that matter"
    if abs(shift.estimate) < margin:
        return Decision.UNDECIDED, "the interval excludes zero, but the difference may be too small to matter"
    better = (shift.estimate > 0) == metric.more_is_better
    return (Decision.FASTER if better else Decision.SLOWER), ""


def after_losses(verdict: Verdict, *, baseline: str, region: str) -> Verdict:
    """Withdraw a verdict in favour of a side that lost most of its rounds.

    `baseline` and `region` are the reasons, empty for a side that did not.
    """
    decision, _ = verdict
    against = {Decision.FASTER: region, Decision.SLOWER: baseline, Decision.EQUIVALENT: region or baseline}
    reason = against.get(decision, "")
    return (Decision.UNDECIDED, reason) if reason else verdict


def mostly_lost(region: str, *, lost: int, rounds: int) -> str:
    """Return the reason if a region lost most of its rounds to timeouts, else an empty text."""
    return f"most rounds of {region} ended in a timeout" if 2 * lost > rounds else ""


def undetermined_note(undetermined: int) -> str:
    """Report the shared rounds left out because a timeout leaves their sign open; empty without any."""
    return f"{undetermined} left out: a timeout of one side came before the other's answer" if undetermined else ""


def q_values(p_values: Reals) -> Reals:
    """Return the lowest false-discovery rate at which each comparison is decided; NaN without a p-value.

    Of m p-values, the k-th smallest gets m/k times itself, and at most what the next larger one gets (Y. Benjamini and
    Y. Hochberg, Controlling the false discovery rate, J. R. Stat. Soc. B 57, 1995).
    """
    found = np.full(len(p_values), np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    falling = known[np.argsort(-p_values[known])]
    places = np.arange(len(falling), 0, -1)
    found[falling] = np.minimum.accumulate(np.minimum(p_values[falling] * len(falling) / places, 1.0))
    return found


def adjusted_for_comparisons(verdict: Verdict, *, q_value: float | None, comparisons: int) -> Verdict:
    """Withdraw a difference that may be chance among so many comparisons."""
    decision, _ = verdict
    if decision in {Decision.FASTER, Decision.SLOWER} and (q_value is None or q_value > MAX_FALSE_SHARE):
        shown = "unknown" if q_value is None else f"{q_value:.3f}"
        return (
            Decision.UNDECIDED,
            f"may be chance among {comparisons} comparisons (q-value {shown}; {MAX_FALSE_SHARE} needed)",
        )
    return verdict
