"""The wall clock and the monotonic clock. Intervals come from the monotonic one; the wall clock only dates events."""

import time
from dataclasses import dataclass

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
