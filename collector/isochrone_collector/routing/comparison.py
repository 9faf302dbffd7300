"""Comparison of two members by the objective, with an interval.

The paired shift of the median counts with its interval, and the price exactly. The whole answer, tail and failures
count only as far as they certainly differ: by the gap between the intervals of the two members.
"""

from dataclasses import dataclass
from math import inf

from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_collector.routing.eligibility import GROUP_OF, US_PER_MS, eligible, late_us, usd_ms
from isochrone_collector.routing.inputs import Evidence, Inputs

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveAdvantage:
    """The advantage of one member over another, as the equivalent in microseconds of median TTFT, with its 95 %
    interval.
    """

    shift_us: float
    low_us: float
    high_us: float


def objective_advantage(inputs: Inputs, other: str, target: str, shift: Shift | None) -> ObjectiveAdvantage | None:
    """Return the advantage of `target` over `other`, given the shift of `other`; `None` without an interval."""
    objective = inputs.route.objective
    beside_us = _other_terms_us(inputs, other, target)
    if not objective.ttft:
        return ObjectiveAdvantage(shift_us=beside_us, low_us=beside_us, high_us=beside_us)
    if shift is None or shift.low is None or shift.high is None:
        return None
    return ObjectiveAdvantage(
        shift_us=shift.estimate + beside_us, low_us=shift.low + beside_us, high_us=shift.high + beside_us
    )


def margin_us(inputs: Inputs, target: str) -> float:
    """Return the smallest advantage of `target` that matters, in microseconds."""
    median = inputs.of(target).ttft_p50_us
    return max(inputs.rules.margin_us, inputs.rules.margin_share * median.value if median else 0.0)


def no_worse_group(inputs: Inputs, other: str, target: str) -> bool:
    """Return whether `target` is at least as certain to meet the objective as `other`."""
    return group_of(inputs, target) <= group_of(inputs, other)


def group_of(inputs: Inputs, target: str) -> int:
    """Return the rank of a member's eligibility, 0 for the best."""
    return GROUP_OF[eligible(inputs.of(target), inputs.route.slo)]


def is_ahead(inputs: Inputs, other: str, target: str) -> bool:
    """Return whether `target` is certainly better than `other`, by the margin, over the middle window."""
    return _is_certain(inputs, other, target, inputs.against(other, target).middle)


def is_behind(inputs: Inputs, other: str, target: str) -> bool:
    """Return whether `target` is certainly worse than `other`, by the margin, over the whole window."""
    return _is_certain(inputs, target, other, inputs.against(target, other).window)


def _is_certain(inputs: Inputs, other: str, target: str, shift: Shift | None) -> bool:
    found = objective_advantage(inputs, other, target, shift)
    return found is not None and found.low_us > 0 and found.shift_us >= margin_us(inputs, target)


def is_level(inputs: Inputs, other: str, target: str) -> bool:
    """Return whether the two are level: the interval contains zero, and the advantage is below the margin."""
    found = objective_advantage(inputs, other, target, inputs.against(other, target).window)
    return found is not None and found.low_us <= 0 <= found.high_us and abs(found.shift_us) < margin_us(inputs, target)


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
