"""Daily seasonality of a series: the difference between the level of each hour and that of its day. Pure.

An hour is compared with the same hour of the days before, so a pattern that repeats every evening is not a change.
Instants are microseconds since the epoch, hours are UTC, and values are logarithms.
"""

from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.probes import Integers, Reals
from isochrone_wire.model import DAY_US, MINUTE_US

HOUR_US = 60 * MINUTE_US
MIN_DAYS = 3
"""The minimum number of days: with three, the median ignores one odd day."""

_HOURS = 24
# A day counts only if most of its hours have data.
_MIN_HOURS = 18
_SMOOTHING = np.array([0.25, 0.5, 0.25])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seasonality:
    """The usual difference of each of the 24 hours to the level of its day, as a logarithm."""

    offsets: Reals

    def at(self, rounds: Integers) -> Reals:
        """Return the usual difference at these instants, interpolated between the middles of two hours."""
        hours = (rounds % DAY_US) / HOUR_US - 0.5
        usual: Reals = np.interp(hours, np.arange(-1, _HOURS + 1), np.pad(self.offsets, 1, mode="wrap"))
        return usual


NO_SEASONALITY = Seasonality(offsets=np.zeros(_HOURS))


def estimate_seasonality(hours: Integers, levels: Reals) -> Seasonality:
    """Estimate the seasonality from levels by hour (`hours`: their beginnings); none with fewer than three days."""
    days = _by_day(hours, levels)
    if len(days) < MIN_DAYS:
        return NO_SEASONALITY
    offsets = np.nanmedian(days - np.nanmedian(days, axis=1, keepdims=True), axis=0)
    around = np.pad(offsets, 1, mode="wrap")
    return Seasonality(offsets=np.convolve(around, _SMOOTHING, mode="valid"))


def _by_day(hours: Integers, levels: Reals) -> Reals:
    """Return a row of 24 levels per day that has most of its hours; missing hours get the day's median."""
    days, row = np.unique(hours // DAY_US, return_inverse=True)
    table = np.full((len(days), _HOURS), np.nan)
    table[row, hours % DAY_US // HOUR_US] = levels
    full = table[np.isfinite(table).sum(axis=1) >= _MIN_HOURS]
    middles = np.broadcast_to(np.nanmedian(full, axis=1, keepdims=True), full.shape) if len(full) else full
    return np.where(np.isfinite(full), full, middles)
