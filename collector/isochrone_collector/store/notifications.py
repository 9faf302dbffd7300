"""Bells: what one collector calls out to all on the same database. They carry nothing, and may go unheard."""

from collections.abc import AsyncIterator
from enum import StrEnum

from isochrone_collector.store.postgres.pool import Connection, execute
from isochrone_collector.store.postgres.queries import query


class Channel(StrEnum):
    """What happened: samples were stored, route tables were published."""

    SAMPLES = "isochrone_samples"
    TABLES = "isochrone_routes"


async def notify(connection: Connection, call: Channel) -> None:
    """Channel out, once the transaction of this connection is committed."""
    await execute(connection, query("notify"), call=call.value)


async def listen(connection: Connection) -> None:
    """Hear every call on this connection."""
    await execute(connection, query("listen_for_samples"))
    await execute(connection, query("listen_for_tables"))


async def received(connection: Connection) -> AsyncIterator[Channel]:
    """Calls as they come, without end."""
    async for notice in connection.notifies():
        yield Channel(notice.channel)
