"""Eligibility of members: permission, meeting the objective, and cost. Decided on interval bounds, not estimates."""

from dataclasses import dataclass

from isochrone_collector.analysis.goodput import verdict
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.routing.inputs import ROUNDS_PER_EPOCH, Evidence, Inputs, has_limits
from isochrone_wire.answers import Proportion, Quantile
from isochrone_wire.insights import Eligible
from isochrone_wire.model import Objective, Slo, Target
from isochrone_wire.routes import is_in_residency

GROUP_OF = {Eligible.YES: 0, Eligible.MAYBE: 1, Eligible.UNKNOWN: 2, Eligible.NO: 3}
US_PER_MS = 1000


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
    """Return why a member cannot be ranked: forbidden, or too little data; empty if it can.

    A member that `has_traffic` is not excluded for missing rounds, which are not its own fault.
    """
    return (
        plan_exclusion(inputs, target)
        or _sample_shortage(inputs, target)
        or ("" if has_traffic else _coverage_shortage(inputs, target))
    )


def has_few_samples(inputs: Inputs, target: str) -> bool:
    """Return whether the samples of a member may all be from the short window."""
    rounds = ROUNDS_PER_EPOCH * inputs.rules.short_us // inputs.rules.epoch_us
    return _sent(inputs, target) <= rounds * max(inputs.of(target).vantages, 1)


def _sent(inputs: Inputs, target: str) -> int:
    evidence = inputs.of(target)
    return max(evidence.n, evidence.success.n if evidence.success else 0)


def _sample_shortage(inputs: Inputs, target: str) -> str:
    sent = _sent(inputs, target)
    return f"{sent} of {inputs.rules.min_samples} samples needed" if sent < inputs.rules.min_samples else ""


def _coverage_shortage(inputs: Inputs, target: str) -> str:
    evidence = inputs.of(target)
    if evidence.coverage is not None and evidence.coverage < inputs.rules.min_coverage:
        return f"{evidence.coverage:.0%} of its rounds were recorded; {inputs.rules.min_coverage:.0%} needed"
    return ""


def is_failing(inputs: Inputs, target: str) -> bool:
    """Return whether a member fails: several vantages get only failures, most of this region among them; or all of this
    region do, for longer; or success is certainly below the minimum.
    """
    evidence, rules = inputs.of(target), inputs.rules
    most_here = 2 * evidence.failing_here > evidence.vantages
    if evidence.fails_here or (evidence.failing_vantages >= rules.failing_vantages and most_here):
        return True
    success = evidence.success
    if success is None or not _fell_below(success, inputs.route.slo.min_success):
        return False
    return success.n * (1 - success.value) >= rules.failures_in_a_row


def eligible(evidence: Evidence, slo: Slo) -> Eligible:
    """Return the worse of the verdicts on latency and success."""
    return max((_in_time(evidence, slo), _reliable(evidence, slo)), key=lambda verdict: GROUP_OF[verdict])


def _in_time(evidence: Evidence, slo: Slo) -> Eligible:
    if not has_limits(slo):
        return Eligible.YES
    if evidence.goodput is None:
        return _p95_in_time(evidence, slo)
    return verdict(evidence.goodput, slo.min_goodput, n_eff=evidence.goodput_n_eff)


def _p95_in_time(evidence: Evidence, slo: Slo) -> Eligible:
    """Return the verdict on inputs that an earlier version stored, without goodput."""
    if slo.ttft_p95_us is None:
        return Eligible.YES
    p95 = evidence.ttft_p95_us
    if p95 is None or p95.low is None or p95.high is None:
        return Eligible.UNKNOWN
    if p95.high <= slo.ttft_p95_us:
        return Eligible.YES
    return Eligible.NO if p95.low > slo.ttft_p95_us else Eligible.MAYBE


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
    """Return whether the success in the window was certainly below `least`. Each probe counts, because an outage is a
    run of failures, which is worth few independent ones.
    """
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
