"""Coverage of the intervals of `isochrone regions --best` when a shock hits all targets of a region at once.

A region that adds 100 ms to every target is compared with the best one. Its differences are the sum of a shock that all
targets share and of each target's own noise, both with a standard deviation of 30 ms in total; the shock is an
autoregression of first order. The other region has independent noise, and each target is probed at its own instant.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.differential.decision import margin_of
from isochrone_collector.analysis.differential.panel import build_panel
from isochrone_collector.analysis.differential.region_cost import region_costs
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_wire.answers import Metric

DRAWS = 1_000
REGIONS = ("near", "far")
MS = 1_000.0
ADDED = 100 * MS
NOISE = 30 * MS
EVERY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A provider's targets and rounds, and the shock: its share of the variance, and its correlation from one round to
    the next.
    """

    targets: int
    rounds: int
    share: float
    phi: float

    def __str__(self) -> str:
        return f"{self.targets}_targets_{self.rounds}_rounds_{100 * self.share:.0f}_percent_ar_{10 * self.phi:.0f}"


CASES = tuple(
    Case(targets=targets, rounds=rounds, share=0.5, phi=phi)
    for targets, rounds in ((3, 60), (8, 60))
    for phi in (0.0, 0.5, 0.8)
)


def region_shock(seed: int, *, draws: int = DRAWS) -> Mapping[str, float]:
    """Return the coverage of each case by its name, and the lowest as `worst`."""
    found = {str(case): coverage(case, np.random.default_rng([seed, n]), draws) for n, case in enumerate(CASES)}
    return found | {"worst": min(found.values())}


def coverage(case: Case, rng: np.random.Generator, draws: int) -> float:
    """Return the share of draws whose interval has the true cost in it."""
    return sum(_holds(case, rng) for _ in range(draws)) / draws


def _holds(case: Case, rng: np.random.Generator) -> bool:
    providers = dict.fromkeys(range(case.targets), "p")
    panel, margin = build_panel(_probes(case, rng)), margin_of(Metric.TTFT)
    lines = region_costs(panel, providers, metric=Metric.TTFT, unfit={}, changes={}, margin=margin)
    far = next(line for line in lines if line.region == "far")
    return far.added_low is not None and far.added_high is not None and far.added_low <= ADDED <= far.added_high


def _probes(case: Case, rng: np.random.Generator) -> Probes:
    shape = (case.targets, case.rounds)
    level = 300 * MS + 50 * MS * np.arange(case.targets)[:, np.newaxis]
    near = level + rng.normal(0, NOISE / 10, shape)
    own = rng.normal(0, NOISE * np.sqrt(1 - case.share), shape)
    far = level + ADDED + own + NOISE * np.sqrt(case.share) * _shock(case, rng)
    target, rounds = np.indices(shape)
    places = np.stack([target, target])
    n = places.size
    return Probes(
        regions=REGIONS,
        target_id=places.ravel(),
        region=np.repeat([0, 1], n // 2),
        vantage_id=np.zeros(n, dtype=np.int64),
        round_at=np.tile((rounds * EVERY + target * EVERY // case.targets).ravel(), 2),
        kind=np.full(n, Kind.OK, dtype=np.int8),
        value=np.stack([near, far]).ravel(),
        censored=np.zeros(n, dtype=np.bool_),
        network=np.full(n, np.nan),
    )


def _shock(case: Case, rng: np.random.Generator) -> Reals:
    """Return one value per round with a standard deviation of 1."""
    fresh = rng.normal(0, np.sqrt(1 - case.phi**2), case.rounds)
    found = np.empty(case.rounds)
    last = rng.normal()
    for place, value in enumerate(fresh.tolist()):
        last = case.phi * last + value
        found[place] = last
    return found
