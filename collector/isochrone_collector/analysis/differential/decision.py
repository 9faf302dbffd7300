"""What a shift lets us say: `faster`, `slower`, `equivalent`, or `undecided` with the reason in words.

The laws:

1. `faster` and `slower` need an interval off zero and a shift that matters, and survive the comparison with all others
   of the same answer (see `stats.discovery`): of a hundred pairs that are alike, five have an interval off zero.
2. `equivalent` needs the whole interval to be too small to matter. That is two one-sided tests at 2.5 % each, of "it is
   slower by the margin" and of "it is faster by the margin" (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987)
   657-680, who allows 5 % each).
3. Nothing is decided in favour of a side that lost most of its rounds: what is left of it is not what its users see.
   That a side is worse may still be told.
4. Everything else is `undecided`.
"""

from isochrone_collector.analysis.stats.discovery import MAX_FALSE_SHARE
from isochrone_collector.analysis.stats.paired import Shift
from isochrone_collector.analysis.stats.signed_rank import MIN_N
from isochrone_wire.answers import Decision, Metric

MARGIN_US = 20_000
MARGIN_SHARE = 0.05

Verdict = tuple[Decision, str]


def margin_of(metric: Metric, baseline_median: float) -> float:
    """The smallest difference that matters: 20 ms or 5 % of the baseline, whichever is larger; for a rate 5 %."""
    share = MARGIN_SHARE * abs(baseline_median)
    return share if metric.more_is_better else max(MARGIN_US, share)


def decide(shift: Shift, *, n: int, margin: float, metric: Metric, undetermined: int = 0) -> Verdict:
    """What one shift of n rounds lets us say by itself; where n is too few, that `untold` more were left out."""
    low, high = shift.low, shift.high
    if low is None or high is None:
        return Decision.UNDECIDED, "; ".join(
            filter(None, (f"{n} of {MIN_N} rounds needed", undetermined_note(undetermined)))
        )
    if -margin <= low and high <= margin:
        return Decision.EQUIVALENT, ""
    if low <= 0 <= high:
        return Decision.UNDECIDED, "interval holds zero and exceeds the margin"
    if abs(shift.estimate) < margin:
        return Decision.UNDECIDED, "interval is off zero and exceeds the margin, and the shift is within it"
    better = (shift.estimate > 0) == metric.more_is_better
    return (Decision.FASTER if better else Decision.SLOWER), ""


def after_losses(verdict: Verdict, *, baseline: str, region: str) -> Verdict:
    """A verdict of two sides of which some lost most of their rounds: `baseline` and `region` say so, or are empty."""
    decision, _ = verdict
    against = {Decision.FASTER: region, Decision.SLOWER: baseline, Decision.EQUIVALENT: region or baseline}
    reason = against.get(decision, "")
    return (Decision.UNDECIDED, reason) if reason else verdict


def mostly_lost(region: str, *, lost: int, rounds: int) -> str:
    """That a region lost most of so many rounds to timeouts; empty when it did not."""
    return f"most rounds of {region} ended in a timeout" if 2 * lost > rounds else ""


def undetermined_note(undetermined: int) -> str:
    """How many shared rounds were left out because a timeout leaves their sign open; empty when none was."""
    return f"{undetermined} left out: a timeout of one side came before the other's answer" if undetermined else ""


def adjusted_for_comparisons(verdict: Verdict, *, q_value: float | None, comparisons: int) -> Verdict:
    """A verdict of one pair among so many: a difference that may well be chance is none."""
    decision, _ = verdict
    if decision in {Decision.FASTER, Decision.SLOWER} and (q_value is None or q_value > MAX_FALSE_SHARE):
        shown = "unknown" if q_value is None else f"{q_value:.3f}"
        return (
            Decision.UNDECIDED,
            f"may be chance among {comparisons} comparisons (q-value {shown}; {MAX_FALSE_SHARE} needed)",
        )
    return verdict
