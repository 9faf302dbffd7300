"""Two attempts of one request at once, of which the first success counts: on an event loop."""

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol, TypeVar


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
Start = Callable[[], Coroutine[Any, Any, Attempt]]


class Racing(Protocol):
    """What the engine leaves to its surroundings: an event loop, or a thread that blocks."""

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
        tasks, ended = [asyncio.create_task(first())], list[Attempt]()
        try:
            await asyncio.wait(tasks, timeout=delay_s)
            if not tasks[0].done() and (start := second()):
                tasks.append(asyncio.create_task(start()))
            await _first_success(tasks, ended)
        except BaseException:
            ended.clear()
            raise
        else:
            return ended
        finally:
            self._end(tasks, ended)

    def _end(self, tasks: Iterable["asyncio.Task[Attempt]"], kept: Collection[Attempt]) -> None:
        """End the other attempts, without waiting for their connections to close."""
        for task in tasks:
            if not (kept and task.done() and task.result() in kept):
                ending = asyncio.create_task(_end(task))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)


async def _first_success(tasks: Iterable["asyncio.Task[Attempt]"], ended: list[Attempt]) -> None:
    """Add the attempts that have ended when the first succeeds, that one last; all of them if none does."""
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        attempts = sorted((task.result() for task in done), key=lambda attempt: not attempt.is_failed)
        lost = [*ended[-1:], *attempts[:-1]]
        ended += attempts
        for attempt in lost:
            await attempt.discard()
        if not ended[-1].is_failed:
            break


async def _end(task: "asyncio.Task[Attempt]") -> None:
    task.cancel()
    with suppress(Exception, asyncio.CancelledError):
        await (await task).discard()
