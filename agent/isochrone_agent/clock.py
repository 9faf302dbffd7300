"""Clocks: the wall clock, the monotonic clock, and the offset between the collector's wall clock and ours.

Intervals come from the monotonic clock; the wall clock only dates events. The offset comes from four timestamps per
push, the best of the last eight:

    agent         sent_at ───┐                         ┌─── returned_at
    collector                └ received_at ─ server_at ┘

    offset      = ((received_at - sent_at) + (server_at - returned_at)) / 2      collector's clock minus the agent's
    uncertainty = ((returned_at - sent_at) - (server_at - received_at)) / 2      half of the network time

As in NTP (RFC 5905, section 8), the true offset is within the uncertainty, however the network time is divided between
the two directions. The offset is positive if the collector's clock is ahead: collector time = agent time + offset. When
the lead of the wall clock over the monotonic clock changes, the wall clock was stepped, and earlier exchanges are void.
"""

import time
from collections import deque
from dataclasses import dataclass, field

STEP_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class ClockPair:
    """One instant on both clocks, in nanoseconds: since the Unix epoch, and of CLOCK_MONOTONIC."""

    wall_ns: int
    monotonic_ns: int

    @property
    def wall_at(self) -> int:
        """The wall time in microseconds since the epoch."""
        return self.wall_ns // 1000

    @property
    def lead_us(self) -> int:
        """The wall clock minus the monotonic clock in microseconds; constant until the wall clock is stepped."""
        return (self.wall_ns - self.monotonic_ns) // 1000

    def stepped_since(self, earlier: "ClockPair") -> bool:
        """True if the wall clock moved by more than 1 ms against the monotonic one since `earlier`."""
        drift = (self.wall_ns - earlier.wall_ns) - (self.monotonic_ns - earlier.monotonic_ns)
        return abs(drift) > STEP_NS


def read_clocks() -> ClockPair:
    """Read both clocks, one right after the other."""
    return ClockPair(time.time_ns(), time.monotonic_ns())


def now_at() -> int:
    """Return the wall clock in microseconds since the epoch."""
    return time.time_ns() // 1000


_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime_us() -> int:
    """Return the time since the machine started in microseconds, with its suspensions, which Linux's monotonic clock
    lacks; no step of the wall clock changes it.
    """
    return time.clock_gettime_ns(_UPTIME) // 1000


MAX_OFFSET_US = 365 * 86_400 * 1_000_000
"""An offset beyond a year is no measurement, but a mistake of the collector."""

_EXCHANGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """The collector's wall clock minus the agent's, and the maximum error of that, in microseconds."""

    offset_us: int
    uncertainty_us: int


def offset_of(*, sent_at: int, received_at: int, server_at: int, returned_at: int) -> Offset | None:
    """Return the offset by the timestamps of a push; `None` if one is missing or absurd, or time ran backwards."""
    network_us = (returned_at - sent_at) - (server_at - received_at)
    if not (received_at and server_at) or server_at < received_at or network_us < 0:
        return None
    twice_us = (received_at - sent_at) + (server_at - returned_at)
    if abs(twice_us) > 2 * MAX_OFFSET_US:
        return None
    return Offset(offset_us=twice_us // 2, uncertainty_us=(network_us + 1) // 2)


@dataclass(slots=True)
class OffsetEstimator:
    """Estimates the offset from the last eight exchanges. `lead_us` is the wall clock minus the monotonic one, now."""

    _lead_us: int | None = None
    _recent: deque[Offset] = field(default_factory=lambda: deque(maxlen=_EXCHANGES))

    def add(self, offset: Offset | None, *, lead_us: int) -> None:
        """Add the offset of an exchange that ended just now."""
        if self._stepped(lead_us):
            self._recent.clear()
        self._lead_us = lead_us
        if offset is not None:
            self._recent.append(offset)

    def estimate(self, *, lead_us: int) -> Offset | None:
        """The recent offset with the smallest uncertainty; `None` if there is none."""
        if self._stepped(lead_us):
            return None
        return min(self._recent, key=lambda offset: offset.uncertainty_us, default=None)

    def _stepped(self, lead_us: int) -> bool:
        return self._lead_us is not None and abs(lead_us - self._lead_us) > STEP_NS // 1000
