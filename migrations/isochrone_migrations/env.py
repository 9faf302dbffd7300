"""Alembic environment: migrates on the caller's connection, one caller at a time.

Several collectors may start at once. The first takes the advisory lock, for its session; the others wait for it, and
then have nothing to do. They ask for it again and again instead of waiting in one statement, because an index that is
built concurrently waits for every older statement.
"""

import time

from alembic import context
from sqlalchemy import Connection, text

from isochrone_migrations.statements import LIMIT_LOCK_WAITS

# An arbitrary constant that is the same for every collector.
_LOCK_KEY = 4_600_001
_POLL_SECONDS = 0.1


def migrate(connection: Connection) -> None:
    """Run the requested revisions in one transaction, which only the concurrent build of an index interrupts.

    The lock is held until the caller closes the connection.
    """
    while not _is_locked(connection):
        time.sleep(_POLL_SECONDS)
    context.configure(connection=connection, transactional_ddl=True)
    with context.begin_transaction():
        connection.execute(text(LIMIT_LOCK_WAITS))
        context.run_migrations()


def _is_locked(connection: Connection) -> bool:
    locked = connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK_KEY}).scalar_one()
    connection.commit()
    return bool(locked)


migrate(context.config.attributes["connection"])
