"""Whoever drains a backlog gives way to whoever keeps up: while small pushes come, large ones go one at a time.

A large push keeps a core busy at either of its stages, being made ready and being committed. With two of them under
way a small one finds no core free, and waits for both; with one it does not. That costs the backlog a commit for every
push. So when more large ones are there at once than one agent sends, all of them go together: in one commit they are
through soonest.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

# An agent has so many calls in flight.
_CROWD = 4
# Agents that keep up push every few seconds, and there are some of them.
_LASTING_S = 1.0


class FairQueue:
    """Lets large pushes through; `clock` gives seconds."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._small_until = clock()
        self._here = self._under_way = 0
        self._moved = asyncio.Event()

    def small_came(self) -> None:
        """A small push is there; others like it may be expected for a second."""
        self._small_until = self._clock() + _LASTING_S

    @asynccontextmanager
    async def large(self) -> AsyncIterator[None]:
        """A large push, from its arrival to its commit; entered when it may go on."""
        self._here += 1
        try:
            if self._is_crowd:
                self._wake()
            while not self._may_go():
                await self._moved.wait()
            self._under_way += 1
            try:
                yield
            finally:
                self._under_way -= 1
        finally:
            self._here -= 1
            self._wake()

    @property
    def _is_crowd(self) -> bool:
        return self._here > _CROWD

    def _may_go(self) -> bool:
        return self._under_way == 0 or self._is_crowd or self._clock() >= self._small_until

    def _wake(self) -> None:
        """Have all that wait look again, in the order in which they came."""
        self._moved.set()
        self._moved = asyncio.Event()
