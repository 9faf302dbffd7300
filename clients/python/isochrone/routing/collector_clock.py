"""The collector's clock, by which tables expire, read from the `Date` header of its responses."""

import time
from email.utils import parsedate_to_datetime

from isochrone_wire.durations import SECOND_US

# The header has whole seconds.
_TOLERANCE_US = 2 * SECOND_US
# On Linux this clock counts while the machine is suspended, too.
_STEADY = getattr(time, "CLOCK_BOOTTIME", None)


class CollectorClock:
    """The collector's clock. Between two headers it goes on by a steady clock, so that it stays right when the clock of
    this machine is set; without any header it is this machine's.
    """

    def __init__(self) -> None:
        self._ahead_us: int | None = None

    def now_at(self) -> int:
        """The instant, in microseconds since the epoch."""
        return _wall_us() if self._ahead_us is None else _steady_us() + self._ahead_us

    def set(self, date: str) -> None:
        """Set the clock by a `Date` header that has just arrived."""
        wall_us = _wall_us()
        self._ahead_us = wall_us + lead_us(date, now_at=wall_us) - _steady_us()


def lead_us(date: str, *, now_at: int) -> int:
    """The lead of the clock that wrote a `Date` header over this one, in microseconds; zero below two seconds."""
    try:
        lead = round(parsedate_to_datetime(date).timestamp() * SECOND_US) - now_at
    except (ValueError, OverflowError):
        return 0
    return lead if abs(lead) > _TOLERANCE_US else 0


def _wall_us() -> int:
    return time.time_ns() // 1000


def _steady_us() -> int:
    return (time.monotonic_ns() if _STEADY is None else time.clock_gettime_ns(_STEADY)) // 1000
