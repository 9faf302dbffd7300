"""The one place where the collector reads the wall clock; everything else is handed the instant."""

import time


def now_at() -> int:
    """The present instant, in microseconds since the Unix epoch, UTC."""
    return time.time_ns() // 1000
