"""Group commit: what waits together is committed together.

The laws:

1. Nothing waits for company that may never come. What is submitted while a lane is free goes at once, unless a crowd
   was announced (`coming`) and there is less than a group worth its commit; what comes while all lanes are busy is the
   next group. So groups grow as fast as commits are slow, or as what is announced is being made ready.
2. A group that the database cannot take is tried one by one, so that one bad member cannot fail the others.
3. Whoever stops waiting stops nobody: its work is done all the same.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from isochrone_collector.errors import DatabaseUnavailable, TooMany

BUSY_DELAY_US = 5_000_000
"""How long whoever finds it full should wait, in microseconds."""

# What was announced may come to nothing, again and again: whoever waits for it waits no longer than this.
_PATIENCE_SECONDS = 0.1

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Waiting(Generic[Work, Result]):
    work: Work
    rows: int
    result: "asyncio.Future[Result]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class GroupCommit(Generic[Work, Result]):
    """Hands waiting work to `commit`, at most `group_rows` rows at a time unless a single piece has more, in at most
    `lanes` calls at once. `commit` gives a result per piece, in their order. `worth_rows` are worth a commit although
    a `crowd` is coming; when `waiting_rows` wait or are coming, it is full.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Work]], Awaitable[Sequence[Result]]],
        *,
        group_rows: int,
        waiting_rows: int,
        worth_rows: int = 0,
        crowd: int = 1,
        lanes: int = 1,
    ) -> None:
        self._commit = commit
        self._group_rows = group_rows
        self._most_waiting = waiting_rows
        self._worth_rows = worth_rows
        self._crowd = crowd
        self._lanes = lanes
        self._waiting: deque[_Waiting[Work, Result]] = deque()
        self._waiting_rows = 0
        self._coming_rows: list[int] = []
        self._came = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._running: set[asyncio.Task[None] | None] = set()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more should be taken for the moment."""
        return self.rows >= self._most_waiting

    @property
    def rows(self) -> int:
        """How many rows wait or are coming."""
        return self._waiting_rows + sum(self._coming_rows)

    @contextmanager
    def coming(self, rows: int) -> Iterator[None]:
        """Announce work of about so many rows, to be submitted right after. Raises `TooMany`."""
        self._check_room()
        self._coming_rows.append(rows)
        try:
            yield
        finally:
            self._coming_rows.remove(rows)
            self._came.set()

    async def submit(self, work: Work, *, rows: int) -> Result:
        """The result of the work once it is committed. Raises `TooMany`, and whatever `commit` raises for it."""
        self._check_room()
        waiting: _Waiting[Work, Result] = _Waiting(work, rows)
        self._waiting.append(waiting)
        self._waiting_rows += rows
        if len(self._running) < self._lanes:
            self._running.add(asyncio.create_task(self._run()))
            self._idle.clear()
        return await waiting.result

    async def idle(self, *, at_most_us: int) -> None:
        """Wait until nothing is being committed, for some microseconds at most."""
        if not self._idle.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), at_most_us / 1_000_000)

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._until_worth_it()
                await self._settle(self._next_group())
        finally:
            # In the same step in which nothing waited: whoever comes next must not take this lane for busy.
            self._running.discard(asyncio.current_task())
            if not self._running:
                self._idle.set()

    async def _until_worth_it(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while len(self._coming_rows) >= self._crowd and self._waiting_rows < self._worth_rows:
                    self._came.clear()
                    await self._came.wait()

    def _next_group(self) -> list[_Waiting[Work, Result]]:
        group = [self._waiting.popleft()]
        rows = group[0].rows
        while self._waiting and rows + self._waiting[0].rows <= self._group_rows:
            rows += self._waiting[0].rows
            group.append(self._waiting.popleft())
        self._waiting_rows -= rows
        return group

    async def _settle(self, group: Sequence[_Waiting[Work, Result]]) -> None:
        try:
            results = await self._commit([waiting.work for waiting in group])
        except Exception as error:  # noqa: BLE001  # it is whoever waits who has to know
            await self._failed(group, error)
            return
        for waiting, result in zip(group, results, strict=True):
            if not waiting.result.done():
                waiting.result.set_result(result)

    async def _failed(self, group: Sequence[_Waiting[Work, Result]], error: Exception) -> None:
        if len(group) > 1 and not isinstance(error, DatabaseUnavailable):
            for waiting in group:
                await self._settle([waiting])
            return
        for waiting in group:
            if not waiting.result.done():
                waiting.result.set_exception(error)

    def _check_room(self) -> None:
        if self.is_full:
            reason = f"{self.rows} rows wait to be stored already; try again in a moment"
            raise TooMany(reason, delay_us=BUSY_DELAY_US)
