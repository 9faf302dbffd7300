"""Schema migrations with alembic: upgrade and downgrade a database, and detect revisions of newer collectors.

Alembic finds the package `isochrone_migrations` by name.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from isochrone_collector.errors import SchemaError
from isochrone_collector.store.postgres import citus
from isochrone_collector.store.postgres.connection import condition_of, unavailable
from isochrone_collector.store.postgres.pool import connect

_SCRIPTS = "isochrone_migrations"
_ATTEMPTS = 5
_PAUSE_S = 1.0


def upgrade(conninfo: str, *, revision: str, distribute: bool = False) -> tuple[str | None, str | None, list[str]]:
    """Upgrade to `revision`, and distribute the tables over the Citus cluster, if that is wanted or was done before;
    return the revisions before and after, and the tables distributed. Raises `DatabaseUnreachable`,
    `DatabaseUnavailable` and `SchemaError`.

    Several processes may run this at once: all but one wait, and then have nothing to do.
    """
    with _alembic(conninfo) as (config, connection):
        before = _revision_of(connection)
        _retried(lambda: command.upgrade(config, revision), connection)
        after = _revision_of(connection)
        # The same session, because it holds the lock of migrations until it ends.
        session = connection.connection.driver_connection
        assert session is not None
        session.autocommit = True
        is_wanted = distribute or citus.is_distributed(session)
        return before, after, citus.distribute(session) if is_wanted else []


def downgrade(conninfo: str, *, revision: str) -> None:
    """Downgrade to `revision`; `base` is the empty database. Raises `DatabaseUnreachable` and `SchemaError`."""
    with _alembic(conninfo) as (config, connection):
        _retried(lambda: command.downgrade(config, revision), connection)


def _retried(run: Callable[[], None], connection: Connection) -> None:
    """Run a migration again if another session holds the lock of a table, with increasing pauses."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            run()
        except DBAPIError as error:
            if not isinstance(error.orig, LockNotAvailable):
                raise
            if attempt == _ATTEMPTS:
                raise SchemaError(
                    f"the migration failed and was rolled back: {error.orig}",
                    hint="another session holds a table for long: end its transaction, or try again later",
                ) from error
            connection.rollback()
            time.sleep(_PAUSE_S * attempt)
        else:
            return


def _revision_of(connection: Connection) -> str | None:
    try:
        return MigrationContext.configure(connection).get_current_revision()
    finally:
        # The migration opens its own transaction and commits it.
        connection.rollback()


@contextmanager
def _alembic(conninfo: str) -> Iterator[tuple[Config, Connection]]:
    # psycopg reads the connection string, as everywhere else; SQLAlchemy only carries the connection.
    engine = create_engine("postgresql+psycopg://", creator=lambda: connect(conninfo), poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", f"{_SCRIPTS}:")
    try:
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            yield config, connection
    except CommandError as error:
        raise SchemaError(
            f"this collector does not know the revision of the database: {error}",
            hint="run a newer collector: one has migrated this database",
        ) from error
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error) and (condition := condition_of(error.orig)):
            raise unavailable(error.orig, condition) from error
        raise SchemaError(f"the migration failed and was rolled back: {error.orig}") from error
