"""Decisions on shifts: `faster`, `slower`, `equivalent`, `mixed`, or `undecided`, with a reason that names the size.

The laws:

1. `faster` and `slower` need an interval that excludes zero and a shift that matters (see `Margin`), and must survive
   the correction for all comparisons of the family (see below).
2. `equivalent` needs the whole interval to be within the margin. That is two one-sided tests at 2.5 % each, of "it is
   slower by the margin" and of "it is faster by the margin" (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987)
   657-680, who allows 5 % each).
3. Nothing is decided on fewer than 24 rounds, because autocorrelation does not stand out in them. Fewer are enough if
   the memory of the series is known from elsewhere: six independent rounds, and at least six.
4. No decision favours a side that lost most of its rounds: the remaining rounds are not what its users see. A decision
   against that side is still possible.
5. `mixed` replaces `faster` and `slower` where the difference of the medians or the share of faster rounds has the
   opposite sign of the shift: then no single size describes the rounds.
6. Everything else is `undecided`.

Margins: the smallest difference of each metric that matters.

A difference matters from `least` on, and from a share of the smaller of the two medians on: for a share of 5 %, from a
ratio of 1.05. Both are symmetric in the two sides, so that the decision does not depend on which one is the baseline.

False-discovery rate of many comparisons.

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

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

import numpy as np

from isochrone_collector.analysis.stats.arrays import Flags, Reals
from isochrone_collector.analysis.stats.shifts import MIN_N, Shift
from isochrone_wire.answers import Decision, Metric
from isochrone_wire.model import MarginRule

_PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The smallest difference that matters: `least` in the metric's unit, or `share` of the smaller median (0.05 is
    5 %), whichever is larger.
    """

    least: float
    share: float = 0.05

    def size(self, one_median: float, other_median: float) -> float:
        """Return the margin between two sides with these medians."""
        return max(self.least, self.share * min(abs(one_median), abs(other_median)))


# A round trip is a matter of milliseconds; connecting takes several.
_DEFAULTS = {
    Metric.TTFT: Margin(least=20_000),
    Metric.TTFT_COLD: Margin(least=20_000),
    Metric.TTFAT: Margin(least=20_000),
    Metric.E2E: Margin(least=20_000),
    Metric.TOKENS_PER_SECOND: Margin(least=0),
    Metric.CONNECT: Margin(least=3_000),
    Metric.RTT: Margin(least=1_000),
}


def margin_of(metric: Metric, rules: Iterable[MarginRule] = ()) -> Margin:
    """Return the margin of a metric: the default, with what a plan's rule for the metric sets instead."""
    default = _DEFAULTS[metric]
    rule = next((rule for rule in rules if rule.metric == metric.value), None)
    if rule is None:
        return default
    return Margin(
        least=default.least if rule.least is None else rule.least,
        share=default.share if rule.percent is None else rule.percent / _PERCENT,
    )


LEAST_ROUNDS = 24
"""The rounds that a decision needs if the memory of the series is unknown."""

MAX_FALSE_SHARE = 0.05
MAX_WITHOUT_HISTORY = 0.04
"""The largest q-value of a decision while drift that is slower than the window is unknown."""
_US_PER_MS = 1000.0
# Two decimals below 1, one below 10, none above.
_DECIMALS_BELOW = ((2, 1.0), (1, 10.0))

Verdict = tuple[Decision, str]
"""A decision and the reason for `undecided` or `mixed`, empty otherwise."""


def rounds_needed(memory: float | None = None) -> int:
    """Return the rounds that a decision needs. `memory` is the number of rounds that are worth one independent round,
    known from other rounds of the same series; it can lower the number, never raise it: the interval does that.
    """
    return LEAST_ROUNDS if memory is None else min(LEAST_ROUNDS, max(MIN_N, ceil(MIN_N * memory)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The n rounds of a shift, with the `memory` of their series (see `rounds_needed`), and the `undetermined` ones
    that were left out because a timeout leaves their sign open.
    """

    n: int
    memory: float | None = None
    undetermined: int = 0

    @property
    def are_enough(self) -> bool:
        """Whether a decision is possible."""
        return self.n >= rounds_needed(self.memory)

    @property
    def lack(self) -> str:
        """The number of rounds, the number needed, and the number of those left out."""
        parts = (f"{self.n} of {rounds_needed(self.memory)} rounds needed", undetermined_note(self.undetermined))
        return "; ".join(filter(None, parts))


def decide(shift: Shift, *, rounds: Rounds, margin: float, metric: Metric) -> Verdict:
    """Decide on one shift, before it is known whether its rounds are enough."""
    low, high = shift.low, shift.high
    if low is None or high is None:
        return Decision.UNDECIDED, rounds.lack
    if -margin <= low and high <= margin:
        return Decision.EQUIVALENT, ""
    size, matters = size_in_words(shift, metric), quantity(margin, metric)
    if low <= 0 <= high:
        return Decision.UNDECIDED, f"{size}: neither zero nor more than {matters} is excluded"
    if abs(shift.estimate) < margin:
        return Decision.UNDECIDED, f"{size}, not clearly more than {matters}"
    return (Decision.FASTER if is_better(shift.estimate, metric) else Decision.SLOWER), ""


def with_enough_rounds(verdict: Verdict, shift: Shift, *, rounds: Rounds, metric: Metric) -> Verdict:
    """Withdraw a verdict on too few rounds."""
    if verdict[0] is Decision.UNDECIDED or rounds.are_enough:
        return verdict
    return Decision.UNDECIDED, f"{size_in_words(shift, metric)} so far; {rounds.lack}"


def is_better(difference: float, metric: Metric) -> bool:
    """Return whether a difference, region minus baseline, is in favour of the region."""
    return (difference > 0) == metric.more_is_better


def size_in_words(shift: Shift, metric: Metric) -> str:
    """Return `slower by 15 ms (5 to 25)`, or `12 ms faster to 35 ms slower` if the interval includes zero."""
    bounds = [bound for bound in (shift.low, shift.high) if bound is not None]
    if bounds and bounds[0] <= 0 <= bounds[-1]:
        # The faster side of a rate is its upper bound.
        faster, slower = reversed(bounds) if metric.more_is_better else bounds
        return f"{quantity(faster, metric)} faster to {quantity(slower, metric)} slower"
    near, far = sorted(map(abs, bounds or [shift.estimate] * 2))
    around = f" ({_number(near, metric, like=far)} to {_number(far, metric)})" if bounds else ""
    return f"{_word(shift.estimate, metric)} by {quantity(shift.estimate, metric, like=far)}{around}"


def quantity(value: float, metric: Metric, *, like: float | None = None) -> str:
    """Return the size of a difference with its unit, `15 ms`, with as many decimals as `like` would have."""
    return f"{_number(value, metric, like=like)} {'ms' if metric.unit == 'us' else metric.unit}"


def _number(value: float, metric: Metric, *, like: float | None = None) -> str:
    size = _US_PER_MS if metric.unit == "us" else 1.0
    longest = abs(value if like is None else like) / size
    decimals = next((places for places, limit in _DECIMALS_BELOW if round(longest, places) < limit), 0)
    return f"{abs(value) / size:.{decimals if longest else 0}f}"


def _word(difference: float, metric: Metric) -> str:
    return "faster" if is_better(difference, metric) else "slower"


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


def adjusted_for_comparisons(
    verdict: Verdict, *, q_value: float | None, comparisons: int, most: float = MAX_FALSE_SHARE
) -> Verdict:
    """Withdraw a difference that may be chance among so many comparisons."""
    decision, _ = verdict
    if decision in {Decision.FASTER, Decision.SLOWER} and (q_value is None or q_value > most):
        shown = "unknown" if q_value is None else f"{q_value:.3f}"
        return (
            Decision.UNDECIDED,
            f"may be chance among {comparisons} comparisons (q-value {shown}; {most} needed)",
        )
    return verdict


def unless_mixed(
    verdict: Verdict, shift: Shift, *, median_difference: float, faster_share: float, metric: Metric
) -> Verdict:
    """Return `mixed` instead of a difference whose sign the medians or most rounds contradict.

    `median_difference` is the region's median minus the baseline's, `faster_share` the share of rounds in which the
    region is better.
    """
    decision, _ = verdict
    if decision not in {Decision.FASTER, Decision.SLOWER}:
        return verdict
    sign = 1 if decision is Decision.FASTER else -1
    contradicted = []
    if median_difference and is_better(median_difference, metric) != (sign > 0):
        medians = f"{_word(median_difference, metric)} by {quantity(median_difference, metric)}"
        contradicted.append(f"its median is {medians}")
    if sign * (faster_share - 0.5) < 0:
        most = faster_share if sign < 0 else 1 - faster_share
        contradicted.append(f"{100 * most:.0f} % of its rounds are {'faster' if sign < 0 else 'slower'}")
    if not contradicted:
        return verdict
    whole = f"{size_in_words(shift, metric)} by the centre of all rounds, but {' and '.join(contradicted)}"
    return Decision.MIXED, f"{whole}: no single size describes these rounds"


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
