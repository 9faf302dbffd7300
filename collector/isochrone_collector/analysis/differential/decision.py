"""Decisions on shifts: `faster`, `slower`, `equivalent`, `mixed`, or `undecided`, with a reason that names the size.

The laws:

1. `faster` and `slower` need an interval that excludes zero and a shift that matters (see `Margin`), and must survive
   the correction for all comparisons of the family (see below).
2. `equivalent` needs the whole interval to be within the margin. That is two one-sided tests at 2.5 % each, of "it is
   slower by the margin" and of "it is faster by the margin" (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987)
   657-680, who allows 5 % each). The larger p-value of both must survive the same correction, among those of
   equivalence.
3. A decision needs 24 rounds, because fewer do not show autocorrelation. If other rounds of the same series show it,
   six independent rounds are enough.
4. No decision favours a side that lost most of its rounds: the remaining rounds are not what its users see. A decision
   against that side is possible.
5. `mixed` replaces `faster` and `slower` where the difference of the medians or the share of faster rounds has the
   opposite sign of the shift: then no single size describes the rounds.
6. Everything else is `undecided`.
7. A decision without 48 hours of history is `provisional`: drift that is slower than the window
   is only known from all series of the table together (`stats.memory`).

Margins are symmetric in the two sides, so that a decision does not depend on which one is the baseline.

The correction for many comparisons controls the false-discovery rate by Benjamini and Hochberg's step-up procedure:
with the p-values in order, p(1) <= … <= p(m), deciding for every comparison with q(i) = min over j >= i of m·p(j)/j at
or below 5 % keeps the expected share of false decisions at or below 5 %, for tests that are independent or positively
dependent, as those against a common baseline are (Y. Benjamini and Y. Hochberg, JRSS B 57 (1995) 289-300;
Y. Benjamini and D. Yekutieli, Annals of Statistics 29 (2001) 1165-1188).

The family of comparisons is fixed: all targets of the plan and all regions, for one metric in one window against one
baseline. A question about some of them gets the q-values that a question about all of them gets. A target outside of
the plan counts as one more comparison for itself only. If the family would take too many probes to read, each p-value
is multiplied by its size (Bonferroni), which is the largest q-value that the procedure could give.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

import numpy as np

from isochrone_collector.analysis.stats.arrays import Flags, Reals
from isochrone_collector.analysis.stats.long_run_variance import LEAST_ROUNDS
from isochrone_collector.analysis.stats.shifts import MIN_N, Shift
from isochrone_wire.answers import Decision, Metric
from isochrone_wire.model import MarginRule

_PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The smallest difference that matters: `least` in the metric's unit, or this share of the smaller median."""

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


_MAX_FALSE_SHARE = 0.05
# The largest q-values of a decision while drift that is slower than the window is unknown. What is not seen hides a
# difference more often than it makes one.
_MAX_WITHOUT_HISTORY, _MAX_EQUIVALENCE_WITHOUT_HISTORY = 0.04, 0.01
_US_PER_MS = 1000.0
# Two decimals below 1, one below 10, none above.
_DECIMALS_BELOW = ((2, 1.0), (1, 10.0))

Verdict = tuple[Decision, str]
"""A decision and the reason for `undecided` or `mixed`, empty otherwise."""


def rounds_needed(decorrelation_rounds: float | None = None) -> int:
    """Return the rounds that a decision needs; fewer if so many rounds of the series count as one independent round."""
    known = LEAST_ROUNDS if decorrelation_rounds is None else ceil(MIN_N * decorrelation_rounds)
    return min(LEAST_ROUNDS, max(MIN_N, known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The n rounds of a shift, the number that counts as one independent round, if other rounds of the series show it,
    and the `undetermined` ones that were left out because a timeout leaves their sign open.
    """

    n: int
    decorrelation_rounds: float | None = None
    undetermined: int = 0

    @property
    def lack(self) -> str:
        """The number of rounds, the number needed, and the number of those left out."""
        needed = rounds_needed(self.decorrelation_rounds)
        return "; ".join(filter(None, (f"{self.n} of {needed} rounds needed", undetermined_note(self.undetermined))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A region compared with the baseline. The losses are the reasons why nothing is decided in favour of a side, empty
    without one. `q_value` is that among so many `comparisons`, and `equivalence_q_value` that of `equivalent`.
    `median_difference` is the region's median minus the baseline's, `faster_share` the share of rounds in which the
    region is better.
    """

    metric: Metric
    shift: Shift
    rounds: Rounds
    margin: float
    median_difference: float
    faster_share: float
    q_value: float | None
    comparisons: int
    equivalence_q_value: float = 0.0
    has_history: bool = True
    baseline_losses: str = ""
    region_losses: str = ""


def decide(one: Comparison) -> Verdict:
    """Decide on a comparison."""
    decision, reason = _by_interval(one)
    if decision is not Decision.UNDECIDED and (objection := _objection(one, decision)):
        return Decision.UNDECIDED, objection
    if decision in {Decision.FASTER, Decision.SLOWER} and (reason := _contradiction(one, decision)):
        return Decision.MIXED, reason
    return decision, reason


def _by_interval(one: Comparison) -> Verdict:
    low, high, margin = one.shift.low, one.shift.high, one.margin
    if low is None or high is None:
        return Decision.UNDECIDED, one.rounds.lack
    if -margin <= low and high <= margin:
        return Decision.EQUIVALENT, ""
    size, matters = size_in_words(one.shift, one.metric), quantity(margin, one.metric)
    if low <= 0 <= high:
        return Decision.UNDECIDED, f"{size}: neither zero nor more than {matters} is excluded"
    if abs(one.shift.estimate) < margin:
        estimate = quantity(one.shift.estimate, one.metric)
        if estimate == matters:  # rounded up to what it is below
            estimate = quantity(one.shift.estimate, one.metric, like=margin / 100)
        return Decision.UNDECIDED, f"{size}: the estimate, {estimate}, is below {matters}"
    return (Decision.FASTER if is_better(one.shift.estimate, one.metric) else Decision.SLOWER), ""


def _objection(one: Comparison, decision: Decision) -> str:
    """Return why a decision by the interval does not count; empty if it does."""
    losses = {Decision.FASTER: one.region_losses, Decision.SLOWER: one.baseline_losses}
    if lost := losses.get(decision, one.region_losses or one.baseline_losses):
        return lost
    if one.rounds.n < rounds_needed(one.rounds.decorrelation_rounds):
        return f"{size_in_words(one.shift, one.metric)} so far; {one.rounds.lack}"
    q_value, largest = one.q_value, _MAX_WITHOUT_HISTORY
    if decision not in losses:
        q_value, largest = one.equivalence_q_value, _MAX_EQUIVALENCE_WITHOUT_HISTORY
    largest = _MAX_FALSE_SHARE if one.has_history else largest
    if q_value is None or q_value > largest:
        shown = "unknown" if q_value is None else f"{q_value:.3f}"
        return f"may be chance among {one.comparisons} comparisons (q-value {shown}; {largest} needed)"
    return ""


def _contradiction(one: Comparison, decision: Decision) -> str:
    """Return how the medians or most rounds contradict the sign of a difference; empty if they do not."""
    is_faster, metric = decision is Decision.FASTER, one.metric
    found = []
    if one.median_difference and is_better(one.median_difference, metric) != is_faster:
        medians = f"{_word(one.median_difference, metric)} by {quantity(one.median_difference, metric)}"
        found.append(f"its median is {medians}")
    share = 1 - one.faster_share if is_faster else one.faster_share
    if share > 0.5:  # noqa: PLR2004  # most of them
        found.append(f"{100 * share:.0f} % of its rounds are {'slower' if is_faster else 'faster'}")
    whole = f"{size_in_words(one.shift, metric)} by the centre of all rounds, but {' and '.join(found)}"
    return f"{whole}: no single size describes these rounds" if found else ""


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


def mostly_lost(region: str, *, lost: int, rounds: int) -> str:
    """Return the reason if a region lost most of its rounds to timeouts, else an empty text."""
    return f"most rounds of {region} ended in a timeout" if 2 * lost > rounds else ""


def undetermined_note(undetermined: int) -> str:
    """Report the shared rounds left out because a timeout leaves their sign open; empty without any."""
    return f"{undetermined} left out: a timeout of one side came before the other's answer" if undetermined else ""


def family_rates(p_values: Reals, *, is_member: Flags, size: int | None = None) -> tuple[Reals, int]:
    """Return the q-values of comparisons, some outside of a family of this `size` if not read, and their number."""
    if size is not None:
        return np.minimum(p_values * max(size, 1), 1.0), size
    found = np.full(len(p_values), np.nan)
    members = p_values[is_member]
    found[is_member] = q_values(members)
    for place in np.flatnonzero(~is_member & ~np.isnan(p_values)).tolist():
        found[place] = q_values(np.append(members, p_values[place]))[-1]
    return found, int(np.count_nonzero(~np.isnan(members)))


def q_values(p_values: Reals) -> Reals:
    """Return the lowest false-discovery rate at which each comparison is decided; NaN without a p-value."""
    found = np.full(len(p_values), np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    falling = known[np.argsort(-p_values[known])]
    places = np.arange(len(falling), 0, -1)
    found[falling] = np.minimum.accumulate(np.minimum(p_values[falling] * len(falling) / places, 1.0))
    return found
