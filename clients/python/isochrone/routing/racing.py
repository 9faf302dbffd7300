"""Two attempts of one request at once, of which the first success counts: on an event loop."""

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, Protocol, TypeVar


class Attempted(Protocol):
    """An attempt that has ended."""

    @property
    def is_failed(self) -> bool:
        """True if it gives no answer to keep."""
        ...

    async def discard(self) -> None:
        """Give up the response that it holds."""
        ...


Attempt = TypeVar("Attempt", bound=Attempted)


class Race(Generic[Attempt]):
    """The attempts that have ended: failures, and then the first success."""

    def __init__(self) -> None:
        self.ended: list[Attempt] = []

    @property
    def is_won(self) -> bool:
        """True after a success."""
        return bool(self.ended) and not self.ended[-1].is_failed

    def add(self, attempt: Attempt) -> Attempt | None:
        """Add an attempt that has ended. Return the attempt to discard: this one after a success, else the previous."""
        if self.is_won:
            return attempt
        self.ended.append(attempt)
        return self.ended[-2] if len(self.ended) > 1 else None


Start = Callable[[], Coroutine[Any, Any, Attempt]]


class Racing(Protocol):
    """The operations that differ between an event loop and threads that block."""

    async def race(
        self, first: Start[Attempt], second: Callable[[], Start[Attempt] | None], delay_s: float
    ) -> list[Attempt]:
        """Begin the first attempt, and what `second` returns if that has not ended after the delay. Return those that
        ended until one succeeded, that one last; all if none did. The others are given up.
        """
        ...

    def limit(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """A block that raises `TimeoutError` after so many seconds, which may be infinite."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class LoopRacing:
    """Attempts as tasks of the running event loop; see `Racing`."""

    sleep = staticmethod(asyncio.sleep)

    def __init__(self) -> None:
        self._ending: set[asyncio.Task[None]] = set()

    def limit(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """See `Racing`."""
        return asyncio.timeout(None if math.isinf(seconds) else seconds)

    async def race(
        self, first: Start[Attempt], second: Callable[[], Start[Attempt] | None], delay_s: float
    ) -> list[Attempt]:
        """See `Racing`."""
        tasks, race = [asyncio.create_task(first())], Race[Attempt]()
        try:
            await asyncio.wait(tasks, timeout=delay_s)
            if not tasks[0].done() and (start := second()):
                tasks.append(asyncio.create_task(start()))
            pending = set(tasks)
            while pending and not race.is_won:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                # If both have ended, a failure counts as one.
                ended = sorted((task.result() for task in done), key=lambda attempt: not attempt.is_failed)
                for lost in filter(None, [race.add(attempt) for attempt in ended]):
                    await lost.discard()
        except BaseException:
            race.ended.clear()
            raise
        else:
            return race.ended
        finally:
            self._end(tasks, race.ended)

    def _end(self, tasks: Iterable["asyncio.Task[Attempt]"], kept: Collection[Attempt]) -> None:
        """End the other attempts, without waiting for their connections to close."""
        for task in tasks:
            if not (kept and task.done() and task.result() in kept):
                ending = asyncio.create_task(_end(task))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)


async def _end(task: "asyncio.Task[Attempt]") -> None:
    task.cancel()
    with suppress(Exception, asyncio.CancelledError):
        await (await task).discard()
