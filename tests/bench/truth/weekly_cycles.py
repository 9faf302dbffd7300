"""Drift detection for targets that are a quarter faster on weekends: false alarms, and rounds to find a step."""

from collections.abc import Mapping

import numpy as np

from bench.truth.series import Series, correlated, drifting, independent
from isochrone_collector.analysis.drift import SeriesState
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_wire.model import DAY_US

_WEEKS, _KNOWN_AFTER = 7, 3
_EVERY_US = 300 * 1_000_000
_WEEK = 7 * DAY_US // _EVERY_US
_SIGMA, _WEEKEND, _SWING = 0.1, 0.75, 0.2
_ROWS, _AT_ONCE = 12, 96
_WORLDS: Mapping[str, Series] = {
    "independent": independent,
    "AR(.8)": correlated(0.8),
    "80 % noise, 20 % drift": drifting(),
}
_STEP_ROWS, _STEP_AT_ONCE, _WITHIN = 16, 3, 288
_STEPS = (1.25, 1.5)


def drift_alarms_month(seed: int) -> dict[str, float]:
    """Return by world the alarms of a series in thirty days, from its fourth week on."""
    chance, days = np.random.default_rng(seed), 7 * (_WEEKS - _KNOWN_AFTER)
    found = {}
    for name, world in _WORLDS.items():
        rows = world(chance, _ROWS, _WEEKS * _WEEK)
        found[name] = 30 / days * float(np.mean([_alarms(*_cyclic(row, place)) for place, row in enumerate(rows)]))
    return found


def rounds_to_step(seed: int) -> dict[str, float]:
    """Return the median rounds until a lasting step of the fifth week is found; infinite if most are not in a day."""
    chance = np.random.default_rng([seed, 1])
    found = {}
    for name, world in _WORLDS.items():
        begins = chance.integers(4 * _WEEK, 5 * _WEEK, _STEP_ROWS).tolist()
        rows = world(chance, _STEP_ROWS, 5 * _WEEK + _WITHIN)
        for factor in _STEPS:
            known = [_rounds_to(row, place, begins[place], factor) for place, row in enumerate(rows)]
            found[f"+{factor - 1:.0%} in {name}"] = float(np.median(known))
    return found


def _cyclic(noise: Reals, place: int) -> tuple[Integers, Reals]:
    """Return the rounds of a series and their values. Every other one has weekends that begin at 18:30 UTC."""
    rounds = np.arange(len(noise), dtype=np.int64) * _EVERY_US
    is_weekend = (rounds + place % 2 * 330 * 60_000_000) // DAY_US % 7 >= 5
    swing = _SWING * np.sin(2 * np.pi * (rounds % DAY_US) / DAY_US)
    return rounds, np.exp(swing + _SIGMA * noise) * np.where(is_weekend, _WEEKEND, 1.0)


def _alarms(rounds: Integers, values: Reals) -> int:
    state, found = SeriesState(), 0
    for begin in range(0, len(rounds), _AT_ONCE):
        state.add(rounds[begin : begin + _AT_ONCE], values[begin : begin + _AT_ONCE])
        found += sum(change.seen_at >= _KNOWN_AFTER * 7 * DAY_US for change in state.detect())
    return found


def _rounds_to(noise: Reals, place: int, begin: int, factor: float) -> float:
    rounds, values = _cyclic(noise, place)
    state = SeriesState()
    state.add(rounds[:begin], values[:begin])
    state.detect()
    for end in range(begin + _STEP_AT_ONCE, begin + _WITHIN + 1, _STEP_AT_ONCE):
        state.add(rounds[end - _STEP_AT_ONCE : end], factor * values[end - _STEP_AT_ONCE : end])
        if state.detect():
            return end - begin
    return np.inf
