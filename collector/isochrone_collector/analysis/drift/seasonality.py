"""The daily rhythm of a series: how its level at each hour of the day differs from that of the whole day. Pure.

The same hour of the days before is what an hour is measured against; so what comes every evening is no change. Instants
are microseconds since the epoch, hours are UTC, and values are logarithms.
"""

from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.probes import Integers, Reals
from isochrone_wire.model import DAY_US, MINUTE_US

HOUR_US = 60 * MINUTE_US
MIN_DAYS = 3
"""How many days make a rhythm: with three, one odd day is outvoted."""

_HOURS = 24
# A day tells of the rhythm only when most of it was seen.
_MIN_HOURS = 18
_SMOOTHING = np.array([0.25, 0.5, 0.25])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seasonality:
    """By how much each of the 24 hours is usually above the level of its day."""

    offsets: Reals

    def at(self, rounds: Integers) -> Reals:
        """What is usual at these instants, between the middles of two hours in proportion."""
        hours = (rounds % DAY_US) / HOUR_US - 0.5
        usual: Reals = np.interp(hours, np.arange(-1, _HOURS + 1), np.pad(self.offsets, 1, mode="wrap"))
        return usual


NO_SEASONALITY = Seasonality(offsets=np.zeros(_HOURS))


def estimate_seasonality(hours: Integers, levels: Reals) -> Seasonality:
    """The rhythm of levels by hour, `hours` being their beginnings; none while fewer than three days were seen."""
    days = _by_day(hours, levels)
    if len(days) < MIN_DAYS:
        return NO_SEASONALITY
    offsets = np.nanmedian(days - np.nanmedian(days, axis=1, keepdims=True), axis=0)
    around = np.pad(offsets, 1, mode="wrap")
    return Seasonality(offsets=np.convolve(around, _SMOOTHING, mode="valid"))


def _by_day(hours: Integers, levels: Reals) -> Reals:
    """A row of 24 levels for each day that was seen for the most part; hours that nobody saw take the day's median."""
    days, row = np.unique(hours // DAY_US, return_inverse=True)
    table = np.full((len(days), _HOURS), np.nan)
    table[row, hours % DAY_US // HOUR_US] = levels
    full = table[np.isfinite(table).sum(axis=1) >= _MIN_HOURS]
    middles = np.broadcast_to(np.nanmedian(full, axis=1, keepdims=True), full.shape) if len(full) else full
    return np.where(np.isfinite(full), full, middles)
