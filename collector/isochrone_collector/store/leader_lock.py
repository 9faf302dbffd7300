"""Who of all collectors on one database does what is done once: whoever holds an advisory lock of the session.

The lock goes with the connection, so it needs no lease and no clock: a collector that was killed, or cut off for as
long as keepalives go unanswered, holds nothing.
"""

from isochrone_collector.errors import DatabaseUnavailable
from isochrone_collector.store.postgres.pool import Connection, execute, fetch, translated
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.rows import YesRow

_LOCK_KEY = 4_600_004


async def take(connection: Connection) -> bool:
    """Try to become the leader for as long as this connection lives. Raises `DatabaseUnavailable`."""
    await execute(connection, query("notice_lost_leader_soon"))
    (taken,) = await fetch(connection, query("try_to_lead"), YesRow, key=_LOCK_KEY)
    return taken.yes


async def confirm(connection: Connection) -> None:
    """See that the connection lives and that its server may be written to. Raises `DatabaseUnavailable`."""
    with translated():
        (writable,) = await fetch(connection, query("is_primary"), YesRow)
    if not writable.yes:
        raise DatabaseUnavailable("the database server was demoted")
