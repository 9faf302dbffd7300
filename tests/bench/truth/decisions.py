"""Decisions on regions with a true difference: how often equal ones are called different, and how often a
difference is found.

Latencies are log-normal with deviation 0.35; of each side's variance a tenth is independent slow drift. Each pair is
decided on alone, as when a user asks for one target.
"""

import numpy as np

from bench.truth.intervals import levels_of
from bench.truth.series import ROUNDS_PER_HOUR, drifting, independent
from isochrone_collector.analysis.differential.differential import ComparisonContext, Subject, differentials_of
from isochrone_collector.analysis.differential.panel import Panel
from isochrone_collector.analysis.history import HOURS, Levels, SeriesLevels
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_wire.answers import Decision, Metric

PAIRS = 400
ROUNDS = 288
MEDIAN_US = 350_000.0
DEVIATION = 0.35
DECIDED = (Decision.FASTER, Decision.SLOWER)
_WEEK = HOURS * ROUNDS_PER_HOUR
_ROUND_US = 300_000_000
_REGIONS = ("here", "there")


def false_decisions_pct(seed: int, *, has_history: bool) -> float:
    """Return the percentage of equal pairs that are called faster or slower."""
    chance = np.random.default_rng([seed, 1])
    sides = [_latencies(drifting(0.1)(chance, PAIRS, _WEEK + ROUNDS)) for _ in _REGIONS]
    return 100 * float(np.mean([decision in DECIDED for decision in _decisions(sides, has_history=has_history)]))


def power_pct(seed: int) -> float:
    """Return the percentage of pairs that are decided if a region is faster by a tenth, and what both have in common
    makes their rounds correlate by a half.
    """
    chance = np.random.default_rng([seed, 2])
    common, *own = (independent(chance, PAIRS, _WEEK + ROUNDS) for _ in range(3))
    sides = [factor * _latencies((common + noise) / np.sqrt(2)) for factor, noise in zip((1.0, 0.9), own, strict=True)]
    return 100 * float(np.mean([decision is Decision.FASTER for decision in _decisions(sides, has_history=False)]))


def _latencies(scores: Reals) -> Reals:
    return MEDIAN_US * np.exp(DEVIATION * scores)


def _decisions(sides: list[Reals], *, has_history: bool) -> list[Decision]:
    levels = [levels_of(side[:, :_WEEK]) for side in sides]
    windows = [side[:, _WEEK:] for side in sides]
    return [
        _decision(
            [window[pair] for window in windows],
            [Levels(values=own.values[[pair]], noise=own.noise[[pair]]) for own in levels] if has_history else None,
        )
        for pair in range(PAIRS)
    ]


def _decision(sides: list[Reals], levels: list[Levels] | None) -> Decision:
    cells = len(sides) * ROUNDS
    panel = Panel(
        target_ids=np.zeros(1, dtype=np.int64),
        regions=_REGIONS,
        group=np.repeat(np.arange(len(sides)), ROUNDS),
        round_at=_WEEK * _ROUND_US + np.tile(np.arange(ROUNDS) * _ROUND_US, len(sides)),
        value=np.concatenate(sides),
        censored=np.zeros(cells, dtype=bool),
        network=np.full(cells, np.nan),
    )
    subject = Subject(target_id=0, target="t", provider="p", model="m", region=_REGIONS[1])
    context = ComparisonContext(hourly=_hourly(levels) if levels else None)
    [found] = differentials_of(panel, [subject], metric=Metric.TTFT, baseline=_REGIONS[0], context=context)
    return found.decision


def _hourly(levels: list[Levels]) -> SeriesLevels:
    return SeriesLevels(
        series={(0, region): place for place, region in enumerate(_REGIONS)},
        from_at=np.zeros(len(levels), dtype=np.int64),
        levels=Levels(
            values=np.concatenate([own.values for own in levels]), noise=np.concatenate([own.noise for own in levels])
        ),
    )
