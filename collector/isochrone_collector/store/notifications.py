"""Notifications (LISTEN/NOTIFY) to all collectors on the same database. They have no payload, and may be lost."""

from collections.abc import AsyncIterator
from enum import StrEnum

from isochrone_collector.store.postgres.pool import Connection, execute
from isochrone_collector.store.postgres.queries import query


class Channel(StrEnum):
    """The channels: samples were stored, route tables were published."""

    SAMPLES = "isochrone_samples"
    TABLES = "isochrone_routes"


async def notify(connection: Connection, channel: Channel) -> None:
    """Notify all listeners once the transaction of this connection is committed."""
    await execute(connection, query("notify"), channel=channel.value)


async def listen(connection: Connection) -> None:
    """Listen on every channel with this connection."""
    await execute(connection, query("listen_for_samples"))
    await execute(connection, query("listen_for_tables"))


async def received(connection: Connection) -> AsyncIterator[Channel]:
    """Yield the channel of each notification as it arrives, without end."""
    async for notification in connection.notifies():
        yield Channel(notification.channel)
