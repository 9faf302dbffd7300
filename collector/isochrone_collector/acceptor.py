"""Connections of a listening socket, counted and timed before anything is read; for HTTP and for gRPC.

1. A connection is counted when it is accepted, in total and per address, before TLS. asyncio's own server makes the
   buffers of TLS for every connection at once, even if no byte ever arrives; here a connection is only a socket until
   its first byte, which has to arrive in time, as has the TLS handshake.
2. A flood of connections does not keep the event loop: they are accepted, begun and closed, and their bytes read, in a
   share of its time (`isochrone_collector.loop_share`), until they have a credential.
"""

import asyncio
import errno
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from isochrone_collector.auth.limits import REFUSALS, network_of
from isochrone_collector.loop_share import LoopShare, Tls
from isochrone_common.address import UNIX, Address
from isochrone_common.files import private_files

FIRST_BYTE_S = 10.0
# A flood that overflows the queue delays other connections by seconds, until their packets are repeated. The kernel's
# own limit, usually as high, is the smaller of the two.
_BACKLOG = 4_096
# Accepting or closing one takes 50 us, and all but the handshake of a new one that has sent something:
_AT_ONCE = 16
_BEGIN_S = 0.0003
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Of an address in a table of names that this machine does not have.
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_PAUSE_S = 1.0
# The first byte of a TLS connection, with which no request of HTTP begins.
_TLS_HANDSHAKE = b"\x16"


def bound(listen: Address, *, send_buffer_bytes: int = 0) -> list[socket.socket]:
    """Return the sockets at an address: one for each that its name has on this machine, all with the same port. One at
    a path replaces a socket that nothing listens on. Raises `OSError`.
    """
    if listen.is_socket:
        path = Path(listen.host.removeprefix(UNIX))
        path.unlink(missing_ok=True)
        return [_listening(socket.AF_UNIX, str(path), send_buffer_bytes)]
    found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    missing, port, listeners = OSError(f"{listen.host} has no address"), listen.port, []
    with ExitStack() as stack:
        for family, place in dict.fromkeys((family, place) for family, _, _, _, place in found):
            try:
                listener = _listening(family, (place[0], port, *place[2:]), send_buffer_bytes)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
                continue
            listeners.append(stack.enter_context(listener))
            port = listener.getsockname()[1]
        if not listeners:
            raise missing
        stack.pop_all()
    return listeners


def _listening(family: int, place: str | tuple[Any, ...], send_buffer_bytes: int) -> socket.socket:
    with ExitStack() as stack:
        # asyncio turns Nagle's algorithm off for sockets of this protocol only; accepted ones inherit it.
        protocol = 0 if family == socket.AF_UNIX else socket.IPPROTO_TCP
        listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, protocol))
        if family == socket.AF_INET6:
            # "::" stands for both families.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if send_buffer_bytes:
                # Inherited by every connection: the kernel's buffer for a reader that does not read.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        with private_files():
            listener.bind(place)
        # Listen at once: until then another program could take the port.
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        stack.pop_all()
    return listener


@dataclass(frozen=True, slots=True, kw_only=True)
class _Silent:
    """An accepted connection before its first byte, its place in the counts, and when it is closed (loop's time)."""

    socket: socket.socket
    place: ExitStack
    until: float


@dataclass(eq=False)
class Acceptor:
    """Serves the connections of listening sockets: at most `most` at once, a quarter of them of one address. Others are
    closed, without TLS after the answer `full`. What they cost stays within `share`. With `allows_plain_text` the first
    byte of a connection decides whether it has TLS. It has the methods of an asyncio server that uvicorn calls.

    `create_connection` returns the protocol of a connection, with a future `closed`. Its argument is a function that
    admits the connection: it no longer counts among those of its address, nor waits for its share of the event loop.
    """

    listeners: Sequence[socket.socket]
    create_connection: Callable[[Callable[[], None]], Any]
    _: KW_ONLY
    name: str
    tls: Callable[[], ssl.SSLContext] | None
    most: int
    share: LoopShare
    allows_plain_text: bool = False
    full: bytes = b""

    def __post_init__(self) -> None:
        self.allows_plain_text = self.allows_plain_text or self.tls is None
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
        listeners, self.listeners = self.listeners, ()
        for listener in listeners:
            self._loop.remove_reader(listener)
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
        for listener in self.listeners:
            self._listen(listener)

    def _listen(self, listener: socket.socket) -> None:
        self._loop.add_reader(listener, self._await_turn, listener)

    def _await_turn(self, listener: socket.socket) -> None:
        self._loop.remove_reader(listener)
        self.share.add(partial(self._accept, listener), is_new=True)

    def _accept(self, listener: socket.socket) -> None:
        if listener not in self.listeners:
            # Closed meanwhile.
            return
        for _ in range(_AT_ONCE):
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    raise
                REFUSALS.write(listener=self.name, reason=str(error))
                self._pause = self._pause or self._loop.call_later(_PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            self._admit(accepted, network_of(peer[0]) if peer else UNIX)
        self._listen(listener)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        if self._count >= self.most or self._open[address] >= max(1, self.most // 4):
            REFUSALS.write(listener=self.name, reason="too many connections", client=address)
            if self.allows_plain_text:
                with suppress(OSError):
                    accepted.send(self.full)
            accepted.close()
            return
        self._count += 1
        self._open[address] += 1
        place = ExitStack()
        place.callback(self._release, address)
        silent = _Silent(socket=accepted, place=place, until=self._loop.time() + FIRST_BYTE_S)
        self._silent[accepted.fileno()] = silent
        self._loop.add_reader(accepted, self._hear, silent)
        if self._timer is None:
            self._await_overdue(silent)

    def _await_overdue(self, oldest: _Silent) -> None:
        self._timer = self._loop.call_at(oldest.until, self._close_in_turn)

    def _close_overdue(self) -> None:
        """Close connections that stayed silent for too long, and come back for the others."""
        for _ in range(_AT_ONCE):
            oldest = next(iter(self._silent.values()), None)
            if oldest is None:
                self._timer = None
                return
            if oldest.until > self._loop.time():
                self._await_overdue(oldest)
                return
            self._close_silent(oldest)
        self._close_in_turn()

    def _close_in_turn(self) -> None:
        self.share.add(self._close_overdue, is_new=True)

    def _close_silent(self, silent: _Silent) -> None:
        self._forget_silent(silent)
        self._drop(silent)

    def _forget_silent(self, silent: _Silent) -> None:
        self._loop.remove_reader(silent.socket)
        del self._silent[silent.socket.fileno()]

    def _drop(self, silent: _Silent) -> None:
        silent.socket.close()
        self._end(silent.place)

    def _end(self, place: ExitStack) -> None:
        self._count -= 1
        place.close()

    def _release(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _hear(self, silent: _Silent) -> None:
        self._forget_silent(silent)
        self._ready.append(silent)
        if len(self._ready) == 1:
            self.share.add(self._begin, is_new=True)

    def _begin(self) -> None:
        """Begin a connection, in the order of their first bytes."""
        if not self._ready:
            # Closed meanwhile.
            return
        ready = self._ready.popleft()
        self.share.spend(_BEGIN_S)
        task = self._loop.create_task(self._serve(ready))
        self._tasks.add(task)
        task.add_done_callback(partial(self._served, ready.place))
        if self._ready:
            self.share.add(self._begin, is_new=True)

    def _served(self, place: ExitStack, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._end(place)

    async def _serve(self, ready: _Silent) -> None:
        """Return when the connection is closed."""
        accepted, connection = ready.socket, self.create_connection(ready.place.close)
        # asyncio closes a connection without a handshake.
        with suppress(OSError):
            if self.tls is None or (self.allows_plain_text and accepted.recv(1, socket.MSG_PEEK) != _TLS_HANDSHAKE):
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
            else:
                await self._establish(Tls(connection, self.tls(), self.share), ready)
            await connection.closed

    async def _establish(self, tls: Tls, ready: _Silent) -> None:
        """Return after the handshake. Raises `OSError`."""
        ready.place.callback(tls.admit)
        transport, _ = await self._loop.connect_accepted_socket(lambda: tls, ready.socket)
        try:
            await tls.established
        except BaseException:
            transport.abort()
            raise
