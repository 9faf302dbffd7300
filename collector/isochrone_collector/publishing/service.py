"""Publishing of route tables: the builder, the publisher, and the notifications between collectors.

A notification may be lost with a connection. So builder and publisher also read the database every second or two, and a
new connection counts as a notification.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from isochrone_collector.errors import CollectorError
from isochrone_collector.jobs.registry import Job
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing import builder
from isochrone_collector.publishing.builder import RouteBuilder
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.store import notifications
from isochrone_collector.store.notifications import Channel
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire import __version__

_RECONNECT_S = 1.0
# There may be hundreds of commits per second; the leader gathers samples for that long anyway.
_MIN_PAUSE_S = 0.1


class Publishing:
    """The route tables of one collector: built while it leads, and published in any case by `publisher`."""

    def __init__(
        self,
        *,
        database: Database,
        plans: Plans,
        is_leader: Callable[[], bool],
        clock: Callable[[], int],
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.publisher = Publisher(database=database, plans=plans, clock=clock)
        self._is_leader = is_leader
        self._plans = plans
        self._builder = RouteBuilder(
            database=database.patient(),
            plans=plans,
            clock=clock,
            code_version=__version__,
            changed=self.publisher.wake,
            is_paused=is_paused,
        )
        handlers = {Channel.SAMPLES: self._builder.wake, Channel.TABLES: self.publisher.wake}
        self._notifications = _Notifications(database=database, handlers=handlers)

    def leader_jobs(self) -> list[Job]:
        """Return the jobs of the leader: building tables until it is cancelled, and deleting old ones."""
        return [
            Job(name="routes", every_us=builder.RETRY_US, work=self._builder.build),
            Job(name="old route tables", every_us=builder.DELETE_OLD_EVERY_US, work=self._builder.delete_old),
        ]

    def stored(self) -> None:
        """Wake the leader's builder: samples were committed by this collector."""
        if self._is_leader():
            self._builder.wake()
        else:
            self._notifications.notify_samples()

    async def follow_plan(self) -> None:
        """Refresh the plan, and wake the builder if another one is in force. Raises `DatabaseUnavailable`."""
        before = self._plans.content_hash
        await self._plans.refresh()
        if self._plans.content_hash != before:
            self._builder.wake()

    async def run(self) -> None:
        """Follow published tables and notifications; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.publisher.run())
            group.create_task(self._notifications.run())


class _Notifications:
    """Notifications (LISTEN/NOTIFY) among the collectors on one database, with a handler for each channel."""

    def __init__(self, *, database: Database, handlers: Mapping[Channel, Callable[[], None]]) -> None:
        self._database = database
        self._handlers = handlers
        self._samples_stored = asyncio.Event()

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
                    await notifications.notify(connection, Channel.SAMPLES)
            await asyncio.sleep(_MIN_PAUSE_S)

    async def _receive(self) -> None:
        while True:
            with suppress(CollectorError):
                async with self._database.session() as connection:
                    await notifications.listen(connection)
                    for handle in self._handlers.values():
                        handle()
                    async for channel in notifications.received(connection):
                        self._handlers[channel]()
            await asyncio.sleep(_RECONNECT_S)
