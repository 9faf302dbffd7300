"""The clocks of the collector, read only here; other modules get instants as arguments."""

import time

# Unlike CLOCK_MONOTONIC of Linux, it also runs while the machine is suspended.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_at() -> int:
    """Return the current instant of the wall clock, in microseconds since the Unix epoch, UTC."""
    return time.time_ns() // 1000


def elapsed_us() -> int:
    """Return the microseconds of a clock that is never set, from an arbitrary instant on."""
    return time.clock_gettime_ns(_ELAPSED) // 1000
