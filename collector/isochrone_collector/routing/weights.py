"""Weights of members: shares of the traffic in millionths that add up to 1, together with the share of `UNASSIGNED`.

The cap of a member is the share that the plan allows, less the share that the provider throttles. Traffic beyond the
caps of the first rank goes to the next ones. Traffic beyond all caps of the plan is unassigned: consumers queue or
refuse those requests. A cap of the plan always holds; a cap by throttling does not if no other member has room.
"""

from collections.abc import Collection, Mapping, Sequence
from math import fsum

from isochrone_collector.routing.inputs import Inputs

UNASSIGNED = ""
"""In place of a member: the share of the traffic that no member may take."""

_UNITS = 1_000_000
_ROUNDING = 0.5 / _UNITS

Weights = dict[str, float]


def planned_caps(inputs: Inputs) -> Weights:
    """Return the largest share of each member by the plan."""
    return {target.name: inputs.route.max_share.get(target.name, 1.0) for target in inputs.targets}


def caps(inputs: Inputs) -> Weights:
    """Return the largest share of each member by the plan and by the throttling of its recent requests."""
    return {target: cap * (1.0 - inputs.of(target).throttled_high) for target, cap in planned_caps(inputs).items()}


def wanted_weights(inputs: Inputs, sharing: Sequence[str], others: Sequence[str]) -> Weights:
    """Return the weights to move to: equal shares of `sharing`, of which the first is the greatest by a millionth or
    two; what is beyond their caps goes to the `others`.
    """
    equal = dict.fromkeys(sharing, 1.0 / len(sharing) - 1.0 / _UNITS)
    equal[sharing[0]] += len(sharing) / _UNITS
    return within_caps(inputs, equal, [*sharing, *others])


def within_caps(inputs: Inputs, weights: Mapping[str, float], order: Sequence[str]) -> Weights:
    """Move what is beyond the caps of the plan and of throttling to the members of `order` that have room."""
    return _within(weights, order, (caps(inputs), planned_caps(inputs)))


def within_plan(inputs: Inputs, weights: Mapping[str, float], order: Sequence[str]) -> Weights:
    """Move what is beyond the caps of the plan to the members of `order` that have room."""
    return _within(weights, order, (planned_caps(inputs),))


def _within(weights: Mapping[str, float], order: Sequence[str], limits: Sequence[Weights]) -> Weights:
    """Limit weights by the first of `limits`, and fill up the members of `order` to each of them in turn."""
    held = {target: min(weight, limits[0][target]) for target, weight in weights.items() if target in limits[0]}
    # An unassigned share shrinks by steps, as every weight.
    kept_back = weights.get(UNASSIGNED, 0.0)
    beyond = 1.0 - kept_back - fsum(held.values())
    for limit in limits:
        for target in order:
            taken = min(max(0.0, limit[target] - held.get(target, 0.0)), max(0.0, beyond))
            held[target] = held.get(target, 0.0) + taken
            beyond -= taken
    unassigned = kept_back + max(0.0, beyond)
    return normalize(held | ({UNASSIGNED: unassigned} if unassigned > _ROUNDING else {}))


def ramp(before: Mapping[str, float], wanted: Mapping[str, float], *, step: float) -> Weights:
    """Move all weights by the same share of their gap to `wanted`, none by more than `step`; they add up to 1."""
    if not before:
        return dict(wanted)
    gaps = {target: wanted.get(target, 0.0) - before.get(target, 0.0) for target in sorted({*before, *wanted})}
    widest = max((abs(gap) for gap in gaps.values()), default=0.0)
    share = 1.0 if widest <= step else step / widest
    return normalize({target: before.get(target, 0.0) + gap * share for target, gap in gaps.items()})


def surrendered(weights: Mapping[str, float], wanted: Mapping[str, float], shares: Mapping[str, float]) -> Weights:
    """Move a share of each member's excess over `wanted` to the members that have less, in proportion to the gaps."""
    given = {one: shares[one] * max(weights.get(one, 0.0) - wanted.get(one, 0.0), 0.0) for one in sorted(shares)}
    gaps = {one: max(weight - weights.get(one, 0.0), 0.0) for one, weight in sorted(wanted.items())}
    given_sum, gap_sum = fsum(given.values()), fsum(gaps.values())
    if not given_sum or not gap_sum:
        return dict(weights)
    taken = {one: gap * given_sum / gap_sum for one, gap in gaps.items()}
    members = {*weights, *wanted}
    return normalize({one: weights.get(one, 0.0) - given.get(one, 0.0) + taken.get(one, 0.0) for one in members})


def transfer(weights: Mapping[str, float], gone: Collection[str], heir: str) -> Weights:
    """Transfer the weights of the `gone` members to `heir`."""
    kept = {target: weight for target, weight in weights.items() if target not in gone}
    stranded = fsum(weight for target, weight in weights.items() if target in gone)
    return normalize({**kept, heir: kept.get(heir, 0.0) + stranded})


def normalize(parts: Mapping[str, float]) -> Weights:
    """Return parts as shares in millionths that add up to 1, by name; the rounding error goes to the largest."""
    # In a fixed order: the last bit of a sum depends on it, and the same decision must give the same bytes everywhere.
    total = fsum(parts.values())
    units = {target: round(_UNITS * part / total) for target, part in sorted(parts.items()) if part > 0}
    if units:
        largest = max(units, key=lambda target: units[target])
        units[largest] += _UNITS - sum(units.values())
    return {target: unit / _UNITS for target, unit in units.items() if unit}
