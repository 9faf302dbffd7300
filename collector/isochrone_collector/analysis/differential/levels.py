"""Levels of a differential: a step within the window divides its rounds, and only those since the last step are
compared.

The laws:

1. Rounds from before and after a step are never mixed: a middle between two levels describes neither.
2. A step is found in the differences themselves (`stats.steps`), so that what both sides share is none. It must reach
   the margin, because a smaller one changes no decision. A change point of either side (`isochrone drift`) divides the
   rounds as well; of two places closer than five rounds the later one counts.
3. Each level has its own estimate, with the interval that its own rounds allow.
4. The rounds since a step may be too few for a small signed-rank p-value (six: 3 %), although their distance from zero
   is many times the noise. The p-value is then that of Student's t, with the noise around all levels, and with
   `_ROUNDS_PER_ONE` rounds worth one because they may be correlated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
from scipy.special import stdtr

from isochrone_collector.analysis.differential.decision import margin_of
from isochrone_collector.analysis.differential.estimation import medians
from isochrone_collector.analysis.differential.pairing import Changes, Pairs, TargetRegion, pair_up, since
from isochrone_collector.analysis.differential.panel import Panel
from isochrone_collector.analysis.probes import Integers, Reals
from isochrone_collector.analysis.stats.paired import paired_shift
from isochrone_collector.analysis.stats.steps import LEAST, noise_around, steps
from isochrone_wire.answers import Level, Metric

_ROUNDS_PER_ONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelHistory:
    """The levels of one pair, oldest first, at least two, and the p-value of no shift in the last one."""

    levels: tuple[Level, ...]
    p_value: float

    @property
    def since_at(self) -> int:
        """The first round of the present level."""
        return self.levels[-1].from_at


def level_histories(
    panel: Panel, wanted: Sequence[TargetRegion], *, baseline: str, changes: Changes, metric: Metric
) -> dict[TargetRegion, LevelHistory]:
    """Return the levels of each wanted target and region whose difference from the baseline has more than one."""
    pairs = pair_up(panel, wanted, baseline=baseline, changes={})
    base, other = panel.value[pairs.baseline], panel.value[pairs.region]
    differences = pairs.rows(other - base)
    margins = [margin_of(metric, median) for median in medians(pairs.rows(base)).tolist()]
    found = {}
    for row, (key, own) in enumerate(zip(wanted, steps(differences, least_size=np.array(margins)), strict=True)):
        stored_at = since(changes, key, baseline)
        if own or stored_at:
            shared = slice(int(differences.offsets[row]), int(differences.offsets[row + 1]))
            places = _with_change(own, panel.round_at[pairs.region[shared]], stored_at)
            if places:
                found[key] = _history(pairs, shared, places)
    return found


def since_steps(changes: Changes, histories: Mapping[TargetRegion, LevelHistory]) -> Changes:
    """Return the changes with the beginning of each pair's present level as a change of the region."""
    return {**changes, **{key: max(changes.get(key, 0), one.since_at) for key, one in histories.items()}}


def _with_change(places: Sequence[int], rounds_at: Integers, changed_at: int) -> list[int]:
    """Return the places of steps and of a change point, if that is within the rounds, at least `LEAST` apart."""
    place = int(np.searchsorted(rounds_at, changed_at))
    found: list[int] = []
    for one in sorted({*places, place} if 0 < place < len(rounds_at) else places):
        if found and one - found[-1] < LEAST:
            found.pop()
        found.append(one)
    return found


def _history(pairs: Pairs, shared: slice, places: Sequence[int]) -> LevelHistory:
    panel = pairs.panel
    base, other = pairs.baseline[shared], pairs.region[shared]
    edges = [0, *places, len(other)]
    levels = tuple(_level(panel, base[begin:end], other[begin:end]) for begin, end in pairwise(edges))
    return LevelHistory(levels=levels, p_value=_p_value(panel.value[other] - panel.value[base], places, levels[-1]))


def _level(panel: Panel, base: Integers, other: Integers) -> Level:
    baseline, region = panel.value[base], panel.value[other]
    shift = paired_shift(region - baseline)
    if shift is None:
        raise ValueError("a level has at least one round")
    return Level(
        from_at=int(panel.round_at[other[0]]),
        until_at=int(panel.round_at[other[-1]]),
        n=len(other),
        shift=shift.estimate,
        low=shift.low,
        high=shift.high,
        baseline_median=float(np.median(baseline)),
        region_median=float(np.median(region)),
    )


def _p_value(differences: Reals, places: Sequence[int], present: Level) -> float:
    noise = noise_around(differences, places)
    if not noise:
        return float(not present.shift)
    score = abs(present.shift) / noise * sqrt(present.n / _ROUNDS_PER_ONE)
    return float(2 * stdtr(len(differences) - len(places) - 1, -score))
