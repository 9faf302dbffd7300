"""Lets every collector on a database know at once what one of them did.

A bell may go unheard when a connection is lost. So whoever acts on one also looks by itself every second or two, and a
new connection is taken for a bell.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from isochrone_collector.errors import CollectorError
from isochrone_collector.store import notifications
from isochrone_collector.store.notifications import Channel
from isochrone_collector.store.postgres.pool import Database

_AGAIN_S = 1.0
# Commits come by the hundred in a second; whoever hears of them waits for the next ones anyway.
_PAUSE_S = 0.1


class Bell:
    """Calls out that samples were stored, and has each call of others answered by what stands under it in `on`."""

    def __init__(self, *, database: Database, on: Mapping[Channel, Callable[[], None]]) -> None:
        self._database = database
        self._on = on
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Samples were stored here, and the collector that leads should know."""
        self._rung.set()

    async def run(self) -> None:
        """Channel and hear; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ring())
            group.create_task(self._hear())

    async def _ring(self) -> None:
        while True:
            await self._rung.wait()
            self._rung.clear()
            with suppress(CollectorError):
                async with self._database.connection() as connection:
                    await notifications.notify(connection, Channel.SAMPLES)
            await asyncio.sleep(_PAUSE_S)

    async def _hear(self) -> None:
        while True:
            with suppress(CollectorError):
                async with self._database.session() as connection:
                    await notifications.listen(connection)
                    for answer in self._on.values():
                        answer()
                    async for call in notifications.received(connection):
                        self._on[call]()
            await asyncio.sleep(_AGAIN_S)
