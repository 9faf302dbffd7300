"""The wall clock of the collector, read only here; other modules get instants as arguments."""

import time


def now_at() -> int:
    """Return the current instant, in microseconds since the Unix epoch, UTC."""
    return time.time_ns() // 1000
