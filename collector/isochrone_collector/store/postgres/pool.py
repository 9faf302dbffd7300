"""Connections to PostgreSQL: a pool, single sessions, and psycopg's errors translated into the collector's."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import class_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from isochrone_collector import durations
from isochrone_collector.errors import DatabaseUnavailable, DatabaseUnreachable, SettingsError, StartError, TookTooLong
from isochrone_collector.store.postgres import instants
from isochrone_collector.store.postgres.queries import query

Connection = AsyncConnection[Any]
Statement = sql.SQL | sql.Composed
Row = TypeVar("Row")

_CONNECT_TIMEOUT_S = 5
_CONNECTION: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": _CONNECT_TIMEOUT_S,
    "application_name": "isochrone-collector",
}
# A session that holds a lock should notice soon that its server is gone.
_KEEPALIVES: dict[str, Any] = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
_WAIT_FOR_CONNECTION_S = 10.0
_MAX_CONNECTIONS = 8
_US_PER_MS = 1000
# The pool reconnects with increasing pauses. After this time it gives up and starts over with the next request for a
# connection, within a second. Otherwise it would notice a server that was away for minutes only minutes later.
_GIVE_UP_AFTER_S = 3.0
_RECYCLE_AFTER_S = 1800.0

# Transient errors: the server is away, full, starting or demoted, or wants the transaction to be retried.
_TRANSIENT = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)


def describe(conninfo: str) -> str:
    """Return the address of a database for messages and logs, without the password. Raises `SettingsError`."""
    try:
        parts = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        # The driver's message may quote the password.
        raise SettingsError(
            "the database URL cannot be read", hint="write postgresql://user:password@host:5432/database"
        ) from None
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host') or 'localhost'}{port}/{parts.get('dbname') or ''}"


def connect(conninfo: str) -> psycopg.Connection[Any]:
    """Open one plain connection, for work before the event loop serves. Raises `DatabaseUnreachable`."""
    address = describe(conninfo)
    try:
        return psycopg.connect(conninfo, connect_timeout=_CONNECT_TIMEOUT_S, application_name="isochrone-collector")
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise DatabaseUnreachable(
            f"no PostgreSQL at {address}: {reason}",
            hint="check --database-url and that the server runs, or leave it out to use the embedded PostgreSQL",
        ) from error


class Database:
    """A pool of connections to one PostgreSQL. Every transient error is `DatabaseUnavailable`.

    With a `statement_timeout_us` (microseconds) the server cancels longer statements: `TookTooLong`.
    """

    def __init__(self, conninfo: str, *, statement_timeout_us: int | None = None) -> None:
        self._conninfo = conninfo
        self._statement_timeout_us = statement_timeout_us
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            conninfo,
            kwargs=dict(_CONNECTION),
            min_size=1,
            max_size=_MAX_CONNECTIONS,
            max_lifetime=_RECYCLE_AFTER_S,
            timeout=_WAIT_FOR_CONNECTION_S,
            reconnect_timeout=_GIVE_UP_AFTER_S,
            check=AsyncConnectionPool.check_connection,
            configure=self._configure,
            open=False,
        )

    async def open(self) -> None:
        """Fill the pool. Raises `DatabaseUnreachable`."""
        try:
            await self._pool.open(wait=True, timeout=_WAIT_FOR_CONNECTION_S)
        except PoolTimeout as error:
            await self._pool.close()
            raise DatabaseUnreachable(f"no connection within {_WAIT_FOR_CONNECTION_S:.0f} s") from error

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    def statistics(self) -> dict[str, int]:
        """Return the pool's statistics by psycopg's names; may be called from any thread."""
        return self._pool.get_stats()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Borrow a connection outside any transaction."""
        before = _cancellations()
        with translated(), self._in_time():
            async with self._pool.connection() as connection:
                if _cancellations() > before:
                    # The pool loses a cancellation that meets the connection it waited for.
                    raise asyncio.CancelledError
                try:
                    yield connection
                except errors.ReadOnlySqlTransaction:
                    # This server was demoted; the next connection may find the new primary.
                    await connection.close()
                    raise

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """Open a separate connection outside the pool and outside any transaction. Its session, with any advisory lock,
        ends with the block or when the connection is lost.
        """
        with translated():
            async with await AsyncConnection.connect(self._conninfo, **_CONNECTION, **_KEEPALIVES) as connection:
                await self._configure(connection)
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Borrow a connection inside a transaction, which is committed if the block ends without an error."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def _configure(self, connection: Connection) -> None:
        instants.register(connection)
        await connection.execute(query("make_commits_durable"))
        if self._statement_timeout_us is not None:
            milliseconds = max(1, self._statement_timeout_us // _US_PER_MS)
            await execute(connection, query("limit_read_queries"), timeout=f"{milliseconds}ms")

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            yield
        except errors.QueryCanceled as error:
            # Without a limit only an administrator cancels statements.
            if self._statement_timeout_us is None:
                raise
            limit = durations.write(self._statement_timeout_us)
            raise TookTooLong(
                f"the query took longer than {limit}: choose a shorter window, fewer targets or fewer regions",
                hint="or raise the limit: isochrone-collector serve --question-timeout",
            ) from error


def _cancellations() -> int:
    """Return how many times the current task was cancelled."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


@contextmanager
def translated() -> Iterator[None]:
    """Translate psycopg's errors into the collector's."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise StartError(
            f"the database user lacks a privilege: {error}", hint="grant it the schema, or make it the owner"
        ) from error
    except _TRANSIENT as error:
        reason = " ".join(str(error).split())
        raise DatabaseUnavailable(
            f"the database is unavailable at the moment: {reason}", at_once=_may_do_at_once(error)
        ) from error


def _may_do_at_once(error: Exception) -> bool:
    """Return whether a retry may succeed at once: the transaction lost a conflict, or its connection was lost."""
    if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected):
        return True
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    cut = state is None or state.startswith("08") or state == errors.AdminShutdown.sqlstate
    return cut and not isinstance(error, PoolTimeout)


async def fetch(connection: Connection, statement: Statement, row: type[Row], **parameters: object) -> list[Row]:
    """Return all rows of a statement as values of the class `row`, whose fields have the names of the columns."""
    async with connection.cursor(binary=True, row_factory=class_row(row)) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()


async def execute(connection: Connection, statement: Statement, **parameters: object) -> bool:
    """Run a statement; return whether it returned or changed any row."""
    cursor = await connection.execute(statement, parameters or None)
    return cursor.rowcount > 0
