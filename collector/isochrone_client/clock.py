"""The one place where the reading side looks at the time."""

import time


def now_at() -> int:
    """The wall instant now, in microseconds since the Unix epoch."""
    return time.time_ns() // 1000
