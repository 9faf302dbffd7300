"""Coordination of the collectors on one database: leader election, and notifications (LISTEN/NOTIFY).

The laws:

1. The collector that holds the advisory lock leads and does the work that is done once for all. Every other collector
   asks for the lock once a second, so that one of them takes over within seconds of the leader's end.
2. The lock lives with one connection. When that connection is lost, so is leadership, and the leader's work is
   cancelled. Two leaders are possible for a moment, because the server may release the lock before the collector
   notices: the work must tolerate being done twice.
3. A notification may be lost with a connection. So the work that it wakes also reads the database now and then, and a
   new connection counts as a notification on every channel.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

import structlog

from isochrone_collector.errors import CollectorError, DatabaseUnavailable
from isochrone_collector.store import job_state
from isochrone_collector.store.job_state import Channel
from isochrone_collector.store.postgres.pool import Connection, Database

_log = structlog.get_logger()

_RETRY_S = 1.0
_CONFIRM_S = 1.0
_CONFIRM_WITHIN_S = 10.0


class LeaderElection:
    """The election among the collectors on one database."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._leads = False

    @property
    def is_leader(self) -> bool:
        """True while this collector leads, as far as it knows."""
        return self._leads

    async def run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run `work` whenever this collector leads; ends only by being cancelled."""
        while True:
            with suppress(CollectorError):
                await self._campaign(work)
            await asyncio.sleep(_RETRY_S)

    async def _campaign(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        async with self._database.session() as connection:
            while not await job_state.take_leader_lock(connection):
                await asyncio.sleep(_RETRY_S)
            await self._lead(connection, work)

    async def _lead(self, connection: Connection, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._leads = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(work())
                await _keep_confirming(connection)
        except* DatabaseUnavailable as lost:
            _log.warning("leadership.lost", reason=str(lost.exceptions[0]))
        finally:
            self._leads = False


async def _keep_confirming(connection: Connection) -> None:
    """Confirm leadership every second; raise `DatabaseUnavailable` once the connection with the lock is lost."""
    connection.answer_within_s = _CONFIRM_WITHIN_S
    while True:
        await job_state.confirm_primary(connection)
        await asyncio.sleep(_CONFIRM_S)


_RECONNECT_S = 1.0
# There may be hundreds of commits per second, and each notification wakes the leader.
_MIN_PAUSE_S = 0.1


class Notifications:
    """The notifications of one collector, with handlers for each channel, which must be quick."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._handlers: dict[Channel, list[Callable[[], None]]] = {channel: [] for channel in Channel}
        self._samples_stored = asyncio.Event()

    def handle(self, channel: Channel, handler: Callable[[], None]) -> None:
        """Add a handler of a channel, before `run`."""
        self._handlers[channel].append(handler)

    def notify_samples(self) -> None:
        """Notify the other collectors soon that samples were stored."""
        self._samples_stored.set()

    async def run(self) -> None:
        """Send and receive notifications; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            group.create_task(self._receive())

    async def _send(self) -> None:
        while True:
            await self._samples_stored.wait()
            self._samples_stored.clear()
            with suppress(CollectorError):
                async with self._database.connection() as connection:
                    await job_state.notify(connection, Channel.SAMPLES)
            await asyncio.sleep(_MIN_PAUSE_S)

    async def _receive(self) -> None:
        while True:
            with suppress(CollectorError):
                async with self._database.session() as connection:
                    await job_state.listen(connection)
                    for channel in Channel:
                        self._handle(channel)
                    async for channel in job_state.received(connection):
                        self._handle(channel)
            await asyncio.sleep(_RECONNECT_S)

    def _handle(self, channel: Channel) -> None:
        for handler in self._handlers[channel]:
            handler()
