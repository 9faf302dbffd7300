"""Fair queueing: small, current pushes are committed before large backlogs.

A large push keeps a core busy while it is packed and while it is committed. With two of them in progress a small push
finds no free core and waits for both; with one it does not. So while small pushes arrive, large ones go one at a time,
which costs the backlog a commit per push. When more large pushes are present than one agent sends at once, all of them
go together: one common commit finishes them soonest.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

BATCH_THRESHOLD = 4
"""The number of calls that one agent has in flight: more large pushes than these are worth a common commit."""

# Agents without a backlog push every few seconds, and a collector has several of them.
_SMALL_EXPECTED_S = 1.0


class FairQueue:
    """Order of large pushes relative to small ones; `clock` returns seconds."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._small_until = clock()
        self._waiting: deque[object] = deque()
        self._active = 0
        self._changed = asyncio.Event()

    def note_small(self) -> None:
        """Record the arrival of a small push; more of them are expected for one second."""
        self._small_until = self._clock() + _SMALL_EXPECTED_S

    @asynccontextmanager
    async def large(self) -> AsyncIterator[None]:
        """Hold a large push's turn, until its commit; entered when the push may proceed."""
        turn = object()
        self._waiting.append(turn)
        try:
            if self._is_above_threshold:
                self._wake()
            while not self._may_go(turn):
                await self._changed.wait()
            self._active += 1
        finally:
            self._waiting.remove(turn)
            self._wake()
        try:
            yield
        finally:
            self._active -= 1
            self._wake()

    @property
    def _is_above_threshold(self) -> bool:
        return len(self._waiting) + self._active > BATCH_THRESHOLD

    def _may_go(self, turn: object) -> bool:
        """Return true for the oldest one that waits while none is in progress, and for all in the other cases."""
        is_next = self._active == 0 and self._waiting[0] is turn
        return is_next or self._is_above_threshold or self._clock() >= self._small_until

    def _wake(self) -> None:
        """Let all that wait check again, in the order of their arrival."""
        self._changed.set()
        self._changed = asyncio.Event()
