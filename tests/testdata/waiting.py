"""Waiting for effects of other processes."""

import time
from collections.abc import Callable


def eventually(seconds: float, true: Callable[[], bool], what: str) -> None:
    """Return as soon as `true()` holds; fail if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.1)
