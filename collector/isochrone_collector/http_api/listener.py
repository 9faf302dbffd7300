"""HTTP listener in the collector's own event loop: uvicorn without its signals, logs and loop, and with limits.

Its connections are accepted by `isochrone_collector.acceptor`. Idle time and the size of a request head are limited:
uvicorn's own protocol waits forever for the first request, and flushes before closing even if the peer does not read.
A peer that does not read has `SEND_TIMEOUT_US` to empty the buffer, whatever is sent, and whoever waits for it.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import structlog
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from isochrone_collector.acceptor import Acceptor, bound
from isochrone_collector.http_api.app import create_app
from isochrone_collector.http_api.sources import Sources
from isochrone_collector.loop_share import LoopShare
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.process_tuning import max_connections
from isochrone_common.address import UNIX, Address
from isochrone_wire.model import SECOND_US

_log = structlog.get_logger()

MAX_CONNECTIONS = 4_000
"""Maximum number of HTTP connections; a quarter of them of one address."""

MAX_HEAD_BYTES = 16 * 1024
SEND_BUFFER_BYTES = 64 * 1024
IDLE_US = 15 * SECOND_US
SEND_TIMEOUT_US = 20 * SECOND_US
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_GRACE_S = 3

_PROBLEM = (
    b'{"type":"urn:isochrone:problem:resource-exhausted","title":"Service Unavailable","status":503,'
    b'"detail":"too many connections; retry later, or reuse one connection"}'
)
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_PROBLEM), _PROBLEM)
)
"""The response on a connection above the limit."""


@asynccontextmanager
async def serving(
    sources: Sources,
    listen: Address | None,
    *,
    tls: Callable[[], ssl.SSLContext] | None,
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
    app: ASGIApp, listen: Address, *, tls: Callable[[], ssl.SSLContext] | None, allows_plain_text: bool = False
) -> AsyncIterator[Address]:
    """Serve `app` within the block; yields the address with its real port. Raises `OSError`. End streams first."""
    listeners = bound(listen, send_buffer_bytes=SEND_BUFFER_BYTES)
    address = listen if listen.is_socket else Address(listen.host, listeners[0].getsockname()[1])
    server = _Server(_config(app), tls, allows_plain_text=allows_plain_text)
    serving = asyncio.create_task(server.serve(sockets=listeners))
    try:
        async with asyncio.timeout(5.0):
            while not server.started and not serving.done():
                await asyncio.sleep(0)
        yield address
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        if listen.is_socket:
            Path(listen.host.removeprefix(UNIX)).unlink(missing_ok=True)  # noqa: ASYNC240  # quick
        for listener in listeners:
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
        # uvicorn sets `None` before the first request, which its type annotation omits.
        is_idle = self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # see above
        if is_idle and self.loop.time() - self._idle_since >= idle_s:
            self._abort()
        else:
            self._timer = self.loop.call_later(idle_s, self._check_idle)

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Server(Server):
    """A uvicorn server with its own acceptor, which leaves signals to the collector."""

    def __init__(self, config: Config, tls: Callable[[], ssl.SSLContext] | None, *, allows_plain_text: bool) -> None:
        super().__init__(config)
        self._tls = tls
        self._allows_plain_text = allows_plain_text

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        acceptor = Acceptor(
            sockets or (),
            lambda _: Connection(self.config, self.server_state, {}),
            name="http",
            tls=self._tls,
            allows_plain_text=self._allows_plain_text,
            most=max_connections(MAX_CONNECTIONS),
            share=LoopShare(),
            full=FULL,
        )
        self.servers = [acceptor]  # type: ignore[list-item]  # it has the methods that are called
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield
