"""A TCP relay in front of a PostgreSQL on a Unix socket, which can swallow everything without closing anything."""

import asyncio
import contextlib
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict


class DatabaseRelay:
    """Listens on 127.0.0.1 and forwards to the server of `conninfo`. While `swallowing`, bytes of both directions are
    read and discarded, and new connections are accepted and never answered: the host is a black hole.
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
        self._path = f"{self.parts['host']}/.s.PGSQL.{self.parts['port']}"

    @property
    def url(self) -> str:
        """The URL of the database through the relay."""
        return url_through(self)

    @property
    def port(self) -> int:
        """The port of the relay."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Start listening."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        assert self._server is not None
        self._server.close()
        self.swallowing = False
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Close all connections."""
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
        from_server, to_server = await asyncio.open_unix_connection(self._path)
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
