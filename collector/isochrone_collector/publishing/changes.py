"""Notices of new data to open pages: which kinds of answers may have changed, at most once a second, and more rarely
the more pages are open.

All watchers share one notice, so that a hundred open pages cost little more than one. A notice says only what to ask
again; the answers come from the queries. Watchers that miss a notice ask again after they have reconnected.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from isochrone_collector.errors import ResourceExhausted
from isochrone_wire.model import SECOND_US

MAX_WATCHERS = 2_000
HEARTBEAT_US = 10 * SECOND_US
MIN_PAUSE_US = SECOND_US
"""Shortest time between two notices."""

REFRESH_US = SECOND_US // 10
"""The time between the requests of two pages, if all pages ask at even intervals."""

# A page asks again once in that time, and needs no more notices.
_NOTICES_PER_REFRESH = 4


class Topic(StrEnum):
    """Kinds of data: samples were stored, route tables were published, alerts were raised, a plan came into force."""

    SAMPLES = "samples"
    TABLES = "tables"
    ALERTS = "alerts"
    PLAN = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """The topics with new data, none in a heartbeat, as of `sent_at`. `generation` is the newest of all route
    tables; the database cannot be read since `stale_since_at`, unless that is `None`. A page should ask again no sooner
    than `refresh_us` after its last request: the more pages are open, the longer.
    """

    topics: tuple[Topic, ...]
    sent_at: int
    refresh_us: int
    generation: int
    stale_since_at: int | None


@dataclass(eq=False, kw_only=True)
class Changes:
    """The shared source of notices. `state` returns the newest generation and since when the database is away."""

    clock: Callable[[], int]
    state: Callable[[], tuple[int, int | None]]
    pause_us: int = MIN_PAUSE_US
    heartbeat_us: int = HEARTBEAT_US
    max_watchers: int = MAX_WATCHERS

    def __post_init__(self) -> None:
        self._watchers = 0
        self._pending: set[Topic] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._sent_s = float("-inf")
        # The number of notices so far, and that of the newest one about each topic.
        self._count = 0
        self._newest: dict[Topic, int] = {}
        self._sent = asyncio.Event()
        self._is_closed = False

    @property
    def watchers(self) -> int:
        """The number of open watches."""
        return self._watchers

    def add(self, topic: Topic) -> None:
        """Note new data of a topic; call it in the event loop. Costs nothing while there are no watchers."""
        if not self._watchers:
            return
        self._pending.add(topic)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            pause_us = max(self.pause_us, REFRESH_US * self._watchers / _NOTICES_PER_REFRESH)
            self._timer = loop.call_at(max(loop.time(), self._sent_s + pause_us / SECOND_US), self._send)

    def close(self) -> None:
        """End every watch: this collector stops."""
        self._is_closed = True
        self._sent.set()

    async def watch(self) -> AsyncGenerator[ChangeEvent, None]:
        """Yield notices, and heartbeats at once and after `heartbeat_us` without one. Raises `ResourceExhausted`."""
        if self._watchers >= self.max_watchers:
            raise ResourceExhausted(
                f"the limit of {self.max_watchers} open pages is reached: close one, or retry later"
            )
        self._watchers += 1
        try:
            seen = self._count
            while not self._is_closed:
                notice, seen = self._notice(seen), self._count
                yield notice
                # Wait for a notice after the first `seen` ones, at most until a heartbeat is due.
                if self._count == seen and not self._is_closed:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.heartbeat_us / SECOND_US):
                            await self._sent.wait()
        finally:
            self._watchers -= 1

    def _send(self) -> None:
        self._count += 1
        self._newest |= dict.fromkeys(self._pending, self._count)
        self._pending.clear()
        self._timer, self._sent_s = None, asyncio.get_running_loop().time()
        self._sent.set()
        self._sent = asyncio.Event()

    def _notice(self, seen: int) -> ChangeEvent:
        generation, stale_since_at = self.state()
        topics = tuple(topic for topic in Topic if self._newest.get(topic, 0) > seen)
        return ChangeEvent(
            topics=topics,
            sent_at=self.clock(),
            refresh_us=max(MIN_PAUSE_US, REFRESH_US * self._watchers),
            generation=generation,
            stale_since_at=stale_since_at,
        )
