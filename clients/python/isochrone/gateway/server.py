"""The process of a gateway: its socket, its log and its end.

Ctrl-C and SIGTERM end it after the open streams, and a second one at once.
"""

import asyncio
import logging
import socket
from functools import partial
from types import FrameType
from typing import Any

import structlog
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from isochrone.gateway.access import Access
from isochrone.gateway.app import GatewayEngine, create_app
from isochrone.routing.routes import Routes
from isochrone_common.address import Address

_log = structlog.get_logger("isochrone.gateway")


def bind(listen: Address) -> socket.socket:
    """Return a socket that listens on the address. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    return socket.create_server((listen.host, listen.port), family=family, backlog=2048)


async def serve(
    engine: GatewayEngine, listener: socket.socket, access: Access, most_connections: int, request_s: float
) -> None:
    """Serve on the socket until a signal ends it; a request has to arrive within `request_s` seconds."""
    routes = engine.routes
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # of streams that break off, the log has a line
    config = Config(
        create_app(engine, access, request_s),
        http=partial(_Connection, routes, most_connections, request_s),  # type: ignore[arg-type]  # it is called only
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    host, port = listener.getsockname()[:2]
    _log.info("gateway.started", url=f"http://{Address(host, port)}/v1", region=routes.region, collector=routes.url)
    reporting = asyncio.create_task(_report_routes(engine))
    try:
        await _Server(config).serve(sockets=[listener])
    finally:
        reporting.cancel()
        await engine.aclose()


async def _report_routes(engine: GatewayEngine) -> None:
    """Log the members of the first tables, and what is missing."""
    await asyncio.to_thread(engine.routes.wait)
    await asyncio.sleep(0.2)  # the tables of a region arrive together
    tables = {table.route: table for table in engine.routes.tables()}
    missing = [name for name in engine.served if name not in tables]
    if missing or not tables:
        _log.warning("gateway.no_table", routes=missing, known=list(tables), hint="see `isochrone routes`")
    for name in engine.names:
        whys = {one.target: engine.routes.obstacle(one, sends_callers_key=False) for one in tables[name].entries}
        left_out = {target: why for target, why in whys.items() if why}
        members = [target for target in whys if target not in left_out]
        (_log.info if members else _log.warning)("gateway.route", route=name, members=members, left_out=left_out)


class _Connection(H11Protocol):
    """A connection of a caller, which is closed beyond their limit, and without the head of a request in its time."""

    def __init__(self, routes: Routes, most: int, request_s: float, **more: Any) -> None:  # noqa: ANN401  # uvicorn's
        super().__init__(**more)
        self._routes, self._most, self._request_s = routes, most, request_s
        self._left = self.loop.create_future()
        self.app_state = {"left": self._left}
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self._most:
            self._routes.warn(f"more than {self._most} connections are closed: raise --max-connections")
            transport.close()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._left.set_result(None)
        if self._waiting is not None:
            self._waiting.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def _await_head(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(self._request_s, self._close_if, self.cycle)

    def _close_if(self, last: object) -> None:
        if self.cycle is last:  # which is the last request
            self.transport.close()


class _Server(Server):
    """A uvicorn server that a second signal of either kind ends at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's
        """End after the open requests; at once if it is called again."""
        _log.info("gateway.stopping", open_requests=len(self.server_state.tasks), at_once=self.should_exit)
        self.should_exit, self.force_exit = True, self.should_exit
