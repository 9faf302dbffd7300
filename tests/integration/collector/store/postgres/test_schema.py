"""Servers that a collector refuses at its start, each a real one: a PgBouncer without sessions, an old encoding."""

import asyncio
import os
import pwd
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.config import Config
from psycopg import sql

from fixtures.postgres import address_of, rows
from isochrone_collector.errors import DatabaseUnavailable, DatabaseUnreachable, SchemaError
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.pool import Database
from testdata.database_servers import DatabaseRelay
from testdata.ports import free_port
from testdata.waiting import BUSY

_CONFIGURATION = """
[databases]
pooled = host=127.0.0.1 port={relay} dbname={dbname} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
"""


@asynccontextmanager
async def pgbouncer(url: str, mode: str, *, size: int = 5) -> AsyncIterator[str]:
    """Run PgBouncer before a database, with as many connections to it, and yield its address."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("needs pgbouncer (Debian: apt-get install pgbouncer)")
    # It refuses to run as root, and another user cannot enter the folder of the tests' server.
    user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
    relay, port = DatabaseRelay(url), free_port()
    await relay.start()
    with tempfile.TemporaryDirectory() as folder:
        parts = {"relay": relay.port, "dbname": relay.parts["dbname"], "user": relay.parts["user"]}
        file = _written(folder, _CONFIGURATION.format(**parts, port=port, mode=mode, size=size))
        process = await asyncio.create_subprocess_exec(program, "-q", file, user=user)
        try:
            async with asyncio.timeout(BUSY * 10):
                while not await asyncio.to_thread(_listens, port):
                    await asyncio.sleep(0.05)
            yield f"postgresql://{relay.parts['user']}@127.0.0.1:{port}/pooled"
        finally:
            process.kill()
            await process.wait()
            await relay.stop()


def _written(folder: str, text: str) -> str:
    """Write a file that every user can read."""
    file = Path(folder, "pgbouncer.ini")
    file.write_text(text)
    Path(folder).chmod(0o755)
    return str(file)


def _listens(port: int) -> bool:
    address = f"host=127.0.0.1 port={port}"
    return psycopg.pq.PGconn.ping(address.encode()) == psycopg.pq.Ping.OK


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_without_sessions_is_refused(empty_database_url: str, mode: str) -> None:
    """Its connections share a server process, so a statement could have the result of another one."""
    async with pgbouncer(empty_database_url, mode) as url:
        with pytest.raises(SchemaError, match="pools transactions or statements") as refused:
            await asyncio.to_thread(schema.migrate, url)
    assert "session address" in refused.value.hint


async def test_a_pooler_of_sessions_is_accepted(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler of sessions is accepted; one where the second connection would wait for ever is refused."""
    async with pgbouncer(empty_database_url, "session") as url:
        assert await asyncio.to_thread(schema.revisions, url) == (None, schema.known_revisions()[-1])
    monkeypatch.setattr(schema, "_ANSWER_SECONDS", 2)
    async with pgbouncer(empty_database_url, "session", size=1) as url:
        with pytest.raises(SchemaError, match="no second session within 2 s") as refused:
            await asyncio.to_thread(schema.migrate, url)
    assert "pool_size" in refused.value.hint


def test_ended_sessions_are_no_pooler(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements that fail have no server process in common: a failover during the check is transient."""
    backend = schema._backend  # the only place between the two connections

    def end_session(connection: psycopg.Connection[Any]) -> tuple[bytes | None, bytes | None]:
        rows(empty_database_url, "SELECT pg_terminate_backend(%s::int, 5000)", [connection.info.backend_pid])
        return backend(connection)

    monkeypatch.setattr(schema, "_backend", end_session)
    monkeypatch.setattr(schema, "_CHECKS", 1)
    with pytest.raises(DatabaseUnavailable):
        schema.revisions(empty_database_url)


@asynccontextmanager
async def black_hole(url: str, of: object, name: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Yield the address of a server that answers nothing any more from the first call of this function on."""
    relay, function = DatabaseRelay(url), getattr(of, name)
    await relay.start()

    def swallowing(*arguments: Any) -> Any:
        relay.swallowing = True
        return function(*arguments)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(of, name, swallowing)
            yield relay.url
    finally:
        await relay.stop()


async def test_a_server_that_freezes_during_the_check_is_waited_for(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing about it is wrong but its silence: the collector tries again, and blames no pooler."""
    monkeypatch.setattr(schema, "_ANSWER_SECONDS", 1)
    async with black_hole(empty_database_url, schema, "_backend", monkeypatch) as url:
        with pytest.raises(DatabaseUnavailable, match="no answer within 1 s"):
            await asyncio.to_thread(schema.revisions, url)


async def test_a_server_that_freezes_while_the_pool_opens_is_waited_for(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections, and answers no statement: no connection fails, and none is ready."""
    monkeypatch.setattr("isochrone_collector.store.postgres.pool._WAIT_FOR_CONNECTION_S", 1.0)
    async with black_hole(empty_database_url, Database, "_configure", monkeypatch) as url:
        with pytest.raises(DatabaseUnreachable) as lost:
            await Database(url).open()
    assert lost.value.is_passing


def test_a_session_that_ends_during_a_migration_is_transient(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover in the middle of it: the collector tries again, instead of ending with an error of the schema."""

    def end_session(config: Config, _revision: str) -> None:
        config.attributes["connection"].exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr("alembic.command.upgrade", end_session)
    with pytest.raises(DatabaseUnavailable, match="the database is unreachable"):
        schema.migrate(empty_database_url)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_another_encoding_is_refused(postgres_server: str, encoding: str) -> None:
    """A database that cannot hold every text gets one sentence with the remedy."""
    name = f"isochrone_test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as administrator:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE_PROVIDER libc LOCALE 'C'")
        administrator.execute(create.format(sql.Identifier(name), encoding))
        try:
            with pytest.raises(SchemaError, match=f"has the encoding {encoding}") as refused:
                schema.migrate(address_of(postgres_server, name))
            assert "ENCODING 'UTF8'" in refused.value.hint
        finally:
            administrator.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
