"""The forecast of a rate limit's exhaustion, from what response headers stated. Pure; instants are microseconds since
the epoch.

The laws:

1. The rate is the median of the slopes between all pairs of readings since the last refill (Theil and Sen), with the
   95 % interval of Kendall's statistic (Hollander and Wolfe, Nonparametric Statistical Methods, 3rd ed., 9.3). It is a
   net rate: refilling in between, and all users of the same API key, are in it.
2. A refill is a rise that restores at least half of what was used, if that was at least a tenth of the limit. A bucket
   that refills all the time has none.
3. The instant of the reset ends the forecast if it stays the same from reading to reading. If it moves with the
   readings, it is the time until the bucket would be full without requests, and says nothing about exhaustion.
4. A forecast ends after 24 hours: no rate of a few minutes holds that long.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from isochrone_wire.insights import Exhaustion
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

MIN_READINGS = 5
"""Fewer readings since the last refill have no rate. Of six readings or fewer the interval is that of all slopes."""

MAX_READINGS = 60
"""Readings that a forecast uses at most, the newest ones."""

_MIN_USED = 0.1
_REFILLED = 0.5
# Providers round the instant of a reset to seconds.
_ROUNDING_US = 2 * SECOND_US
_Z = float(ndtri(0.975))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The headers of one probe that began at `at`: the remaining amount, the limit, and the time until the reset."""

    at: int
    remaining: int
    limit: int | None = None
    reset_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The decision, the change per minute and when nothing remains, with 95 % intervals, from so many `readings`."""

    exhaustion: Exhaustion
    per_minute: float | None = None
    per_minute_low: float | None = None
    per_minute_high: float | None = None
    exhausted_at: int | None = None
    exhausted_low_at: int | None = None
    exhausted_high_at: int | None = None
    readings: int = 0


def forecast(readings: Sequence[Reading]) -> Forecast:
    """Return the forecast for a limit by its readings, at least one, oldest first."""
    used = since_refill(readings)
    newest = used[-1]
    if newest.remaining == 0:
        return Forecast(exhaustion=Exhaustion.EXHAUSTED, exhausted_at=newest.at, readings=len(used))
    rates = _rates(used) if len(used) >= MIN_READINGS else None
    if rates is None:
        return Forecast(exhaustion=Exhaustion.UNKNOWN, readings=len(used))
    rate, low, high = rates
    # The fastest fall is the lowest rate, and has the earliest instant.
    exhausted_at, earliest_at, latest_at = (_zero_at(newest, value) for value in (rate, low, high))
    end_at, exhaustion = _end_at(used), Exhaustion.POSSIBLE
    if earliest_at is None or earliest_at >= end_at:
        exhaustion = Exhaustion.NOT_EXPECTED
    elif latest_at is not None and latest_at < end_at:
        exhaustion = Exhaustion.EXPECTED
    return Forecast(
        exhaustion=exhaustion,
        per_minute=rate * MINUTE_US,
        per_minute_low=low * MINUTE_US,
        per_minute_high=high * MINUTE_US,
        exhausted_at=exhausted_at,
        exhausted_low_at=earliest_at,
        exhausted_high_at=latest_at,
        readings=len(used),
    )


def since_refill(readings: Sequence[Reading]) -> Sequence[Reading]:
    """Return the readings since the last refill, at most the newest 60."""
    newest = readings[-MAX_READINGS:]
    full = max(max(one.remaining, one.limit or 0) for one in newest)
    for place in range(len(newest) - 1, 0, -1):
        used = full - newest[place - 1].remaining
        risen = newest[place].remaining - newest[place - 1].remaining
        if used >= _MIN_USED * full and risen > 0 and risen >= _REFILLED * used:
            return newest[place:]
    return newest


def _rates(readings: Sequence[Reading]) -> tuple[float, float, float] | None:
    """Return the slope per microsecond and its interval; `None` if all readings are of one instant."""
    at = np.array([one.at for one in readings], np.float64)
    remaining = np.array([one.remaining for one in readings], np.float64)
    first, second = np.triu_indices(len(at), k=1)
    gap = at[second] - at[first]
    slopes = np.sort((remaining[second] - remaining[first])[gap > 0] / gap[gap > 0])
    if not len(slopes):
        return None
    n = len(at)
    spread = _Z * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    lowest = max(int((len(slopes) - spread) // 2), 0)
    return float(np.median(slopes)), float(slopes[lowest]), float(slopes[len(slopes) - 1 - lowest])


def _zero_at(newest: Reading, rate: float) -> int | None:
    """Return when nothing remains at this rate; `None` if it does not fall, or not within 24 hours."""
    if rate >= 0 or newest.remaining > -rate * DAY_US:
        return None
    return newest.at + round(newest.remaining / -rate)


def _end_at(readings: Sequence[Reading]) -> int:
    """Return the instant of the refill, if it stays the same, at most 24 hours after the newest reading."""
    first, newest = readings[0], readings[-1]
    end_at = newest.at + DAY_US
    if first.reset_us is None or newest.reset_us is None:
        return end_at
    moved_us = newest.at + newest.reset_us - (first.at + first.reset_us)
    stays = moved_us <= max(_ROUNDING_US, (newest.at - first.at) / 2)
    return min(end_at, newest.at + newest.reset_us) if stays else end_at
