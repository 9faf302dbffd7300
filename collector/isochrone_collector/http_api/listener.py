"""HTTP listener in the collector's own event loop: uvicorn without its signals, logs and loop, and with limits.

1. A connection is counted when it is accepted, in total and per address, before TLS. asyncio's own server makes the
   buffers of TLS for every connection at once, even if no byte ever arrives; here a connection is only a socket until
   its first byte, which has to arrive in time, as has the TLS handshake.
2. A flood of connections does not keep the event loop: in each of its turns, a few are accepted, begun, or closed.
3. The idle time and the size of a request head are limited: uvicorn's own protocol waits forever for the first request,
   and flushes before closing even if the peer does not read.
4. A peer that does not read has `SEND_TIMEOUT_US` to empty the buffer, whatever is sent, and whoever waits for it.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from isochrone_collector.auth.limits import REFUSALS, network_of
from isochrone_collector.http_api.app import Sources, create_app
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.process_tuning import max_connections
from isochrone_common.address import UNIX, Address
from isochrone_common.files import private_files
from isochrone_wire.model import SECOND_US

_log = structlog.get_logger()

MAX_CONNECTIONS = 4_000
"""Maximum number of HTTP connections; a quarter of them of one address."""

MAX_HEAD_BYTES = 16 * 1024
SEND_BUFFER_BYTES = 64 * 1024
IDLE_US = 15 * SECOND_US
SEND_TIMEOUT_US = 20 * SECOND_US
FIRST_BYTE_S = 10.0
HANDSHAKE_S = 5.0
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
# A flood that overflows the queue delays other connections by seconds, until their packets are repeated. The kernel's
# own limit, usually as high, is the smaller of the two.
_BACKLOG = 4_096
_GRACE_S = 3
_STARTED_WITHIN_S = 5.0
# Per turn of the event loop. Accepting or closing takes 50 us; TLS of a new connection takes a millisecond.
_AT_ONCE = 16
_BEGUN_AT_ONCE = 2
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S = 1.0
# The first byte of a TLS connection, with which no request of HTTP begins.
_TLS_HANDSHAKE = b"\x16"

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s"
)

_PROBLEM = (
    b'{"type":"urn:isochrone:problem:resource-exhausted","title":"Service Unavailable","status":503,'
    b'"detail":"too many connections; retry later, or reuse one connection"}'
)

FULL = _FULL % (len(_PROBLEM), _PROBLEM)
"""The response on a connection above the limit."""


@asynccontextmanager
async def serving(
    sources: Sources,
    listen: Address | None,
    *,
    tls: ssl.SSLContext | None,
    allows_plain_text: bool,
    hosts: Collection[str] = (),
    public_page: bool = False,
    public_targets: NameFilter = EVERY_NAME,
) -> AsyncIterator[Address | None]:
    """Serve HTTP within the block if `listen` is set; yields its address. If the port is taken, a warning is logged and
    the collector runs without HTTP. With `allows_plain_text` TLS is accepted, too, and requests without it have to name
    this machine, the address or one of `hosts`. With `public_page` the status needs no credential; it has the
    `public_targets` only.
    """
    async with AsyncExitStack() as stack:
        address = None
        try:
            if listen is not None:
                allowed = {*_LOCAL_HOSTS, listen.host, *hosts} if allows_plain_text else None
                app = create_app(sources, allowed, public_page=public_page, public_targets=public_targets)
                address = await stack.enter_async_context(
                    listening(app, listen, tls=tls, allows_plain_text=allows_plain_text)
                )
                url = f"{'http' if allows_plain_text else 'https'}://{address}"
                _log.info("http.started", url=url, page=f"{url}/")
        except OSError as error:
            _log.warning("http.unavailable", listen=str(listen), reason=str(error))
        stack.callback(sources.publisher.close)
        stack.callback(sources.changes.close)
        yield address


@asynccontextmanager
async def serving_socket(sources: Sources, address: Address) -> AsyncIterator[None]:
    """Serve HTTP on a Unix socket for this user within the block. Raises `OSError` if it cannot listen."""
    async with listening(create_app(sources), address, tls=None):
        try:
            yield
        finally:
            sources.publisher.close()
            sources.changes.close()


@asynccontextmanager
async def listening(
    app: ASGIApp, listen: Address, *, tls: ssl.SSLContext | None, allows_plain_text: bool = False
) -> AsyncIterator[Address]:
    """Serve `app` within the block; yields the address with its real port. Raises `OSError`. End streams first."""
    listener = _bound(listen)
    address = listen if listen.is_socket else Address(listen.host, listener.getsockname()[1])
    server = _Server(_config(app), tls, allows_plain_text=allows_plain_text)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(_STARTED_WITHIN_S):
            while not server.started and not serving.done():
                await asyncio.sleep(0)
        yield address
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        if listen.is_socket:
            Path(listen.host.removeprefix(UNIX)).unlink(missing_ok=True)  # noqa: ASYNC240  # quick
        listener.close()


def _config(app: ASGIApp) -> Config:
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    return Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=IDLE_US // SECOND_US,
        timeout_graceful_shutdown=_GRACE_S,
    )


def _bound(listen: Address) -> socket.socket:
    """Return the socket at an address; one at a path replaces a socket that nothing listens on."""
    place: Any
    if listen.is_socket:
        path = Path(listen.host.removeprefix(UNIX))
        path.unlink(missing_ok=True)
        listener, place = socket.socket(socket.AF_UNIX), str(path)
    else:
        family, kind, protocol, _, place = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    try:
        if not listen.is_socket:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Inherited by every connection: the kernel's buffer for a reader that does not read.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        with private_files():
            listener.bind(place)
        # Listen at once: until then another program could take the port.
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


class Connection(H11Protocol):
    """uvicorn's connection, closed after `IDLE_US` without a request, and after `SEND_TIMEOUT_US` with a full buffer.
    The state of its requests has `abort`.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "abort": self._abort}, _loop)
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self._idle_since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start with a limited buffer."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=SEND_BUFFER_BYTES)
        self._check_idle()

    def on_response_complete(self) -> None:
        """Restart the idle time after a response."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers and report the end."""
        for timer in filter(None, (self._timer, self._deadline)):
            timer.cancel()
        super().connection_lost(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Stop sending, and wait for the peer."""
        super().pause_writing()
        self._deadline = self.loop.call_later(SEND_TIMEOUT_US / SECOND_US, self._drop_stalled)

    def resume_writing(self) -> None:
        """Continue: the peer has read."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().resume_writing()

    def _drop_stalled(self) -> None:
        _log.info("reader.dropped", reason="the reader is too slow", client=str(self.client))
        self._abort()

    def _check_idle(self) -> None:
        """Close the connection after `IDLE_US` without a complete request, whatever bytes arrived; else check again."""
        idle_s = IDLE_US / SECOND_US
        if self._is_idle and self.loop.time() - self._idle_since >= idle_s:
            self._abort()
        else:
            self._timer = self.loop.call_later(idle_s, self._check_idle)

    @property
    def _is_idle(self) -> bool:
        # uvicorn sets `None` before the first request, which its type annotation omits.
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # see above

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


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


class _Server(Server):
    """A uvicorn server with its own acceptor, which leaves signals to the collector."""

    def __init__(self, config: Config, tls: ssl.SSLContext | None, *, allows_plain_text: bool) -> None:
        super().__init__(config)
        self._tls = tls
        self._allows_plain_text = allows_plain_text

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        create, most = partial(Connection, self.config, self.server_state, {}), max_connections(MAX_CONNECTIONS)
        acceptors = [
            Acceptor(listener, create, tls=self._tls, allows_plain_text=self._allows_plain_text, most=most)
            for listener in sockets or ()
        ]
        self.servers = acceptors  # type: ignore[assignment]  # they have the methods that are called
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield
