"""HTTP listener in the collector's own event loop: uvicorn without its signals, logs and loop."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import structlog
from starlette.types import ASGIApp
from uvicorn import Config, Server

from isochrone_collector.http_api.acceptor import Acceptor
from isochrone_collector.http_api.app import Sources, create_app
from isochrone_collector.http_api.connection import IDLE_US, MAX_HEAD_BYTES, SEND_BUFFER_BYTES, Connection
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.process_tuning import max_connections
from isochrone_common.address import UNIX, Address
from isochrone_common.files import private_files
from isochrone_wire.model import SECOND_US

MAX_CONNECTIONS = 4_000
"""Maximum number of HTTP connections; a quarter of them of one address."""

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
# A flood that overflows the queue delays other connections by seconds, until their packets are repeated. The kernel's
# own limit, usually as high, is the smaller of the two.
_BACKLOG = 4_096
_GRACE_S = 3
_STARTED_WITHIN_S = 5.0


_log = structlog.get_logger()


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
    """Serve `app` within the block; yields the address with its real port. End streams before leaving the block:
    requests in progress then have three seconds. Raises `OSError` if it cannot listen.
    """
    listener = _bound_socket(listen) if listen.is_socket else _bound(listen)
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


def _bound_socket(listen: Address) -> socket.socket:
    """Return the Unix socket at an address, which replaces one that nothing listens on."""
    path = Path(listen.host.removeprefix(UNIX))
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        with private_files():
            listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _bound(listen: Address) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(
        listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by every connection: the kernel's buffer for a reader that does not read.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.bind(place)
        # Listen at once: until then another program could take the port.
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
