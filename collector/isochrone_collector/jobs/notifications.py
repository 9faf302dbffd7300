"""Notifications (LISTEN/NOTIFY) among the collectors on one database, which wake the work that they are about.

A notification may be lost with a connection. So that work also reads the database now and then, and a new connection
counts as a notification on every channel.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from isochrone_collector.errors import CollectorError
from isochrone_collector.store import notifications
from isochrone_collector.store.notifications import Channel
from isochrone_collector.store.postgres.pool import Database

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
                    await notifications.notify(connection, Channel.SAMPLES)
            await asyncio.sleep(_MIN_PAUSE_S)

    async def _receive(self) -> None:
        while True:
            with suppress(CollectorError):
                async with self._database.session() as connection:
                    await notifications.listen(connection)
                    for channel in Channel:
                        self._handle(channel)
                    async for channel in notifications.received(connection):
                        self._handle(channel)
            await asyncio.sleep(_RECONNECT_S)

    def _handle(self, channel: Channel) -> None:
        for handler in self._handlers[channel]:
            handler()
