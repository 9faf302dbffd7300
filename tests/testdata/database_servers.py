"""Servers of PostgreSQL: streaming replication with promotion, and a TCP relay that can swallow everything."""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from isochrone_collector.store.postgres.embedded import EmbeddedPostgres, binaries
from testdata.waiting import eventually

READY_SECONDS = 60.0
# A standby returns to a primary that was restarted within a second, and finds the log that it needs there.
_SETTINGS = ("wal_retrieve_retry_interval = '500ms'", "wal_keep_size = '128MB'")


@contextmanager
def make_standby(primary: EmbeddedPostgres, home: Path) -> Iterator[EmbeddedPostgres]:
    """Run a standby in `home` from a copy of the primary, whose commits wait from now on until the standby has them."""
    standby = start_standby(primary, home)
    try:
        yield standby
    finally:
        standby.stop()


def start_standby(primary: EmbeddedPostgres, home: Path) -> EmbeddedPostgres:
    """Start a standby in the empty or missing folder `home`; see `make_standby`."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for setting in _SETTINGS:
        ask(primary, f"ALTER SYSTEM SET {setting}")
    ask(primary, "SELECT pg_reload_conf()")
    back_up(primary, home / "postgres", "-R")
    standby = EmbeddedPostgres(home)
    standby.start()
    ask(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    ask(primary, "SELECT pg_reload_conf()")
    eventually(READY_SECONDS, lambda: ask(primary, _IN_SYNC) == 1, "the standby in sync")
    return standby


def back_up(server: EmbeddedPostgres, folder: Path, *options: str) -> None:
    """Copy a running server to an empty or missing folder, which another server can run on."""
    where = conninfo_to_dict(server.conninfo)
    command = [str(binaries() / "pg_basebackup"), "-h", str(where["host"]), "-p", str(where["port"])]
    command += ["-U", str(where["user"]), "-D", str(folder), "-X", "stream", "-c", "fast", "--no-sync", *options]
    subprocess.run(command, check=True, capture_output=True)


def promote(standby: EmbeddedPostgres) -> None:
    assert ask(standby, "SELECT pg_promote(true, 30)::int") == 1


def ask(server: EmbeddedPostgres, statement: str) -> int | None:
    """Run a statement as the superuser; return the first number of its result."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def url_of_all(*servers: EmbeddedPostgres) -> str:
    parts = conninfo_to_dict(servers[0].conninfo)
    hosts = [str(conninfo_to_dict(server.conninfo)["host"]) for server in servers]
    return f"postgresql:///?{urlencode({**{k: v for k, v in parts.items() if v}, 'host': ','.join(hosts)})}"


_IN_SYNC = "SELECT count(*)::int FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"


class DatabaseRelay:
    """Listens on 127.0.0.1 and forwards to the server of `conninfo`. While `swallowing`, it accepts connections and
    bytes and answers nothing: the host is a black hole.
    """

    def __init__(self, conninfo: str) -> None:
        self.forward_to(conninfo)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.swallowing = False

    def forward_to(self, conninfo: str) -> None:
        """Forward new connections to this server, whose connection string has `parts`."""
        self.parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value}

    @property
    def url(self) -> str:
        return url_through(self)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.swallowing = False
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            await self._forward(reader, writer)
        self._writers.discard(writer)
        writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.swallowing:
            await self._heard_again()
            return
        host, port = self.parts["host"], self.parts["port"]
        is_folder, path = host.startswith("/"), f"{host}/.s.PGSQL.{port}"
        opened = asyncio.open_unix_connection(path) if is_folder else asyncio.open_connection(host, port)
        from_server, to_server = await opened
        self._writers.add(to_server)
        try:
            await asyncio.gather(self._copy(reader, to_server), self._copy(from_server, writer))
        finally:
            self._writers.discard(to_server)
            to_server.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            lost = False
            while data := await reader.read(1 << 16):
                # What lost bytes would be useless after it, as on a connection whose peer is gone.
                lost = lost or self.swallowing
                if not lost:
                    writer.write(data)
                    await writer.drain()
            await self._heard_again()
        writer.transport.abort()

    async def _heard_again(self) -> None:
        while self.swallowing:
            await asyncio.sleep(0.1)


def url_through(*relays: DatabaseRelay) -> str:
    """Return one URL that names the servers behind all of the relays."""
    hosts, ports = ",".join("127.0.0.1" for _ in relays), ",".join(str(relay.port) for relay in relays)
    return f"postgresql:///?{urlencode({**relays[0].parts, 'host': hosts, 'port': ports})}"
