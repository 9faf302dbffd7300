"""Alembic environment: migrates on the caller's connection, one caller at a time.

Several collectors may start at once. The first takes the advisory lock inside the migration's own transaction; the
others wait for it, and then have nothing to do.
"""

from alembic import context
from sqlalchemy import Connection, text

# An arbitrary constant that is the same for every collector.
_LOCK_KEY = 4_600_001


def migrate(connection: Connection) -> None:
    """Run the requested revisions in one transaction that holds the lock."""
    context.configure(connection=connection, transactional_ddl=True)
    with context.begin_transaction():
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        # A statement that waits for a lock makes every later one wait. The caller tries again.
        connection.execute(text("SET LOCAL lock_timeout = '2s'"))
        context.run_migrations()


migrate(context.config.attributes["connection"])
