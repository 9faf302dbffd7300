"""False alarms of drift detection for series with a weekly cycle: a target is a quarter faster on weekends."""

from collections.abc import Mapping

import numpy as np

from bench.truth.series import Series, correlated, independent
from isochrone_collector.analysis.drift import SeriesState
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_wire.model import DAY_US

_WEEKS, _KNOWN_AFTER = 7, 3
_EVERY_US = 300 * 1_000_000
_SIGMA, _WEEKEND, _SWING = 0.1, 0.75, 0.2
_ROWS, _AT_ONCE = 4, 96
_WORLDS: Mapping[str, Series] = {"independent": independent, "AR(.8)": correlated(0.8)}


def drift_alarms_month(seed: int) -> dict[str, float]:
    """Return by world the alarms of a series in thirty days, from its fourth week on. Half of the series have weekends
    that begin at 18:30 UTC.
    """
    chance = np.random.default_rng(seed)
    days = 7 * (_WEEKS - _KNOWN_AFTER)
    return {
        name: 30 / days * float(np.mean([_alarms(row, 330 * (place % 2)) for place, row in enumerate(rows)]))
        for name, rows in ((name, world(chance, _ROWS, _WEEKS * 2016)) for name, world in _WORLDS.items())
    }


def _alarms(noise: Reals, offset_minutes: int) -> int:
    rounds = np.arange(len(noise), dtype=np.int64) * _EVERY_US
    is_weekend = (rounds + offset_minutes * 60_000_000) // DAY_US % 7 >= 5
    swing = _SWING * np.sin(2 * np.pi * (rounds % DAY_US) / DAY_US)
    values = np.exp(swing + _SIGMA * noise) * np.where(is_weekend, _WEEKEND, 1.0)
    state, found = SeriesState(), 0
    for begin in range(0, len(rounds), _AT_ONCE):
        state.add(rounds[begin : begin + _AT_ONCE], values[begin : begin + _AT_ONCE])
        found += sum(change.seen_at >= _KNOWN_AFTER * 7 * DAY_US for change in state.detect())
    return found
