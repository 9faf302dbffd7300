"""An event loop with precise timers.

asyncio on Linux waits with epoll, whose timeout has a resolution of one millisecond and is rounded up: timers are half
a millisecond late on average. select() has a resolution of microseconds, and an epoll descriptor can itself be waited
for with select(). The kernel also allows a slack of 0.1 % of a wait, so long waits are split into two steps.
"""

import asyncio
import selectors
import sys

_SHORT_SECONDS = 0.002
_SPARE_SECONDS = 0.001
_SPARE_SHARE = 0.005


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop whose timers are accurate to some tens of microseconds on Linux; the default loop elsewhere."""
    return asyncio.SelectorEventLoop(_PreciseSelector()) if sys.platform == "linux" else asyncio.new_event_loop()


def first_step(seconds: float) -> float:
    """Return the first wait in seconds out of a total of `seconds`; the loop then waits for the rest."""
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
