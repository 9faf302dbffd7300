"""The best region and what the others cost, where the best one is chosen from the same rounds.

Each table has some providers, all measured from the same regions. The values of a provider in a region are the sum of a
shock that all of its targets share and of each target's own noise, as in `region_shock`; the shock is an
autoregression of first order. In tables of equal regions no region is better; in the others the regions differ by
steps of 15 ms, of which neighbours are hard to tell apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from bench.truth.intervals import levels_of
from bench.truth.region_shock import MS, NOISE
from bench.truth.series import ROUNDS_PER_HOUR, autoregressive
from isochrone_collector.analysis.differential.decision import margin_of
from isochrone_collector.analysis.differential.panel import Panel
from isochrone_collector.analysis.differential.region_cost import region_costs
from isochrone_collector.analysis.history import HOURS, SeriesLevels
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_wire.answers import Decision, Metric
from isochrone_wire.insights import RegionCost

DECIDED = (Decision.FASTER, Decision.SLOWER)
STEP = 15 * MS
_SHARE = 0.5
_LONG = 0.9
_WEEK = HOURS * ROUNDS_PER_HOUR
_ROUND_US = 300_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Tables of some providers, regions and targets of each provider: their number, the rounds, the correlation of a
    shock from one round to the next, and the true cost of each region more than the one before it.
    """

    phi: float
    step: float = 0.0
    has_history: bool = False
    rounds: int = 60
    providers: int = 4
    regions: int = 5
    targets: int = 2
    tables: int = 40


CASES = tuple(
    Case(phi=phi, step=step, has_history=known, rounds=rounds)
    for step, known, rounds, phi in product((0.0, STEP), (False, True), (60, 288), (0.5, 0.97))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Percentages of intervals with the true cost, of tables with a decision, and of regions decidedly slower."""

    coverage_pct: float
    tables_that_decide_pct: float
    decided_pct: float


def figures(seed: int) -> dict[str, float]:
    """Return the least coverage, the percentage of tables of equal regions that decide under a long shock, and that of
    regions found slower under a short one.
    """
    found = best_regions(seed)
    return {
        "best_region_coverage_pct": min(one.coverage_pct for one in found.values()),
        "equal_regions_that_decide_pct": float(
            np.mean([one.tables_that_decide_pct for case, one in found.items() if not case.step and case.phi > _LONG])
        ),
        "slower_regions_decided_pct": min(
            one.decided_pct for case, one in found.items() if case.step and case.phi < _LONG
        ),
    }


def best_regions(seed: int) -> dict[Case, Found]:
    return {case: measured(case, np.random.default_rng([seed, 9, n])) for n, case in enumerate(CASES)}


def measured(case: Case, chance: np.random.Generator) -> Found:
    tables = [list(_table(case, chance)) for _ in range(case.tables)]
    others = [line for lines in tables for line in lines if line.region != line.best_region]
    return Found(
        coverage_pct=100 * float(np.mean([_holds(case, line) for line in others])),
        tables_that_decide_pct=100 * float(np.mean([any(one.decision in DECIDED for one in own) for own in tables])),
        decided_pct=100 * float(np.mean([line.decision in DECIDED for line in others])),
    )


def _holds(case: Case, line: RegionCost) -> bool:
    truth = case.step * (int(line.region) - int(line.best_region))
    return line.added_low is not None and line.added_high is not None and line.added_low <= truth <= line.added_high


def _table(case: Case, chance: np.random.Generator) -> Iterator[RegionCost]:
    week = _WEEK if case.has_history else 0
    targets, n = case.providers * case.targets, week + case.rounds
    shock = autoregressive(chance, case.providers * case.regions, n, case.phi)
    shared = shock.reshape(case.providers, 1, case.regions, n)
    own = chance.standard_normal((case.providers, case.targets, case.regions, n))
    level = 300 * MS + case.step * np.arange(case.regions)[:, None]
    values = level + NOISE * (np.sqrt(_SHARE) * shared + np.sqrt(1 - _SHARE) * own).reshape(targets, case.regions, n)
    regions = tuple(map(str, range(case.regions)))
    return iter(
        region_costs(
            _panel(values[..., week:], regions),
            {target: f"p{target // case.targets}" for target in range(targets)},
            metric=Metric.TTFT,
            unfit={},
            changes={},
            margin=margin_of(Metric.TTFT),
            hourly=_hourly(values[..., :week], regions) if case.has_history else None,
        )
    )


def _panel(values: Reals, regions: tuple[str, ...]) -> Panel:
    targets, width, rounds = values.shape
    return Panel(
        target_ids=np.arange(targets),
        regions=regions,
        group=np.repeat(np.arange(targets * width), rounds),
        round_at=_WEEK * _ROUND_US + np.tile(np.arange(rounds) * _ROUND_US, targets * width),
        value=values.ravel(),
        censored=np.zeros(values.size, np.bool_),
        network=np.full(values.size, np.nan),
    )


def _hourly(past: Reals, regions: tuple[str, ...]) -> SeriesLevels:
    keys = list(product(range(len(past)), regions))
    return SeriesLevels(
        series={key: place for place, key in enumerate(keys)},
        from_at=np.zeros(len(keys), np.int64),
        levels=levels_of(past.reshape(len(keys), _WEEK)),
    )
