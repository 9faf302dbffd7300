"""An event loop that wakes up when it was told to.

asyncio on Linux waits with epoll, which counts whole milliseconds and rounds up: every timer is late by half a
millisecond on average. select() counts microseconds, and an epoll descriptor can be waited for like any other. The
kernel also allows itself 0.1 % of a wait to be late, so a long wait is made in two steps.
"""

import asyncio
import selectors
import sys

_SHORT_SECONDS = 0.002
_SPARE_SECONDS = 0.001
_SPARE_SHARE = 0.005


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop with timers good to some tens of microseconds on Linux, the usual loop elsewhere."""
    return asyncio.SelectorEventLoop(_PreciseSelector()) if sys.platform == "linux" else asyncio.new_event_loop()


def first_step(seconds: float) -> float:
    """How long to wait at first when `seconds` are to pass; the loop asks again for what is left."""
    if seconds <= _SHORT_SECONDS:
        return seconds
    return seconds - _SPARE_SECONDS - seconds * _SPARE_SHARE


if sys.platform == "linux":
    import select

    class _PreciseSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0:
                select.select([self.fileno()], [], [], first_step(timeout))
                timeout = 0
            return super().select(timeout)
