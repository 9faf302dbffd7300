"""Connections to providers, kept for later requests.

A pool of httpcore looks at all connections at each begin and end of a request, so that the processor time of two
hundred streams at once is mostly that of the pool. Here a request takes the connection of its origin that was used
last, or a new one.
"""

import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import httpcore
from httpcore._utils import is_socket_readable

_MOST_IDLE = 100
KEEPALIVE_S = 30.0
MOST_WAITING_BYTES = 1 << 16
_shield = partial(anyio.CancelScope, shield=True)


Make = Callable[[httpcore.Origin], httpcore.AsyncConnectionInterface]


class Connections:
    """Connections that `make` opens for an origin."""

    def __init__(self, make: Make, shield: Callable[[], AbstractContextManager[object]] = _shield) -> None:
        self._make, self._shield = make, shield
        self._idle: list[tuple[httpcore.Origin, httpcore.AsyncConnectionInterface]] = []  # the last one used is last
        self._busy: set[httpcore.AsyncConnectionInterface] = set()
        self._lock = threading.Lock()

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request; the response has to be closed. Raises errors of httpcore."""
        origin = request.url.origin
        while (connection := self._take(origin)) is not None and connection.has_expired():
            await self._close([connection])
        connection = connection or self._make(origin)
        with self._lock:
            self._busy.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            with self._lock:
                self._busy.discard(connection)
            raise
        response.stream = _Body(response.stream, partial(self._release, origin, connection))
        return response

    async def aclose(self) -> None:
        """Close all connections, also those in use."""
        with self._lock:
            closing = [*self._busy, *(connection for _, connection in self._idle)]
            self._busy.clear()
            self._idle.clear()
        await self._close(closing)

    def _take(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface | None:
        with self._lock:
            for place in range(len(self._idle) - 1, -1, -1):
                if self._idle[place][0] == origin:
                    return self._idle.pop(place)[1]
        return None

    async def _release(
        self, origin: httpcore.Origin, connection: httpcore.AsyncConnectionInterface, body: "_Body"
    ) -> None:
        with self._shield():
            await body.stream.aclose()
        closing = list[httpcore.AsyncConnectionInterface]()
        with self._lock:
            if connection in self._busy and connection.is_idle() and not _has_excess(connection):
                self._idle.append((origin, connection))
            else:
                closing.append(connection)
            self._busy.discard(connection)
            while len(self._idle) > _MOST_IDLE or (len(self._idle) > 1 and self._idle[0][1].has_expired()):
                closing.append(self._idle.pop(0)[1])
        if closing:
            await self._close(closing)

    async def _close(self, connections: Iterable[httpcore.AsyncConnectionInterface]) -> None:
        with self._shield():
            for connection in connections:
                await connection.aclose()


def _has_excess(connection: Any) -> bool:  # noqa: ANN401  # one of several, each around the next
    """Return whether bytes after the response were read: the next response would begin with them."""
    while inner := getattr(connection, "_connection", None):
        connection = inner
    return bool(connection._h11_state.trailing_data[0])  # noqa: SLF001  # httpcore shows it nowhere


@dataclass(slots=True, eq=False)
class _Body:
    """The body of a response, which ends the use of its connection once."""

    stream: Any
    release: Callable[["_Body"], Coroutine[Any, Any, None]] | None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self.stream)

    async def aclose(self) -> None:
        release, self.release = self.release, None
        if release is not None:
            await release(self)


class Backend(httpcore.AnyIOBackend):
    """A network whose connections send the head of a request together with its body."""

    async def connect_tcp(self, *arguments: Any, **more: Any) -> httpcore.AsyncNetworkStream:  # noqa: ANN401  # httpcore's
        """As httpcore."""
        return _Stream(await super().connect_tcp(*arguments, **more))


class _Stream(httpcore.AsyncNetworkStream):
    """A stream that sends what was written before it reads."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream, self._written, self._socket = stream, bytearray(), stream.get_extra_info("socket")
        self.aclose = stream.aclose  # type: ignore[method-assign]  # as it is

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # httpcore's
        # Each request asks this, and anyio would look up the addresses of both sides.
        return is_socket_readable(self._socket) if info == "is_readable" else self._stream.get_extra_info(info)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's
        if self._written:
            await self._send(timeout)
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # httpcore's
        self._written += buffer
        if len(self._written) > MOST_WAITING_BYTES:
            await self._send(timeout)

    async def start_tls(self, *arguments: Any, **more: Any) -> httpcore.AsyncNetworkStream:  # noqa: ANN401  # httpcore's
        try:
            return _Stream(await self._stream.start_tls(*arguments, **more))
        except BaseException:  # also of a handshake that was cancelled
            with _shield():
                await self._stream.aclose()
            raise

    async def _send(self, timeout: float | None) -> None:  # noqa: ASYNC109  # httpcore's
        sending, self._written = bytes(self._written), bytearray()
        await self._stream.write(sending, timeout)
