"""Whoever drains a backlog gives way to whoever keeps up: while small pushes come, large ones go one at a time.

A large push keeps a core busy at either of its stages, being made ready and being committed. With two of them under
way a small one finds no core free, and waits for both; with one it does not, and the backlog is drained nearly as fast.
When many large ones are there at once, as after an outage of everything, they go together again: in one commit they are
through soonest.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

# So many large pushes at once are more than a few agents that drain.
_CROWD = 8
# Agents that keep up push every few seconds, and there are some of them.
_LASTING_S = 1.0


class Courtesy:
    """Lets large pushes through; `clock` gives seconds."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._small_until = clock()
        self._large = 0
        self._turn = asyncio.Lock()

    def small_came(self) -> None:
        """A small push is there; others like it may be expected for a second."""
        self._small_until = self._clock() + _LASTING_S

    @asynccontextmanager
    async def large(self) -> AsyncIterator[None]:
        """A large push, from its arrival to its commit; entered when it may go on."""
        self._large += 1
        try:
            if self._large > _CROWD or self._clock() >= self._small_until:
                yield
            else:
                async with self._turn:
                    yield
        finally:
            self._large -= 1
