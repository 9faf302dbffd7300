"""Members by the objective of a route: permission, eligibility, cost, and the comparison of two of them.

Eligibility is decided on interval bounds, not on estimates. In a comparison the present levels of TTFT count with
their probabilities, and the price exactly. The whole answer, tail and failures count only as far as they certainly
differ: by the gap between the intervals of the two members.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from isochrone_collector.analysis.goodput import verdict
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.routing.inputs import Evidence, Inputs, has_limits
from isochrone_collector.routing.present_levels import LEVELS, Present
from isochrone_wire.answers import Proportion, Quantile
from isochrone_wire.insights import Eligible
from isochrone_wire.model import Objective, Slo, Target
from isochrone_wire.routes import is_in_residency

GROUP_OF = {Eligible.YES: 0, Eligible.MAYBE: 1, Eligible.UNKNOWN: 2, Eligible.NO: 3}
US_PER_MS = 1000

_LIKELY = 0.5


def plan_exclusion(inputs: Inputs, target: str) -> str:
    """Return why the plan forbids sending to a member; empty if it does not."""
    described, residency = inputs.described(target), inputs.route.residency
    if residency and not is_in_residency(described, residency):
        where = f"its endpoint is in {described.region}" if described.region else "where its endpoint is is not known"
        return f"{where}; allowed: {', '.join(residency)}"
    if described.paused:
        return "it is paused"
    return ""


def exclusion_reason(inputs: Inputs, target: str, *, has_traffic: bool) -> str:
    """Return why a member cannot be ranked, empty if it can. Missing rounds do not exclude one that `has_traffic`."""
    if reason := plan_exclusion(inputs, target):
        return reason
    sent, coverage, rules = _sent(inputs, target), inputs.of(target).coverage, inputs.rules
    if sent < rules.min_samples:
        return f"{sent} of {rules.min_samples} samples needed"
    if not has_traffic and coverage is not None and coverage < rules.min_coverage:
        return f"{coverage:.0%} of its rounds were recorded; {rules.min_coverage:.0%} needed"
    return ""


def _sent(inputs: Inputs, target: str) -> int:
    evidence = inputs.of(target)
    return max(evidence.n, evidence.success.n if evidence.success else 0)


def is_failing(inputs: Inputs, target: str) -> bool:
    """Return whether several vantages fail, or for longer all of this region, or all of this region just now while they
    reach another member, or success is below the minimum.
    """
    evidence, rules = inputs.of(target), inputs.rules
    if evidence.failed_at and any((one.answered_at or 0) >= evidence.failed_at for one in inputs.evidence):
        return True
    most_here = 2 * evidence.failing_here > evidence.vantages
    if evidence.fails_here or (evidence.failing_vantages >= rules.failing_vantages and most_here):
        return True
    success = evidence.success
    if success is None or not _fell_below(success, inputs.route.slo.min_success):
        return False
    return success.n * (1 - success.value) >= rules.failures_in_a_row


def well(inputs: Inputs, members: Iterable[str]) -> list[str]:
    """Return the members that do not fail, in order."""
    return [target for target in members if not is_failing(inputs, target)]


def eligible(evidence: Evidence, slo: Slo) -> Eligible:
    """Return the worse of the verdicts on latency and success."""
    return max((_in_time(evidence, slo), _reliable(evidence, slo)), key=lambda verdict: GROUP_OF[verdict])


def _in_time(evidence: Evidence, slo: Slo) -> Eligible:
    if not has_limits(slo):
        return Eligible.YES
    if evidence.goodput is not None:
        return verdict(evidence.goodput, slo.min_goodput, n_eff=evidence.goodput_n_eff)
    # No request can be judged by all limits, for example because no answer has a speed.
    if slo.ttft_p95_us is None:
        return Eligible.YES
    p95 = evidence.ttft_p95_us
    if p95 is None or p95.low is None:
        return Eligible.UNKNOWN
    if p95.low > slo.ttft_p95_us:
        return Eligible.NO
    if p95.high is None:
        return Eligible.UNKNOWN
    return Eligible.YES if p95.high <= slo.ttft_p95_us else Eligible.MAYBE


def _reliable(evidence: Evidence, slo: Slo) -> Eligible:
    if not slo.min_success:
        return Eligible.YES
    success = evidence.success
    if success is None:
        return Eligible.UNKNOWN
    if success.low >= slo.min_success:
        return Eligible.YES
    return Eligible.NO if _fell_below(success, slo.min_success) else Eligible.MAYBE


def _fell_below(success: Proportion, least: float) -> bool:
    """Return whether success was certainly below `least`. Each probe counts: an outage is a run of failures."""
    window = wilson(round(success.value * success.n), success.n)
    return window is not None and window.high < least


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A member's cost in milliseconds, term by term, by the weights of the objective."""

    ttft: float
    tail: float
    usd: float
    failure: float
    answer: float = 0.0

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return self.ttft + self.answer + self.tail + self.usd + self.failure


def cost_of(inputs: Inputs, target: str) -> Cost | None:
    """Return a member's cost; `None` without a median that counts. An unknown price counts as zero."""
    evidence, described = inputs.of(target), inputs.described(target)
    slo, objective, answer = inputs.route.slo, inputs.route.objective, evidence.answer_p50_us
    if evidence.ttft_p50_us is None or (objective.answer and answer is None):
        return None
    return Cost(
        ttft=objective.ttft * evidence.ttft_p50_us.value / US_PER_MS,
        tail=objective.tail * late_us(evidence, slo)[1] / US_PER_MS,
        usd=usd_ms(described, objective),
        failure=objective.failure * (1 - evidence.success.low) if evidence.success else 0.0,
        answer=objective.answer * answer.value / US_PER_MS if answer else 0.0,
    )


def late_us(evidence: Evidence, slo: Slo) -> tuple[float, float]:
    """Return the bounds, in microseconds, of the excess of both p95 over the objective."""
    first = _excess_us(evidence.ttft_p95_us, slo.ttft_p95_us)
    answer = _excess_us(evidence.answer_p95_us, slo.answer_p95_us)
    return first[0] + answer[0], first[1] + answer[1]


def _excess_us(p95: Quantile | None, limit_us: int | None) -> tuple[float, float]:
    if p95 is None or limit_us is None:
        return 0.0, 0.0
    least_us, most_us = (p95.value if bound is None else bound for bound in (p95.low, p95.high))
    return max(0.0, least_us - limit_us), max(0.0, most_us - limit_us)


def usd_ms(target: Target, objective: Objective) -> float:
    """Return the price in milliseconds, by the weight of the objective; 0 for an unknown price."""
    return objective.usd * target.price.usd_per_m_output if target.price else 0.0


Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The present lead of one member over another by the objective, in microseconds of median TTFT: what is expected,
    what a switch needs, the probability that there is a lead, the one that a switch needs, and the probability that it
    is within the margin, either way.
    """

    expected_us: float
    needed_us: float
    probability: float
    likely: float
    level: float

    @property
    def is_enough(self) -> bool:
        """Return whether the lead is as large as a switch needs, and as probable."""
        return self.expected_us >= self.needed_us and self.probability >= self.likely


def lead(inputs: Inputs, present: Present, target: str, other: str) -> Lead | None:
    """Return the lead of `target` over `other`; `None` if the TTFT counts and they have no round in common."""
    leads_us = np.full(len(LEVELS), _other_terms_us(inputs, other, target))
    probabilities = present.of(other, target)
    if inputs.route.objective.ttft:
        mine, theirs = (inputs.of(one).ttft_p50_us for one in (target, other))
        if mine is None or theirs is None or probabilities is None:
            return None
        # The same around the middle of both medians, whichever of them is the slower one.
        leads_us += 2 * np.sinh(LEVELS / 2) * sqrt(mine.value * theirs.value)
    if probabilities is None:
        probabilities = (LEVELS == 0).astype(np.float64)
    least_us, expected_us = margin_us(inputs, target), float(probabilities @ leads_us)
    # Prices do not drift, and a large lead needs no more than that it is more probable than not.
    caution = present.caution if inputs.route.objective.ttft else 0.0
    is_large = expected_us >= inputs.rules.fast_share * _median_us(inputs, target)
    return Lead(
        expected_us=expected_us,
        needed_us=least_us + caution * _median_us(inputs, target),
        probability=float(probabilities @ ((leads_us > 0) + (leads_us == 0) / 2)),
        likely=_LIKELY if is_large else present.likely,
        level=float(probabilities[np.abs(leads_us) < least_us].sum()),
    )


def margin_us(inputs: Inputs, target: str) -> float:
    """Return the smallest lead of `target` that matters, in microseconds."""
    return max(inputs.rules.margin_us, inputs.rules.margin_share * _median_us(inputs, target))


def _median_us(inputs: Inputs, target: str) -> float:
    median = inputs.of(target).ttft_p50_us
    return median.value if median else 0.0


def no_worse_group(inputs: Inputs, other: str, target: str) -> bool:
    """Return whether `target` is at least as certain to meet the objective as `other`."""
    return group_of(inputs, target) <= group_of(inputs, other)


def group_of(inputs: Inputs, target: str) -> int:
    """Return the rank of a member's eligibility, 0 for the best."""
    return GROUP_OF[eligible(inputs.of(target), inputs.route.slo)]


def _other_terms_us(inputs: Inputs, other: str, target: str) -> float:
    """Return the terms in favour of `target` beside the median, as the equivalent in microseconds of median TTFT."""
    objective = inputs.route.objective
    dearer_ms = usd_ms(inputs.described(other), objective) - usd_ms(inputs.described(target), objective)
    later_us = _certain_gap(*(late_us(inputs.of(one), inputs.route.slo) for one in (other, target)))
    slower_us = _certain_gap(*(_answer_us(inputs.of(one)) for one in (other, target)))
    fails = _certain_gap(*(_failures(inputs.of(one)) for one in (other, target)))
    beside_us = (dearer_ms + objective.failure * fails) * US_PER_MS
    beside_us += objective.tail * later_us + objective.answer * slower_us
    return beside_us / (objective.ttft or 1.0)


def _answer_us(evidence: Evidence) -> Bounds:
    median = evidence.answer_p50_us
    return (0.0, inf) if median is None or median.low is None or median.high is None else (median.low, median.high)


def _failures(evidence: Evidence) -> Bounds:
    return (1 - evidence.success.high, 1 - evidence.success.low) if evidence.success else (0.0, 1.0)


def _certain_gap(one: Bounds, other: Bounds) -> float:
    """Return the gap from the second interval up to the first, negative if the first is below; 0 if they overlap."""
    return max(0.0, one[0] - other[1]) - max(0.0, other[0] - one[1])
