"""Which members to ask all at once, when time is dearer than money.

The first of k independent answers outlasts t with probability S1(t) · … · Sk(t). Of all sets the best is the one whose
predicted p95 times its price is least.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from isochrone_collector.routing.eligibility import is_failing
from isochrone_collector.routing.hedge import Law, Reals, falls_to, law_of
from isochrone_collector.routing.inputs import Inputs
from isochrone_wire.routes import RaceSet

Run = tuple[str, ...]

_MAX_RUNNERS = 3
_MAX_CANDIDATES = 6
_TAIL = 0.05
_MIN_SAMPLES = 59


def race_set(inputs: Inputs, members: Sequence[str]) -> RaceSet | None:
    """The best set of `members`, which are in rank order; `None` when too little is known of all of them."""
    laws = _runners(inputs, members)
    if not laws:
        return None
    runs = [run for k in range(1, _MAX_RUNNERS + 1) for run in combinations(laws, k)]
    factors, reason = _factors(inputs, runs)
    expected = {run: _p95_us([laws[target] for target in run]) for run in runs}
    best = min(runs, key=lambda run: (expected[run] * factors[run], len(run), run))
    return RaceSet(
        targets=best, expected_p95_us=round(expected[best]), usd_factor=round(factors[best], 3), reason=reason
    )


def _runners(inputs: Inputs, members: Sequence[str]) -> dict[str, Law]:
    well = [target for target in members if not is_failing(inputs, target)][:_MAX_CANDIDATES]
    return {target: law for target in well if (law := law_of(inputs.of(target))) and law.n >= _MIN_SAMPLES}


def _factors(inputs: Inputs, runs: Sequence[Run]) -> tuple[dict[Run, float], str]:
    """What each set costs as a multiple of the first member alone; as many as they are when prices are not known."""
    prices = {run: _price(inputs, run) for run in runs}
    known = {run: price for run, price in prices.items() if price}
    if len(known) < len(runs):
        return {run: float(len(run)) for run in runs}, "prices are not all known: each request counts the same"
    return {run: price / known[runs[0]] for run, price in known.items()}, ""


def _price(inputs: Inputs, run: Run) -> float | None:
    prices = [inputs.described(target).price for target in run]
    known = [price.usd_per_m_output for price in prices if price]
    return sum(known) if len(known) == len(run) else None


def _p95_us(laws: Sequence[Law]) -> float:
    def survival(at_us: Reals) -> Reals:
        return reduce(np.multiply, (law.survival(at_us) for law in laws))

    return falls_to(survival, np.concatenate([law.values_us for law in laws]), _TAIL)
