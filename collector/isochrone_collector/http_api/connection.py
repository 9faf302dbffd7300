"""HTTP/1.1 connections with limits: their idle time and the size of a request head.

uvicorn's own protocol waits forever for the first request, and flushes before closing even if the peer does not read.
"""

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from isochrone_wire.model import SECOND_US

MAX_HEAD_BYTES = 16 * 1024
SEND_BUFFER_BYTES = 64 * 1024
IDLE_US = 15 * SECOND_US

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


class Connection(H11Protocol):
    """uvicorn's connection, closed after `IDLE_US` without a request; `closed` is done once it is. The state of a
    request has `abort`, and `is_full`: whether sending waits for the client.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        state = {**app_state, "abort": self._abort, "is_full": lambda: self.flow.write_paused}
        super().__init__(config, server_state, state, _loop)
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self._idle_since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

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
        """Cancel the timer and report the end."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        if not self.closed.done():
            self.closed.set_result(None)

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
