"""State of the periodic jobs that collectors share: the leader lock, and how far each job has come.

The leader lock is an advisory lock of a database session. It ends with its connection, so it needs no lease and no
clock: a collector that was killed, or whose keepalives go unanswered, no longer holds it.

Notifications (LISTEN/NOTIFY) to all collectors on the same database. They have no payload, and may be lost.
"""

from collections.abc import AsyncIterator
from enum import StrEnum

from isochrone_collector.errors import DatabaseUnavailable
from isochrone_collector.store.postgres.pool import Connection, execute, fetch_tuples, fetch_values, translated

FAILING = "failing."
"""Prefix of the record of a job that keeps failing; its instant is that of the first failure."""

_BATCHES_LOST = "batches_lost"

_LEADER_LOCK_KEY = 4_600_004


async def take_leader_lock(connection: Connection) -> bool:
    """Try to take the leader lock for the lifetime of this connection. Raises `DatabaseUnavailable`."""
    return await fetch_values(connection, "try_leader_lock", key=_LEADER_LOCK_KEY) == [True]


async def confirm_primary(connection: Connection) -> None:
    """Check that a connection is alive and its server is still the primary. Raises `DatabaseUnavailable`."""
    with translated():
        (is_writable,) = await fetch_values(connection, "is_primary")
    if not is_writable:
        raise DatabaseUnavailable("the database server was demoted", condition="read_only")


async def progress(connection: Connection) -> dict[str, int]:
    """Return how far each job is done, in microseconds since the Unix epoch; jobs that never ran are missing."""
    return dict(await fetch_tuples(connection, "progress"))


async def next_number(connection: Connection, name: str) -> int | None:
    """Return the first transaction or generation that a job has not done; `None` if it never ran."""
    return next(iter(await fetch_values(connection, "next_number", name=name)), None)


async def failing(connection: Connection) -> dict[str, int]:
    """Return the jobs that keep failing, and since when, in microseconds since the Unix epoch."""
    rows = await progress(connection)
    return {name.removeprefix(FAILING): at for name, at in rows.items() if name.startswith(FAILING)}


async def record_failing(connection: Connection, name: str, *, since_at: int) -> None:
    """Record that a job keeps failing."""
    await advance(connection, FAILING + name, since_at)


async def forget_failing(connection: Connection, name: str) -> None:
    """Record that a job works again."""
    await execute(connection, "forget_progress", name=FAILING + name)


async def batches_lost_at(connection: Connection) -> int:
    """Return the instant recorded last at which delivered batches were missing in the database; 0 if never."""
    return (await progress(connection)).get(_BATCHES_LOST, 0)


async def record_batches_lost(connection: Connection, at: int) -> None:
    """Record that delivered batches are missing in the database."""
    await advance(connection, _BATCHES_LOST, at)


async def advance(connection: Connection, name: str, done_until: int, *, next_number: int = 0) -> None:
    """Record that a job is done until an instant, and for all transactions or generations before `next_number`."""
    parameters = {"name": name, "until_at": done_until, "next_number": next_number}
    if not await execute(connection, "advance", **parameters):
        await execute(connection, "begin", **parameters)


_CHECK_EVERY_S = 5.0


class Channel(StrEnum):
    """The channels: samples were stored, route tables were published, alerts were raised."""

    SAMPLES = "isochrone_samples"
    TABLES = "isochrone_routes"
    ALERTS = "isochrone_alerts"


async def notify(connection: Connection, channel: Channel) -> None:
    """Notify all listeners once the transaction of this connection is committed."""
    await execute(connection, "notify", channel=channel.value)


async def listen(connection: Connection) -> None:
    """Listen on every channel with this connection."""
    for statement in ("listen_for_samples", "listen_for_tables", "listen_for_alerts"):
        await execute(connection, statement)


async def received(connection: Connection) -> AsyncIterator[Channel]:
    """Yield the channel of each notification, without end. Raises `DatabaseUnavailable` if the primary is gone."""
    while True:
        async for notification in connection.notifies(timeout=_CHECK_EVERY_S):
            yield Channel(notification.channel)
        await confirm_primary(connection)
