"""HTTP inside the collector's own event loop: uvicorn without its signals, its logs and its loop."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import structlog
from starlette.types import ASGIApp
from uvicorn import Config, Server

from isochrone_collector.http_api.app import Sources, create_app
from isochrone_collector.http_api.connection import IDLE_US, MAX_HEAD_BYTES, SEND_BUFFER_BYTES, Connection
from isochrone_wire.address import Address
from isochrone_wire.model import SECOND_US

_BACKLOG = 512
_GRACE_S = 3
_STARTED_WITHIN_S = 5.0


_log = structlog.get_logger()


class _Server(Server):
    """Signals are the collector's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


@asynccontextmanager
async def serving(
    sources: Sources, listen: Address | None, *, tls: ssl.SSLContext | None
) -> AsyncIterator[dict[str, str]]:
    """Serve HTTP for the length of the block, if it is wanted; yields its URL as `http`. That the port is taken is told
    in the log, for it is no reason not to collect samples.
    """
    async with AsyncExitStack() as stack:
        urls = {}
        try:
            if listen is not None:
                address = await stack.enter_async_context(listening(create_app(sources), listen, tls=tls))
                urls["http"] = f"{'https' if tls else 'http'}://{address}"
                _log.info("http.started", url=urls["http"])
        except OSError as error:
            _log.warning("http.unavailable", listen=str(listen), reason=str(error))
        stack.callback(sources.publisher.close)
        yield urls


@asynccontextmanager
async def listening(app: ASGIApp, listen: Address, *, tls: ssl.SSLContext | None) -> AsyncIterator[Address]:
    """Serve `app` for the length of the block; yields the address with its real port. Whoever leaves the block ends
    streams first, for what is still being answered then has three seconds. Raises `OSError` where it cannot listen.
    """
    listener = _bound(listen)
    address = Address(listen.host, listener.getsockname()[1])
    server = _Server(_config(app, tls))
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
        listener.close()


def _config(app: ASGIApp, tls: ssl.SSLContext | None) -> Config:
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
        backlog=_BACKLOG,
        ssl_context_factory=(lambda _config, _usual: tls) if tls else None,
    )


def _bound(listen: Address) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(
        listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by every connection: what the kernel keeps for a reader that does not read.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.bind(place)
        # Not later than now, for another program could still take it.
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
