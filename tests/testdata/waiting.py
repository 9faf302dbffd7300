"""Waiting for effects of other processes.

The limits only end a wait for what never comes: a busy machine may take many times as long as an idle one.
"""

import time
from collections.abc import Callable

BUSY = 4
"""The factor between the patience with a busy machine and with an idle one."""


def eventually(seconds: float, true: Callable[[], bool], what: str, *, every: float = 0.05) -> None:
    """Return as soon as `true()` holds; fail if it does not within `BUSY` times the `seconds` of an idle machine.

    It is called `every` so many seconds: a call that starts a program would otherwise occupy a core while it waits.
    """
    deadline = time.monotonic() + BUSY * seconds
    while not true():
        assert time.monotonic() < deadline, f"after {BUSY * seconds:g} s still not: {what}"
        time.sleep(every)
