"""The common part of the transports of `httpx` and `httpx2`, whose classes have the same names and methods."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

import httpcore

from isochrone.routing.background import BackgroundLoop
from isochrone.routing.engine import Engine, Incoming, Outgoing
from isochrone.routing.routes import Routes

_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


class _Headers(Protocol):
    @property
    def raw(self) -> list[tuple[bytes, bytes]]: ...


class Request(Protocol):
    """A request of either library."""

    method: str
    extensions: dict[str, Any]

    @property
    def url(self) -> object:
        """Its address."""
        ...

    @property
    def headers(self) -> _Headers:
        """Its headers."""
        ...


class AsyncBridge:
    """Sends requests on the caller's event loop."""

    def __init__(self, routes: Routes, library: ModuleType) -> None:
        self._engine = Engine(routes, routes.new_pool())
        self._library = library

    async def send(self, request: Request, body: bytes) -> Incoming:
        """Return the response. Raises errors of the library."""
        with errors_of(self._library, request):
            return await self._engine.send(_outgoing(request, body))

    async def aclose(self) -> None:
        """Close the connections; the routes stay."""
        await self._engine.aclose()


class Bridge:
    """Sends requests of any thread on the event loop of the routes."""

    def __init__(self, routes: Routes, library: ModuleType) -> None:
        self._routes = routes
        self._library = library
        self._engine = Engine(routes, routes.new_background_pool())
        self._pid = os.getpid()

    def send(self, request: Request, body: bytes) -> Incoming:
        """Return the response. Raises errors of the library."""
        if self._pid != os.getpid():  # a forked process cannot use the connections
            self._engine, self._pid = Engine(self._routes, self._routes.new_background_pool()), os.getpid()
        with errors_of(self._library, request):
            return self._routes.background.run(self._engine.send(_outgoing(request, body)))

    def close(self) -> None:
        """Close the connections; the routes stay."""
        if self._pid == os.getpid() and self._routes.background.is_running:
            self._routes.background.run(self._engine.aclose())


class AsyncBody:
    """The body of a response on the caller's event loop."""

    def __init__(self, incoming: Incoming, library: ModuleType, request: Request) -> None:
        self._incoming = incoming
        self._library = library
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with errors_of(self._library, self._request):
            async for data in self._incoming.body():
                yield data

    async def aclose(self) -> None:
        """Give the connection back, or close it if the body was not read to its end."""
        await self._incoming.aclose()


class Body:
    """The body of a response for a thread."""

    def __init__(self, incoming: Incoming, library: ModuleType, request: Request, loop: BackgroundLoop) -> None:
        self._incoming = incoming
        self._library = library
        self._request = request
        self._loop = loop

    def __iter__(self) -> Iterator[bytes]:
        body = self._incoming.body()
        with errors_of(self._library, self._request):
            while data := self._loop.run(_next(body)):
                yield data

    def close(self) -> None:
        """As `AsyncBody.aclose`."""
        self._loop.run(_close(self._incoming))


@contextmanager
def errors_of(library: ModuleType, request: Request) -> Iterator[None]:
    """Raise the errors of httpcore as those of the library, which have the same names."""
    try:
        yield
    except _ERRORS as error:
        raise getattr(library, type(error).__name__)(str(error), request=request) from error


def _outgoing(request: Request, body: bytes) -> Outgoing:
    return Outgoing(
        method=request.method,
        url=str(request.url),
        headers=list(request.headers.raw),
        body=body,
        extensions=request.extensions,
    )


async def _next(body: AsyncIterator[bytes]) -> bytes:
    """The next data, nothing at the end."""
    async for data in body:
        if data:
            return data
    return b""


async def _close(incoming: Incoming) -> None:
    await incoming.aclose()
