"""Notifications (LISTEN/NOTIFY) to all collectors on the same database. They have no payload, and may be lost."""

from collections.abc import AsyncIterator
from enum import StrEnum

from isochrone_collector.store.job_state import confirm_primary
from isochrone_collector.store.postgres.pool import Connection, execute
from isochrone_collector.store.postgres.queries import query

_CHECK_EVERY_S = 5.0


class Channel(StrEnum):
    """The channels: samples were stored, route tables were published, alerts were raised."""

    SAMPLES = "isochrone_samples"
    TABLES = "isochrone_routes"
    ALERTS = "isochrone_alerts"


async def notify(connection: Connection, channel: Channel) -> None:
    """Notify all listeners once the transaction of this connection is committed."""
    await execute(connection, query("notify"), channel=channel.value)


async def listen(connection: Connection) -> None:
    """Listen on every channel with this connection."""
    for statement in ("listen_for_samples", "listen_for_tables", "listen_for_alerts"):
        await execute(connection, query(statement))


async def received(connection: Connection) -> AsyncIterator[Channel]:
    """Yield the channel of each notification as it arrives, without end. A silent connection is checked now and then.

    Raises `DatabaseUnavailable` when the server is gone or no longer the primary, which sends no notifications.
    """
    while True:
        async for notification in connection.notifies(timeout=_CHECK_EVERY_S):
            yield Channel(notification.channel)
        await confirm_primary(connection)
