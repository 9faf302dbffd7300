"""Race sets: members to request all at once, if latency matters more than cost.

The first of k independent answers takes longer than t with probability S1(t) · … · Sk(t). The race set is the one with
the soonest predicted p95. A price counts only as far as the objective of the route says, in milliseconds per dollar. Of
the sets within the margin of the rules of the soonest, a smallest one is chosen: a request that gains nothing is not
sent.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from isochrone_collector.routing.eligibility import US_PER_MS, is_failing, usd_ms
from isochrone_collector.routing.hedge import Latencies, Reals, latencies_of, survival_quantile
from isochrone_collector.routing.inputs import Inputs
from isochrone_wire.routes import RaceSet

MemberSet = tuple[str, ...]

_MAX_RUNNERS = 3
_MAX_CANDIDATES = 6
_TAIL = 0.05
_MIN_SAMPLES = 59


def race_set(inputs: Inputs, members: Sequence[str]) -> RaceSet | None:
    """Return the best set of `members`, given in rank order; `None` while the best of them that does not fail has too
    few samples, because a set without it may be slower than it is alone.
    """
    well = [target for target in members if not is_failing(inputs, target)][:_MAX_CANDIDATES]
    latencies = _known(inputs, well)
    if not well or well[0] not in latencies:
        return None
    sets = [chosen for k in range(1, _MAX_RUNNERS + 1) for chosen in combinations(latencies, k)]
    expected = {chosen: _p95_us([latencies[target] for target in chosen]) for chosen in sets}
    scores = {chosen: expected[chosen] + _price_us(inputs, chosen) for chosen in sets}
    best = _smallest_near_best(inputs, scores)
    factor, reason = _cost_factor(inputs, best, first=well[0])
    unknown = [target for target in well if target not in latencies]
    return RaceSet(
        targets=best,
        expected_p95_us=round(expected[best]),
        usd_factor=factor,
        reason=reason if len(best) > 1 else _why_alone(best[0], has_rivals=len(latencies) > 1, unknown=unknown),
    )


def _known(inputs: Inputs, members: Sequence[str]) -> dict[str, Latencies]:
    return {target: own for target in members if (own := latencies_of(inputs.of(target))) and own.n >= _MIN_SAMPLES}


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


def _why_alone(target: str, *, has_rivals: bool, unknown: Sequence[str]) -> str:
    """Return why a set has only one member; `has_rivals` with others that have enough samples."""
    known = ["no request beside it would be answered sooner"] if has_rivals else []
    missing = [f"fewer than {_MIN_SAMPLES} samples of {', '.join(unknown)}"] if unknown else []
    return f"{target} alone: {'; '.join(known + missing) or 'no other member can answer'}"


def _p95_us(latencies: Sequence[Latencies]) -> float:
    def survival(at_us: Reals) -> Reals:
        return reduce(np.multiply, (own.survival(at_us) for own in latencies))

    return survival_quantile(survival, np.concatenate([own.values_us for own in latencies]), _TAIL)
