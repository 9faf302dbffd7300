"""Acceptor of TCP connections: counted when they are accepted, before TLS, in total and per address.

asyncio's own server makes the buffers of TLS for every connection at once, even if no byte ever arrives. Here a
connection is only a socket until its first byte. That byte has to arrive in time, and so has the TLS handshake.

A flood of connections does not keep the event loop: in each of its turns, a few are accepted, begun, or closed.
"""

import asyncio
import errno
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from isochrone_collector.auth.limits import REFUSALS, network_of
from isochrone_collector.http_api.connection import FULL, Connection
from isochrone_common.address import UNIX

FIRST_BYTE_S = 10.0
HANDSHAKE_S = 5.0

# Per turn of the event loop. Accepting or closing takes 50 us; TLS of a new connection takes a millisecond.
_AT_ONCE = 16
_BEGUN_AT_ONCE = 2
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S = 1.0
# The first byte of a TLS connection, with which no request of HTTP begins.
_TLS_HANDSHAKE = b"\x16"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Silent:
    """An accepted connection before its first byte, and the loop's time at which it is closed."""

    socket: socket.socket
    address: str
    until: float


class Acceptor:
    """Serves the connections of a listening socket: at most `most` at once, a quarter of them of one address. Others
    are closed, without TLS after a 503. With `allows_plain_text` the first byte of a connection decides whether
    it has TLS. It has the methods of an asyncio server that uvicorn calls.
    """

    def __init__(
        self,
        listener: socket.socket,
        create_connection: Callable[[], Connection],
        *,
        tls: ssl.SSLContext | None,
        allows_plain_text: bool,
        most: int,
    ) -> None:
        self.most = most
        self._listener = listener
        self._create_connection = create_connection
        self._tls = tls
        self._allows_plain_text = allows_plain_text or tls is None
        self._loop = asyncio.get_running_loop()
        # Of each address, and in total.
        self._open: Counter[str] = Counter()
        self._count = 0
        # By file descriptor, in the order in which they were accepted.
        self._silent: dict[int, _Silent] = {}
        self._ready: deque[_Silent] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Accept no more connections, and end those that are not established yet."""
        if self._pause is not None:
            self._pause.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._listener)
        for silent in [*self._silent.values()]:
            self._close_silent(silent)
        while self._ready:
            self._drop(self._ready.popleft())
        for task in self._tasks:
            # Not at once: a task that is cancelled before its first step leaves its socket open.
            self._loop.call_soon(task.cancel)

    async def wait_closed(self) -> None:
        """Wait until no connection is being established."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
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
            self._admit(accepted, network_of(peer[0]) if peer else UNIX)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        if self._count >= self.most or self._open[address] >= max(1, self.most // 4):
            REFUSALS.write(listener="http", reason="too many connections", client=address)
            if self._allows_plain_text:
                with suppress(OSError):
                    accepted.send(FULL)
            accepted.close()
            return
        self._count += 1
        self._open[address] += 1
        silent = _Silent(socket=accepted, address=address, until=self._loop.time() + FIRST_BYTE_S)
        self._silent[accepted.fileno()] = silent
        self._loop.add_reader(accepted, self._hear, silent)
        if self._timer is None:
            self._timer = self._loop.call_at(silent.until, self._close_overdue)

    def _close_overdue(self) -> None:
        """Close connections that stayed silent for too long, and come back for the others."""
        self._timer = None
        for _ in range(_AT_ONCE):
            oldest = next(iter(self._silent.values()), None)
            if oldest is None:
                return
            if oldest.until > self._loop.time():
                self._timer = self._loop.call_at(oldest.until, self._close_overdue)
                return
            self._close_silent(oldest)
        self._timer = self._loop.call_soon(self._close_overdue)

    def _close_silent(self, silent: _Silent) -> None:
        self._forget_silent(silent)
        self._drop(silent)

    def _forget_silent(self, silent: _Silent) -> None:
        self._loop.remove_reader(silent.socket)
        del self._silent[silent.socket.fileno()]

    def _drop(self, silent: _Silent) -> None:
        silent.socket.close()
        self._release(silent.address)

    def _release(self, address: str) -> None:
        self._count -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _hear(self, silent: _Silent) -> None:
        """Queue a connection that has something to read."""
        self._forget_silent(silent)
        self._ready.append(silent)
        if len(self._ready) == 1:
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin connections in the order of their first bytes."""
        for _ in range(min(_BEGUN_AT_ONCE, len(self._ready))):
            ready = self._ready.popleft()
            task = self._loop.create_task(self._serve(ready.socket))
            self._tasks.add(task)
            task.add_done_callback(partial(self._end, ready.address))
        if self._ready:
            self._loop.call_soon(self._begin)

    def _end(self, address: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._release(address)

    async def _serve(self, accepted: socket.socket) -> None:
        """Return when the connection is closed."""
        connection = self._create_connection()
        # asyncio closes a connection without a handshake.
        with suppress(OSError):
            is_plain = self._allows_plain_text and accepted.recv(1, socket.MSG_PEEK) != _TLS_HANDSHAKE
            tls = None if is_plain else self._tls
            await self._loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S if tls else None
            )
            await connection.closed
