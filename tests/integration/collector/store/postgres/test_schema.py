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
from psycopg import sql

from fixtures.postgres import address_of, rows
from isochrone_collector.errors import DatabaseUnavailable, SchemaError
from isochrone_collector.store.postgres import schema
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
