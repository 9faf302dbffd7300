"""Race sets: members to request all at once, if latency matters more than cost.

The first of k independent answers takes longer than t with probability S1(t) · … · Sk(t). The best set is the one with
the lowest product of predicted p95 and price.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from isochrone_collector.routing.eligibility import is_failing
from isochrone_collector.routing.hedge import Latencies, Reals, latencies_of, survival_quantile
from isochrone_collector.routing.inputs import Inputs
from isochrone_wire.routes import RaceSet

MemberSet = tuple[str, ...]

_MAX_RUNNERS = 3
_MAX_CANDIDATES = 6
_TAIL = 0.05
_MIN_SAMPLES = 59


def race_set(inputs: Inputs, members: Sequence[str]) -> RaceSet | None:
    """Return the best set of `members`, given in rank order; `None` if none of them has enough samples."""
    latencies = _candidates(inputs, members)
    if not latencies:
        return None
    sets = [chosen for k in range(1, _MAX_RUNNERS + 1) for chosen in combinations(latencies, k)]
    factors, reason = _factors(inputs, sets)
    expected = {chosen: _p95_us([latencies[target] for target in chosen]) for chosen in sets}
    best = min(sets, key=lambda chosen: (expected[chosen] * factors[chosen], len(chosen), chosen))
    return RaceSet(
        targets=best, expected_p95_us=round(expected[best]), usd_factor=round(factors[best], 3), reason=reason
    )


def _candidates(inputs: Inputs, members: Sequence[str]) -> dict[str, Latencies]:
    well = [target for target in members if not is_failing(inputs, target)][:_MAX_CANDIDATES]
    return {target: own for target in well if (own := latencies_of(inputs.of(target))) and own.n >= _MIN_SAMPLES}


def _factors(inputs: Inputs, sets: Sequence[MemberSet]) -> tuple[dict[MemberSet, float], str]:
    """Return the cost of each set as a multiple of the first member's; the number of members if a price is unknown."""
    prices = {chosen: _price(inputs, chosen) for chosen in sets}
    known = {chosen: price for chosen, price in prices.items() if price}
    if len(known) < len(sets):
        return {chosen: float(len(chosen)) for chosen in sets}, "prices are not all known: each request counts the same"
    return {chosen: price / known[sets[0]] for chosen, price in known.items()}, ""


def _price(inputs: Inputs, chosen: MemberSet) -> float | None:
    prices = [inputs.described(target).price for target in chosen]
    known = [price.usd_per_m_output for price in prices if price]
    return sum(known) if len(known) == len(chosen) else None


def _p95_us(latencies: Sequence[Latencies]) -> float:
    def survival(at_us: Reals) -> Reals:
        return reduce(np.multiply, (own.survival(at_us) for own in latencies))

    return survival_quantile(survival, np.concatenate([own.values_us for own in latencies]), _TAIL)
