"""By how much one member is better than another, by the objective and with an interval.

What the paired shift says of the median counts with its interval. The price is known exactly. Of the tail and of
failures only what is certain counts: as much as the intervals of the two members lie apart.
"""

from dataclasses import dataclass

from isochrone_collector.analysis.stats.paired import Shift
from isochrone_collector.routing.eligibility import GROUP_OF, US_PER_MS, eligible, late_us, usd_ms
from isochrone_collector.routing.inputs import Evidence, Inputs

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveAdvantage:
    """How much better a member is, in microseconds of median TTFT that would be worth the same, with its 95 %
    interval.
    """

    shift_us: float
    low_us: float
    high_us: float


def objective_advantage(inputs: Inputs, other: str, target: str, shift: Shift | None) -> ObjectiveAdvantage | None:
    """How much better `target` is than `other`, by how much longer `other` takes; `None` without an interval."""
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
    """The smallest lead of `target` that matters."""
    median = inputs.of(target).ttft_p50_us
    return max(inputs.rules.margin_us, inputs.rules.margin_share * median.value if median else 0.0)


def no_worse_group(inputs: Inputs, other: str, target: str) -> bool:
    """Whether `target` keeps the objective as surely as `other`, or more so."""
    return group_of(inputs, target) <= group_of(inputs, other)


def group_of(inputs: Inputs, target: str) -> int:
    """The place of a member's eligibility, 0 for the best."""
    return GROUP_OF[eligible(inputs.of(target), inputs.route.slo)]


def is_ahead(inputs: Inputs, other: str, target: str) -> bool:
    """Whether `target` is better than `other` for certain and by the margin, over the middle window."""
    return _is_certain(inputs, other, target, inputs.against(other, target).middle)


def is_behind(inputs: Inputs, other: str, target: str) -> bool:
    """Whether `target` is worse than `other` for certain and by the margin, over the whole window."""
    return _is_certain(inputs, target, other, inputs.against(target, other).window)


def _is_certain(inputs: Inputs, other: str, target: str, shift: Shift | None) -> bool:
    found = objective_advantage(inputs, other, target, shift)
    return found is not None and found.low_us > 0 and found.shift_us >= margin_us(inputs, target)


def is_level(inputs: Inputs, other: str, target: str) -> bool:
    """Whether the two are as good as equal: the interval holds zero, and the lead is too small to matter."""
    found = objective_advantage(inputs, other, target, inputs.against(other, target).window)
    return found is not None and found.low_us <= 0 <= found.high_us and abs(found.shift_us) < margin_us(inputs, target)


def _other_terms_us(inputs: Inputs, other: str, target: str) -> float:
    """What speaks for `target` beside the median, in microseconds of it."""
    objective = inputs.route.objective
    dearer_ms = usd_ms(inputs.described(other), objective) - usd_ms(inputs.described(target), objective)
    later_us = _certain_gap(*(late_us(inputs.of(one).ttft_p95_us, inputs.route.slo) for one in (other, target)))
    fails = _certain_gap(*(_failures(inputs.of(one)) for one in (other, target)))
    beside_us = (dearer_ms + objective.failure * fails) * US_PER_MS + objective.tail * later_us
    return beside_us / (objective.ttft or 1.0)


def _failures(evidence: Evidence) -> Bounds:
    return (1 - evidence.success.high, 1 - evidence.success.low) if evidence.success else (0.0, 1.0)


def _certain_gap(one: Bounds, other: Bounds) -> float:
    """How far the first lies above the second, below zero for under it; 0 when they overlap."""
    return max(0.0, one[0] - other[1]) - max(0.0, other[0] - one[1])
