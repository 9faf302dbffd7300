"""Decisions on regions with a true difference: how often equal ones are called different, and how often a
difference is found.

Latencies are log-normal with deviation 0.35; a share of the variance of each side is independent slow drift. Pairs are
decided on alone, as when a user asks for one target, or 2 200 in a table. In mixed tables half of the pairs are equal,
a quarter differ by 5 % and a quarter by 70 % (standard deviations on the log scale).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from bench.truth.intervals import levels_of
from bench.truth.series import ROUNDS_PER_HOUR, drifting, independent
from isochrone_collector.analysis.differential.differential import ComparisonContext, Subject, differentials_of
from isochrone_collector.analysis.differential.panel import Panel
from isochrone_collector.analysis.history import HOURS, Levels, SeriesLevels
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_wire.answers import Decision, Metric

PAIRS = 400
POWER_PAIRS = 2_400
ROUNDS = 288
MEDIAN_US = 350_000.0
DEVIATION = 0.35
DECIDED = (Decision.FASTER, Decision.SLOWER)
TABLE_PAIRS = 2_200
TABLE_ROUNDS = 60
NULL_TABLES = 10
LONE_PAIRS = 1_200
_DEVIATIONS = np.array([0.0, 0.0, 0.05, 0.7])
_DRIFT = 0.3
_MIXED_DRIFTS = (0.0, 0.1, 0.3, 0.3)
_WEEK = HOURS * ROUNDS_PER_HOUR
_ROUND_US = 300_000_000
_REGIONS = ("here", "there")


def false_decisions_pct(seed: int, *, has_history: bool) -> float:
    """Return the percentage of equal pairs that are called faster or slower."""
    chance = np.random.default_rng([seed, 1])
    sides = [_latencies(drifting(0.1)(chance, PAIRS, _WEEK + ROUNDS)) for _ in _REGIONS]
    return 100 * float(np.mean([decision in DECIDED for decision in _decisions(sides, has_history=has_history)]))


def power_pct(seed: int) -> float:
    """Return the percentage of pairs decided when a region is a tenth faster and rounds correlate by a half."""
    chance = np.random.default_rng([seed, 2])
    common, *own = (independent(chance, POWER_PAIRS, ROUNDS) for _ in range(3))
    sides = [factor * _latencies((common + noise) / np.sqrt(2)) for factor, noise in zip((1.0, 0.9), own, strict=True)]
    return 100 * float(np.mean(_lone_signs(sides) < 0))


def null_tables_with_a_decision_pct(seed: int, *, has_history: bool) -> float:
    """Return the percentage of tables of equal pairs in which one is called faster or slower."""
    chance = np.random.default_rng([seed, 6])
    tables = [_table(chance, np.zeros(TABLE_PAIRS), _DRIFT, has_history=has_history) for _ in range(NULL_TABLES)]
    return 100 * float(np.mean([bool((signs != 0).any()) for signs in tables]))


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedTables:
    """The decisions in mixed tables: all, those on equal pairs, and those of the wrong sign on different ones."""

    decided: int
    false: int
    wrong: int

    @classmethod
    def of(cls, effects: Reals, signs: Reals) -> "MixedTables":
        """Count the signs of decisions, a row per table."""
        is_equal = effects == 0
        return cls(
            decided=int(np.count_nonzero(signs)),
            false=int(np.count_nonzero(signs[:, is_equal])),
            wrong=int(np.count_nonzero(signs[:, ~is_equal] * np.sign(effects[~is_equal]) < 0)),
        )

    @property
    def false_share_of_decisions_pct(self) -> float:
        """The percentage of decisions on equal pairs; 100 without a decision."""
        return 100 * self.false / self.decided if self.decided else 100.0

    @property
    def wrong_sign_pct(self) -> float:
        """The percentage of the decisions on different pairs that have the wrong sign; 100 without a decision."""
        right = self.decided - self.false
        return 100 * self.wrong / right if right else 100.0


def mixed_tables(seed: int, *, has_history: bool) -> MixedTables:
    """Decide on mixed tables of pairs with different shares of drift."""
    chance = np.random.default_rng([seed, 7])
    effects = chance.normal(0, _DEVIATIONS[np.arange(TABLE_PAIRS) % 4])
    signs = np.stack([_table(chance, effects, drift, has_history=has_history) for drift in _MIXED_DRIFTS])
    return MixedTables.of(effects, signs)


def lone_pairs(seed: int, pairs: int = LONE_PAIRS) -> MixedTables:
    """Decide on the pairs of mixed tables one by one without history, after few rounds with different drift."""
    chance = np.random.default_rng([seed, 9])
    effects = chance.normal(0, _DEVIATIONS[np.arange(pairs) % 4])
    signs = []
    for rounds, drift in product((TABLE_ROUNDS, 2 * TABLE_ROUNDS), (0.1, _DRIFT)):
        here, there = (_latencies(drifting(drift)(chance, pairs, rounds)) for _ in _REGIONS)
        signs.append(_lone_signs((here, there * np.exp(effects)[:, None])))
    return MixedTables.of(effects, np.stack(signs))


def wrong_equivalent_pct(seed: int) -> float:
    """Return the percentage of pairs that are called equivalent although they differ by the margin; deviation 0.06."""
    chance = np.random.default_rng([seed, 8])
    sides = [MEDIAN_US * np.exp(0.06 * drifting(0.1)(chance, PAIRS, _WEEK + ROUNDS)) for _ in _REGIONS]
    decisions = _decisions([sides[0], sides[1] * (1 + 20_000 / MEDIAN_US)], has_history=False)
    return 100 * float(np.mean([decision is Decision.EQUIVALENT for decision in decisions]))


def _table(chance: np.random.Generator, effects: Reals, drift: float, *, has_history: bool) -> Reals:
    """Return 1 for each pair of a table that is called slower, -1 for faster, else 0."""
    week = _WEEK if has_history else 0
    here, there = (_latencies(drifting(drift)(chance, len(effects), week + TABLE_ROUNDS)) for _ in _REGIONS)
    sides = [here, there * np.exp(effects)[:, None]]
    levels = [levels_of(side[:, :week]) for side in sides] if has_history else None
    return _signs([side[:, week:] for side in sides], levels)


def _signs(sides: Sequence[Reals], levels: Sequence[Levels] | None) -> Reals:
    sign_of = {Decision.FASTER: -1.0, Decision.SLOWER: 1.0}
    return np.array([sign_of.get(found, 0.0) for found in _decided(sides, levels)])


def _lone_signs(sides: Sequence[Reals]) -> Reals:
    """Return the signs of pairs that are decided one by one without history."""
    return np.concatenate([_signs([side[[pair]] for side in sides], None) for pair in range(len(sides[0]))])


def _latencies(scores: Reals) -> Reals:
    return MEDIAN_US * np.exp(DEVIATION * scores)


def _decisions(sides: Sequence[Reals], *, has_history: bool) -> list[Decision]:
    levels = [levels_of(side[:, :_WEEK]) for side in sides]
    return [
        decision
        for pair in range(PAIRS)
        for decision in _decided(
            [side[[pair], _WEEK:] for side in sides],
            [Levels(values=own.values[[pair]], noise=own.noise[[pair]]) for own in levels] if has_history else None,
        )
    ]


def _decided(sides: Sequence[Reals], levels: Sequence[Levels] | None) -> Iterable[Decision]:
    pairs, rounds = sides[0].shape
    cells = len(sides) * pairs * rounds
    panel = Panel(
        target_ids=np.arange(pairs),
        regions=_REGIONS,
        group=np.repeat(np.arange(len(sides) * pairs), rounds),
        round_at=_WEEK * _ROUND_US + np.tile(np.arange(rounds) * _ROUND_US, len(sides) * pairs),
        value=np.stack(sides, axis=1).ravel(),
        censored=np.zeros(cells, dtype=bool),
        network=np.full(cells, np.nan),
    )
    subjects = [
        Subject(target_id=pair, target=f"t{pair}", provider="p", model="m", region=_REGIONS[1]) for pair in range(pairs)
    ]
    context = ComparisonContext(hourly=_hourly(levels) if levels else None)
    found = differentials_of(panel, subjects, metric=Metric.TTFT, baseline=_REGIONS[0], context=context)
    return [one.decision for one in found]


def _hourly(levels: Sequence[Levels]) -> SeriesLevels:
    pairs = len(levels[0].values)
    return SeriesLevels(
        series={(pair, region): side * pairs + pair for side, region in enumerate(_REGIONS) for pair in range(pairs)},
        from_at=np.zeros(len(levels) * pairs, dtype=np.int64),
        levels=Levels(
            values=np.concatenate([own.values for own in levels]), noise=np.concatenate([own.noise for own in levels])
        ),
    )
