"""The clock of the reading side, which no other module reads; and the time range of `--window`."""

import time

from isochrone_wire.answers import Window
from isochrone_wire.queries import windows


def now_at() -> int:
    """The current instant, in microseconds since the Unix epoch."""
    return time.time_ns() // 1000


def parse_window(text: str, *, as_of: int | None = None) -> Window:
    """Parse a window as `isochrone_wire.queries.windows` states it, as of an instant or now. Raises `WindowError`."""
    return windows.parse_window(text, now_at=now_at() if as_of is None else as_of)
