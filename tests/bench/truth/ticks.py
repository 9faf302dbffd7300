"""Coverage of intervals of values by a clock of whole milliseconds, which rounds or cuts off."""

from collections.abc import Callable

import numpy as np

from bench.truth.series import ragged_of
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_collector.analysis.stats.binomial import quantiles
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_collector.analysis.stats.shifts import paired_shifts

_ROWS, _ROUNDS = 500, 288
_LEVEL_MS, _SHIFT_MS = 20.0, 0.3
_DEVIATIONS_MS = (0.05, 0.2, 0.5, 2.0)
_Z95 = 1.6448536
_CLOCKS: dict[str, Callable[[Reals], Reals]] = {"round": np.round, "cut off": np.floor}


def coverage(seed: int) -> dict[str, float]:
    """Return the least coverage over deviations of 0.05 to 2 ms, of differences of 0.3 ms and of quantiles."""
    measured = [_of_deviation(seed, deviation_ms) for deviation_ms in _DEVIATIONS_MS]
    return {name: min(one[name] for one in measured) for name in measured[0]}


def _of_deviation(seed: int, deviation_ms: float) -> dict[str, float]:
    chance = np.random.default_rng([seed, 7])
    levels = _LEVEL_MS + chance.random((_ROWS, 1))
    noise = deviation_ms * chance.standard_normal((2, _ROWS, _ROUNDS))
    calm = VarianceInflation(ratio=np.zeros(_ROWS), freedom=np.full(_ROWS, np.inf))
    found = {}
    for name, clock in _CLOCKS.items():
        x, y = 1_000 * clock(levels + noise[0]), 1_000 * clock(levels + _SHIFT_MS + noise[1])
        shifts = paired_shifts(ragged_of(y - x))
        found[f"difference, {name}"] = _held(shifts.low, shifts.high, np.full(_ROWS, 1_000 * _SHIFT_MS))
        told = quantiles(ragged_of(x), {0.5: calm, 0.95: calm}, np.zeros(x.size, np.bool_))
        for share, above in ((0.5, 0.0), (0.95, _Z95)):
            truth = 1_000 * (levels[:, 0] + above * deviation_ms)
            found[f"p{100 * share:g}, {name}"] = _held(told[share].low, told[share].high, truth)
    return found


def _held(low: Reals, high: Reals, truth: Reals) -> float:
    shown = np.isfinite(high)
    return float(((low <= truth) & (truth <= high))[shown].mean())
