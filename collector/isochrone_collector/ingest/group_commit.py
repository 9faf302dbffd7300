"""Group commit: pushes that wait at the same time are committed together, in one transaction.

The laws:

1. Work is never delayed for company that may not come. Work submitted while no commit runs is committed at once, unless
   `batch_threshold` or more pieces are announced (`announce`) and fewer than `worth_rows` rows wait. Work submitted
   during a commit is the next group. Groups therefore grow with the duration of a commit, or of the packing of what is
   announced. With fewer than `batch_threshold` pieces in all, `at_once` commits run at the same time.
2. When the database refuses a group, its members are committed one by one: a bad member does not fail the others.
3. A caller that stops waiting affects no one else: its work is committed all the same.

Fair queueing: small, current pushes are committed before large backlogs.

A large push keeps a core busy while it is packed and while it is committed. With two of them in progress a small push
finds no free core and waits for both; with one it does not. So while small pushes arrive, large ones go one at a time,
which costs the backlog a commit per push. When more large pushes are present than one agent sends at once, all of them
go together: one common commit finishes them soonest.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from time import monotonic
from typing import Generic, TypeVar

from isochrone_collector.errors import DatabaseUnavailable, ResourceExhausted

BUSY_DELAY_US = 5_000_000
"""How long a caller should wait before its next push when the queue is full, in microseconds."""

# Announced work may fail, again and again; a commit waits for it no longer than this.
_MAX_WAIT_S = 0.1

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Waiting(Generic[Work, Result]):
    work: Work
    rows: int
    result: "asyncio.Future[Result]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(eq=False)
class GroupCommit(Generic[Work, Result]):
    """Queue of work that is handed to `commit` in groups.

    A group has at most `group_rows` rows, unless a single piece has more. `commit` returns one result per piece, in
    order. `at_once`, `worth_rows` and `batch_threshold`: see law 1. The queue is full when `waiting_rows` rows wait or
    are announced; work is refused before it is announced, and never later.
    """

    commit: Callable[[Sequence[Work]], Awaitable[Sequence[Result]]]
    _: KW_ONLY
    group_rows: int
    waiting_rows: int
    worth_rows: int = 0
    batch_threshold: int = 1
    at_once: int = 1

    def __post_init__(self) -> None:
        self._waiting: deque[_Waiting[Work, Result]] = deque()
        self._queued_rows = 0
        self._announced_rows: list[int] = []
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._submitted = 0
        self._workers: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        """True while new work is refused."""
        return self.rows >= self.waiting_rows

    @property
    def rows(self) -> int:
        """Number of rows that wait or are announced."""
        return self._queued_rows + sum(self._announced_rows)

    @contextmanager
    def announce(self, rows: int) -> Iterator[None]:
        """Announce work of about `rows` rows that is submitted right after. Raises `ResourceExhausted`."""
        if self.is_full:
            reason = f"{self.rows} rows are waiting to be stored already; try again in a moment"
            raise ResourceExhausted(reason, delay_us=BUSY_DELAY_US)
        self._announced_rows.append(rows)
        try:
            yield
        finally:
            self._announced_rows.remove(rows)
            self._arrived.set()

    async def submit(self, work: Work, *, rows: int) -> Result:
        """Return the result of the work once it is committed. Raises the errors of `commit`."""
        waiting: _Waiting[Work, Result] = _Waiting(work, rows)
        self._waiting.append(waiting)
        self._queued_rows += rows
        self._submitted += 1
        if len(self._workers) < self._wanted:
            self._workers.add(asyncio.create_task(self._run()))
            self._idle.clear()
        try:
            return await waiting.result
        finally:
            self._submitted -= 1

    async def wait_idle(self, *, timeout_us: int) -> None:
        """Wait until no commit runs, or until the timeout in microseconds."""
        if not self._idle.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_us / 1_000_000)

    @property
    def _wanted(self) -> int:
        return self.at_once if self._submitted + len(self._announced_rows) < self.batch_threshold else 1

    async def _run(self) -> None:
        try:
            while self._waiting and len(self._workers) <= self._wanted:
                await self._wait_for_batch()
                # Another worker may have taken it meanwhile.
                if self._waiting:
                    await self._commit_group(self._next_group())
        finally:
            # In the same step in which the queue was found empty: the next `submit` must start a new worker.
            self._workers -= {asyncio.current_task()}
            if not self._workers:
                self._idle.set()

    async def _wait_for_batch(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_WAIT_S):
                while len(self._announced_rows) >= self.batch_threshold and self._queued_rows < self.worth_rows:
                    self._arrived.clear()
                    await self._arrived.wait()

    def _next_group(self) -> list[_Waiting[Work, Result]]:
        group = [self._waiting.popleft()]
        rows = group[0].rows
        while self._waiting and rows + self._waiting[0].rows <= self.group_rows:
            rows += self._waiting[0].rows
            group.append(self._waiting.popleft())
        self._queued_rows -= rows
        return group

    async def _commit_group(self, group: Sequence[_Waiting[Work, Result]]) -> None:
        try:
            results = await self.commit([waiting.work for waiting in group])
        except Exception as error:  # noqa: BLE001  # every error is raised to the callers that wait
            await self._fail_group(group, error)
            return
        for waiting, result in zip(group, results, strict=True):
            if not waiting.result.done():
                waiting.result.set_result(result)

    async def _fail_group(self, group: Sequence[_Waiting[Work, Result]], error: Exception) -> None:
        if len(group) > 1 and not isinstance(error, DatabaseUnavailable):
            for waiting in group:
                await self._commit_group([waiting])
            return
        for waiting in group:
            if not waiting.result.done():
                waiting.result.set_exception(error)


BATCH_THRESHOLD = 4
"""The number of calls that one agent has in flight: more large pushes than these are worth a common commit."""

# Agents without a backlog push every few seconds, and a collector has several of them.
_SMALL_EXPECTED_S = 1.0


class AdmissionQueue:
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
