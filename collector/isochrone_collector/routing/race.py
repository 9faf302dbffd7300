"""Race sets: members to request all at once, if latency matters more than cost.

The race set is the one whose soonest answer had the lowest p95 in the joint rounds of its members, so that stalls which
they share count. A price counts only as far as the objective of the route says, in milliseconds per dollar. Of the sets
within the margin of the rules of the soonest, a smallest one is chosen: a request that gains nothing is not sent.
"""

from collections.abc import Collection, Sequence
from itertools import combinations
from math import ceil

import numpy as np

from isochrone_collector.routing.eligibility import US_PER_MS, is_failing, usd_ms
from isochrone_collector.routing.inputs import Inputs
from isochrone_wire.routes import RaceSet

MemberSet = tuple[str, ...]

_MAX_RUNNERS = 3
_MAX_CANDIDATES = 6
_SHARE = 0.95
# From 59 rounds on the interval of a p95 is finite.
_MIN_ROUNDS = 59


def race_set(inputs: Inputs, members: Sequence[str]) -> RaceSet | None:
    """Return the best set of `members`, given in rank order; `None` while the best of them that does not fail has too
    few samples, because a set without it may be slower than it is alone.
    """
    well = [target for target in members if not is_failing(inputs, target)][:_MAX_CANDIDATES]
    sets = [chosen for k in range(1, _MAX_RUNNERS + 1) for chosen in combinations(well, k)]
    expected = {chosen: p95_us for chosen in sets if (p95_us := _p95_us(inputs, chosen)) is not None}
    if not well or (well[0],) not in expected:
        return None
    scores = {chosen: expected[chosen] + _price_us(inputs, chosen) for chosen in expected}
    best = _smallest_near_best(inputs, scores)
    factor, reason = _cost_factor(inputs, best, first=well[0])
    return RaceSet(
        targets=best,
        expected_p95_us=round(expected[best]),
        usd_factor=factor,
        reason=reason if len(best) > 1 else _why_alone(best[0], well, expected),
    )


def _smallest_near_best(inputs: Inputs, scores: dict[MemberSet, float]) -> MemberSet:
    """Return the best of the smallest sets that are within the margin of the best set of all."""
    soonest = min(scores.values())
    near = soonest + max(inputs.rules.margin_us, inputs.rules.margin_share * soonest)
    return min((chosen for chosen in scores if scores[chosen] <= near), key=lambda one: (len(one), scores[one], one))


def _price_us(inputs: Inputs, chosen: MemberSet) -> float:
    """Return the price of all requests of a set, in microseconds by the weight of the objective."""
    return US_PER_MS * sum(usd_ms(inputs.described(target), inputs.route.objective) for target in chosen)


def _cost_factor(inputs: Inputs, chosen: MemberSet, *, first: str) -> tuple[float, str]:
    """Return the cost of a set as a multiple of the first choice's; the number of requests if a price is unknown."""
    prices = [inputs.described(target).price for target in (first, *chosen)]
    known = [price.usd_per_m_output for price in prices if price]
    if len(known) < len(prices) or not known[0]:
        return float(len(chosen)), "prices are not all known: each request counts the same"
    return round(sum(known[1:]) / known[0], 3), ""


def _why_alone(target: str, well: Sequence[str], expected: Collection[MemberSet]) -> str:
    """Return why a set has only one member."""
    others = [other for other in well if other != target]
    raced = {member for chosen in expected if target in chosen for member in chosen}
    few = [other for other in others if (other,) not in expected]
    apart = [other for other in others if other not in raced and other not in few]
    reasons = [
        "no request beside it would be answered sooner" if len(raced) > 1 else "",
        f"fewer than {_MIN_ROUNDS} samples of {', '.join(few)}" if few else "",
        f"fewer than {_MIN_ROUNDS} joint rounds with {', '.join(apart)}" if apart else "",
    ]
    return f"{target} alone: {'; '.join(filter(None, reasons)) or 'no other member can answer'}"


def _p95_us(inputs: Inputs, chosen: MemberSet) -> float | None:
    """Return the p95 of the soonest answer, in microseconds; `None` with fewer than 59 joint rounds."""
    _, ttft_us = inputs.joint.of(*chosen)
    if len(ttft_us) < _MIN_ROUNDS:
        return None
    soonest = np.sort(ttft_us.min(axis=1))
    return float(soonest[ceil(_SHARE * len(soonest)) - 1])
