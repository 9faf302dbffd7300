"""A relay between one agent and the collectors, which balances the load and whose connections can be cut, in particular
right before a reply.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

HEADER_BYTES = 5
# TLS 1.3: the authentication tag and the content type.
TLS_OVERHEAD_BYTES = 17
_APPLICATION_DATA = 23


class TlsMeter:
    """Counts the payload of TLS records by chunk: a record when its header is complete, a handshake as 0."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def payload_bytes(self, data: bytes) -> int:
        payload = 0
        while data:
            passed = min(self._left, len(data))
            self._left, data = self._left - passed, data[passed:]
            missing = HEADER_BYTES - len(self._header)
            self._header, data = self._header + data[:missing], data[missing:]
            if len(self._header) == HEADER_BYTES:
                payload += self._begin_record()
        return payload

    def _begin_record(self) -> int:
        kind, self._left = self._header[0], int.from_bytes(self._header[3:], "big")
        self._header = b""
        return max(self._left - TLS_OVERHEAD_BYTES, 0) if kind == _APPLICATION_DATA else 0


# A push of samples, and the reply to it, are larger than the control frames of HTTP/2.
PUSH_BYTES = 200
REPLY_BYTES = 60
REPLY_SECONDS = 2.0
# After this time, the TLS handshake and its session tickets, which could be mistaken for a reply, are complete.
HANDSHAKE_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class _Connection:
    """One connection through the relay. While `blocking`, the collector's bytes are not forwarded to the agent."""

    agent: asyncio.StreamWriter
    collector: asyncio.StreamWriter
    upstream_bytes: Callable[[bytes], int]
    downstream_bytes: Callable[[bytes], int]
    settled_at_s: float
    blocking: bool = False
    blocked_bytes: int = 0
    replied: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self) -> None:
        self.agent.transport.abort()
        self.collector.transport.abort()


class Relay:
    """Listens on its own port and forwards each connection to the next of the `upstream_ports` that accepts one, all on
    127.0.0.1. With `tls`, the relay has no key and recognises pushes by the sizes of TLS records.
    """

    def __init__(self, *upstream_ports: int, tls: bool = False) -> None:
        self.port = 0
        self._upstream_ports = deque(upstream_ports)
        self._tls = tls
        self._connections: set[_Connection] = set()
        self._forwarding: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._pending_cut: asyncio.Future[bool] | None = None
        self._one_cut = asyncio.Lock()
        self._cutting: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._cut_all()
        await asyncio.gather(*self._forwarding, return_exceptions=True)

    async def partition(self, seconds: float) -> None:
        self.refuse()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._refusing = False

    def refuse(self) -> None:
        self._refusing = True
        self._cut_all()

    async def cut_next_reply(self, patience_s: float) -> bool:
        """Cut the connection of the next push instead of forwarding its reply; false if none came in `patience_s`."""
        async with self._one_cut:
            self._pending_cut = asyncio.get_running_loop().create_future()
            try:
                return await asyncio.wait_for(self._pending_cut, patience_s)
            except TimeoutError:
                return False
            finally:
                self._pending_cut = None

    def _cut_all(self) -> None:
        for connection in self._connections:
            connection.cut()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        forwarding = asyncio.create_task(self._forward(reader, writer))
        self._forwarding.add(forwarding)
        forwarding.add_done_callback(self._forwarding.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = None if self._refusing else await self._connect()
        if upstream is None:
            writer.transport.abort()
            return
        from_collector, to_collector = upstream
        connection = self._connection_for(writer, to_collector)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                self._forward_upstream(connection, reader), self._forward_downstream(connection, from_collector)
            )
        finally:
            self._connections.discard(connection)
            connection.cut()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in range(len(self._upstream_ports)):
            port = self._upstream_ports[0]
            self._upstream_ports.rotate(-1)
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None

    def _connection_for(self, agent: asyncio.StreamWriter, collector: asyncio.StreamWriter) -> _Connection:
        if not self._tls:
            return _Connection(agent, collector, len, len, 0.0)
        meters = TlsMeter().payload_bytes, TlsMeter().payload_bytes
        return _Connection(agent, collector, *meters, time.monotonic() + HANDSHAKE_SECONDS)

    async def _forward_upstream(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                is_large = connection.upstream_bytes(data) >= PUSH_BYTES
                is_push = is_large and time.monotonic() >= connection.settled_at_s
                if is_push and self._pending_cut is not None and self._cutting is None:
                    connection.blocking = True
                    self._cutting = asyncio.create_task(self._cut_when_replied(connection, self._pending_cut))
                connection.collector.write(data)
                await connection.collector.drain()
        connection.cut()

    async def _forward_downstream(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                payload = connection.downstream_bytes(data)
                if connection.blocking:
                    connection.blocked_bytes += payload
                    if connection.blocked_bytes >= REPLY_BYTES:
                        connection.replied.set()
                    continue
                connection.agent.write(data)
                await connection.agent.drain()
        connection.cut()

    async def _cut_when_replied(self, connection: _Connection, done: asyncio.Future[bool]) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(connection.replied.wait(), REPLY_SECONDS)
        connection.cut()
        self._cutting = None
        if not done.done():
            done.set_result(connection.replied.is_set())
