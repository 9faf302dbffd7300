"""Connections to PostgreSQL, a pool and single sessions, and the statements that are sent over them.

Every statement is in `sql/*.sql`, by name. Placeholders are %(name)s. The module that uses a statement fills in
{braces} from its own tables, never from a request.
"""

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Self, TypeVar, cast

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import BaseRowFactory, class_row, dict_row, kwargs_row, scalar_row, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from isochrone_collector.errors import DatabaseUnreachable, DeadlineExceeded, SettingsError
from isochrone_collector.store.postgres import connection as connections
from isochrone_collector.store.postgres import values
from isochrone_collector.store.postgres.connection import (
    ANSWER_WITHIN_S,
    Condition,
    Connection,
    condition_of,
    is_passing,
    translated,
    unavailable,
)
from isochrone_wire import durations
from isochrone_wire.model import SECOND_US

Statement = sql.SQL | sql.Composed
Row = TypeVar("Row")

_MARK = "-- name: "


def parse(text: str) -> dict[str, str]:
    """Return name → statement, without comment lines. Raises `ValueError`."""
    found: dict[str, str] = {}
    for part in text.split(_MARK)[1:]:
        name, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        if name in found or not lines:
            raise ValueError(f"statement {name!r} is empty or defined twice")
        found[name] = "\n".join(lines)
    return found


def query(name: str) -> sql.SQL:
    """Return the statement of that name. Raises `KeyError`."""
    return _statements()[name]


def _statement(statement: Statement | str) -> Statement:
    return query(statement) if isinstance(statement, str) else statement


def texts() -> dict[str, str]:
    """Return name → statement of all files. Raises `ValueError` if a name is defined twice."""
    folder = files("isochrone_collector.store").joinpath("sql")
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".sql")), key=lambda path: path.name)
    return parse("\n".join(path.read_text(encoding="utf-8") for path in paths))


@cache
def _statements() -> dict[str, sql.SQL]:
    return {name: sql.SQL(statement) for name, statement in texts().items()}


__all__ = ["Connection", "Database", "Statement", "connect", "describe", "execute", "fetch", "translated"]


_WAIT_FOR_CONNECTION_S = 10.0
# A living server answers the empty statement at once.
_CHECK_WITHIN_S = 2.0
_PATIENT_S = 600.0
_MAX_CONNECTIONS = 8
_US_PER_MS = 1000
# The pool reconnects with increasing pauses. After this time it gives up and starts over with the next request for a
# connection, within a second. Otherwise it would notice a server that was away for minutes only minutes later.
_GIVE_UP_AFTER_S = 3.0
_RECYCLE_AFTER_S = 1800.0


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
        return psycopg.connect(conninfo, **connections.parameters(conninfo))
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise DatabaseUnreachable(
            f"no PostgreSQL at {address}: {reason}",
            hint="check --database-url and that the server runs, or leave it out to use the embedded PostgreSQL",
            is_passing=is_passing(error),
        ) from error


class Database:
    """A pool of connections to one PostgreSQL. Every transient error is `DatabaseUnavailable`.

    With a `statement_timeout_us` (microseconds) the server cancels longer statements: `DeadlineExceeded`. Without one,
    a statement that takes longer than 15 s is a sign that the server is gone; see `patient`.
    """

    def __init__(
        self, conninfo: str, *, statement_timeout_us: int | None = None, max_connections: int = _MAX_CONNECTIONS
    ) -> None:
        self._conninfo = conninfo
        self._statement_timeout_us = statement_timeout_us
        self._answer_within_s = ANSWER_WITHIN_S + (statement_timeout_us or 0) / SECOND_US
        self._failures: deque[psycopg.Error] = deque(maxlen=1)
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            conninfo,
            connection_class=Connection,
            kwargs={**connections.parameters(conninfo), "on_failure": self._failures.append},
            min_size=1,
            max_size=max_connections,
            max_lifetime=_RECYCLE_AFTER_S,
            timeout=_WAIT_FOR_CONNECTION_S,
            reconnect_timeout=_GIVE_UP_AFTER_S,
            check=_check,
            configure=self._configure,
            open=False,
        )

    async def open(self) -> None:
        """Fill the pool. Raises `DatabaseUnreachable`."""
        try:
            await self._pool.open(wait=True, timeout=_WAIT_FOR_CONNECTION_S)
        except PoolTimeout as error:
            await self._pool.close()
            cause: psycopg.Error = self._failures[-1] if self._failures else error
            message = f"no connection within {_WAIT_FOR_CONNECTION_S:.0f} s: {cause}"
            # Without a failure the server accepts connections, and answers nothing.
            raise DatabaseUnreachable(message, is_passing=not self._failures or is_passing(cause)) from error

    def patient(self) -> Self:
        """Return the same pool for maintenance, whose statements may take up to ten minutes."""
        view = copy.copy(self)
        view._answer_within_s = _PATIENT_S  # noqa: SLF001  # a copy of this object
        return view

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
        with translated(), self._in_time(), self._with_cause():
            async with self._pool.connection() as connection:
                if _cancellations() > before:
                    # The pool loses a cancellation that meets the connection it waited for.
                    raise asyncio.CancelledError
                connection.answer_within_s = self._answer_within_s
                try:
                    yield connection
                except errors.ReadOnlySqlTransaction:
                    # This server was demoted; the next connection may find the new primary.
                    await connection.close()
                    raise

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """Open a connection outside the pool; its session, with any advisory lock, ends with the block."""
        with translated():
            async with await Connection.connect(self._conninfo, **connections.parameters(self._conninfo)) as connection:
                await self._configure(connection)
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Borrow a connection inside a transaction, which is committed if the block ends without an error."""
        async with self.connection() as connection:
            # The beginning stands for the check that a fresh connection does not get.
            connection.answer_within_s = _CHECK_WITHIN_S
            async with connection.transaction():
                connection.answer_within_s = self._answer_within_s
                yield connection

    async def _configure(self, connection: Connection) -> None:
        values.register(connection)
        await connection.execute(query("make_commits_durable"))
        await connection.execute(query("end_lost_clients"))
        if self._statement_timeout_us is None:
            await connection.execute(query("end_idle_transactions"))
            await connection.execute(query("write_over_one_connection"))
            await connection.execute(query("read_on_one_core"))
        else:
            await connection.execute(query("read_over_new_connections"))
            milliseconds = max(1, self._statement_timeout_us // _US_PER_MS)
            await execute(connection, query("limit_read_queries"), timeout=f"{milliseconds}ms")

    @contextmanager
    def _with_cause(self) -> Iterator[None]:
        """Name the reason for which the pool has no connection: that of the last attempt to connect."""
        try:
            yield
        except PoolTimeout as error:
            cause: psycopg.Error = self._failures[-1] if self._failures else error
            raise unavailable(error, condition_of(cause) or Condition.OTHER, reason=cause) from error

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            yield
        except errors.QueryCanceled as error:
            # Without a limit only an administrator cancels statements.
            if self._statement_timeout_us is None:
                raise
            limit = durations.write(self._statement_timeout_us)
            raise DeadlineExceeded(
                f"the query took longer than {limit}: choose a shorter window, fewer targets or fewer regions",
                hint="or raise the limit: isochrone-collector serve --question-timeout",
            ) from error


async def _check(connection: Connection) -> None:
    if connection.is_fresh:
        return
    connection.answer_within_s = _CHECK_WITHIN_S
    await AsyncConnectionPool.check_connection(connection)


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


async def fetch(connection: Connection, statement: Statement | str, row: type[Row], **parameters: object) -> list[Row]:
    """Return all rows of a statement, or of the one of a name, as values of the class `row`, whose fields have the
    names of the columns, and are converted as in `values.conversions`. The parameters are those of
    `values.parameters_of`; instants are in microseconds since the Unix epoch.
    """
    return await _fetched(connection, statement, _factory(row), parameters)


async def _fetched(
    connection: Connection, statement: Statement | str, factory: BaseRowFactory[Row], parameters: Mapping[str, object]
) -> list[Row]:
    async with connection.cursor(binary=True, row_factory=factory) as cursor:
        await cursor.execute(_statement(statement), values.parameters_of(parameters))
        return await cursor.fetchall()


def _factory(row: type[Row]) -> BaseRowFactory[Row]:
    conversions = values.conversions(cast("Any", row))
    if not conversions:
        return class_row(row)

    def made(**columns: Any) -> Row:  # noqa: ANN401  # values of any types
        for name, convert in conversions.items():
            if columns.get(name) is not None:
                columns[name] = convert(columns[name])
        return row(**columns)

    return kwargs_row(made)


async def fetch_one(
    connection: Connection, statement: Statement | str, row: type[Row], **parameters: object
) -> Row | None:
    """Return the first row of a statement, as `fetch` does; `None` without any."""
    found = await fetch(connection, statement, row, **parameters)
    return found[0] if found else None


async def fetch_values(connection: Connection, statement: Statement | str, **parameters: object) -> list[Any]:
    """Return the first column of all rows of a statement, with parameters as of `fetch`."""
    return await _fetched(connection, statement, scalar_row, parameters)


async def fetch_tuples(
    connection: Connection, statement: Statement | str, **parameters: object
) -> list[tuple[Any, ...]]:
    """Return all rows of a statement as tuples, with parameters as of `fetch`."""
    return await _fetched(connection, statement, tuple_row, parameters)


async def fetch_columns(
    connection: Connection, statement: Statement | str, row: type[Row], **parameters: object
) -> list[Row]:
    """Return all rows of a statement, as `fetch` does, with numpy arrays: see `values.read_columns`."""
    async with connection.cursor(binary=True, row_factory=class_row(row)) as cursor:
        values.read_columns(cursor)
        await cursor.execute(_statement(statement), values.parameters_of(parameters))
        return await cursor.fetchall()


async def fetch_records(
    connection: Connection, statement: Statement | str, **parameters: object
) -> list[dict[str, Any]]:
    """Return all rows of a statement as dictionaries by column."""
    return await _fetched(connection, statement, dict_row, parameters)


async def execute(connection: Connection, statement: Statement | str, **parameters: object) -> bool:
    """Run a statement, with parameters as of `fetch`; return whether it returned or changed any row."""
    cursor = await connection.execute(_statement(statement), values.parameters_of(parameters) or None)
    return cursor.rowcount > 0
