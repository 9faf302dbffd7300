"""What is done once for all collectors on one database is done by the one that leads.

The laws:

1. Whoever holds the advisory lock leads; everybody else asks for it every second or so, so that another takes over
   within seconds of a leader's end.
2. The lock lives with one connection. When that is lost, so is leadership, and chores under way are cancelled. A moment
   of two leaders is possible (the server lets go of the lock before we notice): a chore must bear being done twice.
3. Chores run beside each other and each never beside itself. One that fails is logged and comes again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from isochrone_collector.errors import CollectorError, DatabaseUnavailable
from isochrone_collector.store import job_state
from isochrone_collector.store.postgres.pool import Connection, Database

_log = structlog.get_logger()

_ASK_S = 1.0
_CONFIRM_S = 1.0
_CONFIRM_TIMEOUT_S = 15.0
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chore:
    name: str
    every_us: int
    work: Callable[[], Awaitable[None]]


class Housekeeping:
    """The chores of the whole fleet of collectors; done here while this collector leads."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._chores: list[_Chore] = []
        self._leads = False

    @property
    def is_leader(self) -> bool:
        """Whether chores are done by this collector at the moment, as far as it knows."""
        return self._leads

    def add(self, name: str, every_us: int, work: Callable[[], Awaitable[None]]) -> None:
        """Have `work` done as soon as this collector leads, and again `every_us` after each beginning. Before `run`."""
        self._chores.append(_Chore(name=name, every_us=every_us, work=work))

    async def run(self) -> None:
        """Lead whenever nobody else does; ends only by being cancelled."""
        while True:
            with suppress(CollectorError):
                await self._seek()
            await asyncio.sleep(_ASK_S)

    async def _seek(self) -> None:
        async with self._database.session() as connection:
            while not await job_state.take_leader_lock(connection):
                await asyncio.sleep(_ASK_S)
            await self._lead(connection)

    async def _lead(self, connection: Connection) -> None:
        self._leads = True
        _log.info("leadership.taken", chores=[chore.name for chore in self._chores])
        try:
            async with asyncio.TaskGroup() as group:
                for chore in self._chores:
                    group.create_task(self._repeat(chore))
                await _watch(connection)
        except* DatabaseUnavailable as lost:
            _log.warning("leadership.lost", reason=str(lost.exceptions[0]))
        finally:
            self._leads = False

    async def _repeat(self, chore: _Chore) -> None:
        while True:
            began_at = self._clock()
            try:
                await chore.work()
            except Exception as error:  # noqa: BLE001  # a chore that failed once must not end the others; it comes again
                hint = error.hint if isinstance(error, CollectorError) else ""
                _log.warning("chore.failed", chore=chore.name, reason=str(error), hint=hint)
            # A wall clock that was set meanwhile makes this pause at most as long as it would be anyway.
            took_us = min(max(0, self._clock() - began_at), chore.every_us)
            await asyncio.sleep(max(chore.every_us - took_us, _SECOND_US // 100) / _SECOND_US)


async def _watch(connection: Connection) -> None:
    """Return never; raise `DatabaseUnavailable` once the connection that holds the lock is no more."""
    while True:
        try:
            async with asyncio.timeout(_CONFIRM_TIMEOUT_S):
                await job_state.confirm_leader(connection)
        except TimeoutError as error:
            raise DatabaseUnavailable("the database does not answer the leader") from error
        await asyncio.sleep(_CONFIRM_S)
