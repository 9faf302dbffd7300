"""Levels of a differential: a step within the window divides its rounds, and only those since the last step are
compared.

The laws:

1. Rounds from before and after a step are never mixed: a middle between two levels describes neither.
2. A step is found in the differences themselves (`stats.steps`), so that what both sides share is none. It must reach
   the margin, because a smaller one changes no decision. A change point of either side (`isochrone drift`) divides the
   rounds as well; of two places closer than five rounds the later one counts.
3. Each level has its own estimate, with the interval that its own rounds allow.
4. The rounds since a step may be too few for a small signed-rank p-value (six: 3 %), although their distance from zero
   is many times the noise. The p-value is then that of Student's t, with the noise around all levels. As rounds may be
   correlated, `_ROUNDS_PER_ONE` of them are worth one, or more if the values around all levels show it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
from scipy.special import stdtr

from isochrone_collector.analysis.differential.decision import Margin
from isochrone_collector.analysis.differential.estimation import medians
from isochrone_collector.analysis.differential.panel import Changes, Pairs, Panel, TargetRegion, pair_up, since
from isochrone_collector.analysis.stats.arrays import Integers, Reals, ragged
from isochrone_collector.analysis.stats.long_run_variance import LEAST_ROUNDS, correlation_times
from isochrone_collector.analysis.stats.shifts import Shift, paired_shifts
from isochrone_collector.analysis.stats.steps import LEAST, around_levels, noise, steps
from isochrone_wire.answers import Level

_ROUNDS_PER_ONE = 3
# More rounds have a small signed-rank p-value if they deserve one; it knows their own autocorrelation best.
_FEW = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelHistory:
    """The levels of one pair, oldest first, at least two, and the p-value of no shift in the last one if that
    is short, else 1. `decorrelation_rounds` count as one independent round, by the noise around all levels; `None` if
    these have too few rounds to show it.
    """

    levels: tuple[Level, ...]
    p_value: float
    decorrelation_rounds: float | None = None

    @property
    def since_at(self) -> int:
        """The first round of the present level."""
        return self.levels[-1].from_at


def level_histories(
    panel: Panel, wanted: Sequence[TargetRegion], *, baseline: str, changes: Changes, margin: Margin
) -> dict[TargetRegion, LevelHistory]:
    """Return the levels of each wanted target and region whose difference from the baseline has more than one."""
    pairs = pair_up(panel, wanted, baseline=baseline, changes={})
    base, other = panel.value[pairs.baseline], panel.value[pairs.region]
    differences = pairs.rows(other - base)
    sides = (medians(pairs.rows(values)).tolist() for values in (base, other))
    margins = [margin.size(*both) for both in zip(*sides, strict=True)]
    found = {}
    for row, (key, own) in enumerate(zip(wanted, steps(differences, least_size=np.array(margins)), strict=True)):
        stored_at = since(changes, key, baseline)
        if own or stored_at:
            shared = slice(int(differences.offsets[row]), int(differences.offsets[row + 1]))
            rounds_at = panel.round_at[pairs.region[shared]]
            places = _with_change(own, rounds_at, stored_at)
            # A change after all of these rounds leaves no level to compare.
            if places and stored_at <= rounds_at[-1]:
                found[key] = _history(pairs, shared, places)
    return found


def since_steps(changes: Changes, histories: Mapping[TargetRegion, LevelHistory]) -> Changes:
    """Return the changes with the beginning of each pair's present level as a change of the region."""
    return {**changes, **{key: max(changes.get(key, 0), one.since_at) for key, one in histories.items()}}


def with_steps(panel: Panel, target_ids: Sequence[int], *, changes: Changes, margin: Margin) -> Changes:
    """Return the changes with the steps of each target between the region with most of its rounds and the others."""
    wanted: dict[str, list[TargetRegion]] = {}
    for target_id in target_ids if panel.regions else ():
        every = [(target_id, region) for region in panel.regions]
        most = panel.regions[int(np.argmax(panel.counts(every)))]
        wanted.setdefault(most, []).extend(key for key in every if key[1] != most)
    found = changes
    for baseline, keys in wanted.items():
        found = since_steps(found, level_histories(panel, keys, baseline=baseline, changes=changes, margin=margin))
    return found


def _with_change(places: Sequence[int], rounds_at: Integers, changed_at: int) -> list[int]:
    """Return the places of steps and of a change point, if that is within the rounds, at least `LEAST` apart."""
    place = int(np.searchsorted(rounds_at, changed_at))
    if not 0 < place < len(rounds_at) or any(place <= one < place + LEAST for one in places):
        return list(places)
    return sorted([*(one for one in places if abs(one - place) >= LEAST), place])


def _history(pairs: Pairs, shared: slice, places: Sequence[int]) -> LevelHistory:
    panel = pairs.panel
    base, other = pairs.baseline[shared], pairs.region[shared]
    differences = panel.value[other] - panel.value[base]
    shifts = paired_shifts(ragged(np.split(differences, places))).listed()
    levels = tuple(
        _level(panel, base[begin:end], other[begin:end], shift)
        for (begin, end), shift in zip(pairwise([0, *places, len(other)]), shifts, strict=True)
        if shift is not None
    )
    residuals = around_levels(differences, places)
    (decorrelation_rounds,) = correlation_times(residuals[np.newaxis]).tolist()
    return LevelHistory(
        levels=levels,
        p_value=_p_value(residuals, levels, decorrelation_rounds),
        decorrelation_rounds=decorrelation_rounds if len(other) >= LEAST_ROUNDS else None,
    )


def _level(panel: Panel, base: Integers, other: Integers, shift: Shift) -> Level:
    return Level(
        from_at=int(panel.round_at[other[0]]),
        until_at=int(panel.round_at[other[-1]]),
        n=len(other),
        shift=shift.estimate,
        low=shift.low,
        high=shift.high,
        baseline_median=float(np.median(panel.value[base])),
        region_median=float(np.median(panel.value[other])),
    )


def _p_value(residuals: Reals, levels: Sequence[Level], decorrelation_rounds: float) -> float:
    present = levels[-1]
    if present.n > _FEW:
        return 1.0
    deviation = noise(residuals, len(levels))
    if not deviation:
        return float(not present.shift)
    per_one = max(_ROUNDS_PER_ONE, decorrelation_rounds)
    score = abs(present.shift) / deviation * sqrt(present.n / per_one)
    freedom = (len(residuals) - len(levels)) * _ROUNDS_PER_ONE / per_one
    return float(2 * stdtr(max(freedom, 1.0), -score))
