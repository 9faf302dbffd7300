"""Acceptor of TCP connections: counted when they are accepted, before TLS, in total and per address.

asyncio's own server makes the buffers of TLS for every connection at once, even if no byte ever arrives. Here a
connection is only a socket until its first byte. That byte has to arrive in time, and so has the TLS handshake.
"""

import asyncio
import errno
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from isochrone_collector.auth.call_limits import network_of
from isochrone_collector.auth.refusal_log import REFUSALS
from isochrone_collector.http_api.connection import FULL, Connection

FIRST_BYTE_S = 10.0
HANDSHAKE_S = 5.0

# Per wake-up, so that a flood of connections does not keep the event loop.
_ACCEPTED_AT_ONCE = 32
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S = 1.0


class Acceptor:
    """Serves the connections of a listening socket: at most `most` at once, a quarter of them of one address. Others
    are closed, without TLS after a 503. It has the methods of an asyncio server that uvicorn calls.
    """

    def __init__(
        self,
        listener: socket.socket,
        create_connection: Callable[[], Connection],
        *,
        tls: ssl.SSLContext | None,
        most: int,
    ) -> None:
        self.most = most
        self._listener = listener
        self._create_connection = create_connection
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._open: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Accept no more connections, and end those that are not established yet."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until no connection is being established."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    raise
                REFUSALS.write(listener="http", reason=str(error))
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            self._admit(accepted, network_of(peer[0]))

    def _admit(self, accepted: socket.socket, address: str) -> None:
        if len(self._tasks) >= self.most or self._open[address] >= max(1, self.most // 4):
            REFUSALS.write(listener="http", reason="too many connections", client=address)
            with suppress(OSError):
                accepted.send(b"" if self._tls else FULL)
            accepted.close()
            return
        self._open[address] += 1
        task = self._loop.create_task(self._serve(accepted))
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._forget(task, address))

    def _forget(self, task: asyncio.Task[None], address: str) -> None:
        self._tasks.discard(task)
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    async def _serve(self, accepted: socket.socket) -> None:
        """Return when the connection is closed."""
        try:
            await self._first_byte(accepted)
        except (TimeoutError, asyncio.CancelledError):
            accepted.close()
            return
        connection = self._create_connection()
        # asyncio closes a connection without a handshake.
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S if self._tls else None,
            )
            await connection.closed

    async def _first_byte(self, accepted: socket.socket) -> None:
        """Wait until there is something to read. Raises `TimeoutError`."""
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            async with asyncio.timeout(FIRST_BYTE_S):
                await readable.wait()
        finally:
            self._loop.remove_reader(accepted)
