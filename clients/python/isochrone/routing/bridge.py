"""The common part of the transports of `httpx` and `httpx2`, whose classes have the same names and methods."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from isochrone.routing.blocking import BlockingBody, ThreadRacing, run
from isochrone.routing.engine import ERRORS, Engine, Incoming, Outgoing
from isochrone.routing.routes import Routes


class Request(Protocol):
    """A request of either library, which have classes of their own for addresses and headers."""

    method: str
    url: Any
    headers: Any
    extensions: dict[str, Any]

    def read(self) -> bytes:
        """Return its body."""
        ...

    async def aread(self) -> bytes:
        """Return its body."""
        ...


AnyRequest = TypeVar("AnyRequest", bound=Request)
AnyResponse = TypeVar("AnyResponse")


class AsyncTransport(Generic[AnyRequest, AnyResponse]):
    """Sends requests on the caller's event loop."""

    library: ModuleType

    def __init__(self, routes: Routes) -> None:
        self._engine = Engine(routes, routes.new_pool())
        self._body_class = type("Body", (_AsyncBody, self.library.AsyncByteStream), {})

    async def handle_async_request(self, request: AnyRequest) -> AnyResponse:
        """Send a request to a member of its route, or to its own address. Raises errors of the library."""
        body = await request.aread()
        with _errors_of(self.library, request):
            incoming = await self._engine.send(_outgoing(request, body))
        response: AnyResponse = _response(self.library, incoming, self._body_class(incoming, self.library, request))
        return response

    async def aclose(self) -> None:
        """Close the connections; the routes stay."""
        await self._engine.aclose()


class Transport(Generic[AnyRequest, AnyResponse]):
    """Sends requests in the thread of the caller."""

    library: ModuleType

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._body_class = type("Body", (_Body, self.library.SyncByteStream), {})
        self._begin()

    def handle_request(self, request: AnyRequest) -> AnyResponse:
        """As `AsyncTransport.handle_async_request`."""
        if self._pid != os.getpid():  # a forked process cannot use the connections
            self._begin()
        body = request.read()
        with _errors_of(self.library, request):
            incoming = run(self._engine.send(_outgoing(request, body)))
        response: AnyResponse = _response(self.library, incoming, self._body_class(incoming, self.library, request))
        return response

    def close(self) -> None:
        """Close the connections; the routes stay."""
        if self._pid == os.getpid():
            self._routes.close_blocking(self._engine.pool)

    def _begin(self) -> None:
        self._engine = Engine(self._routes, self._routes.new_blocking_pool(), racing=ThreadRacing())
        self._pid = os.getpid()


@dataclass(eq=False)
class _AsyncBody:
    incoming: Incoming
    library: ModuleType
    request: Request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of(self.library, self.request):
            async for data in self.incoming.body():
                yield data

    async def aclose(self) -> None:
        """Give the connection back, or close it if the body was not read to its end."""
        await self.incoming.aclose()


@dataclass(eq=False)
class _Body:
    incoming: Incoming
    library: ModuleType
    request: Request

    def __iter__(self) -> Iterator[bytes]:
        rest = self.incoming.rest
        with _errors_of(self.library, self.request):
            yield from self.incoming.held
            if isinstance(rest, BlockingBody):
                yield from rest.rest
                return
            while data := run(_next(rest)):
                yield data

    def close(self) -> None:
        """As `_AsyncBody.aclose`."""
        run(self.incoming.aclose())


@contextmanager
def _errors_of(library: ModuleType, request: Request) -> Iterator[None]:
    """Raise the errors of httpcore as those of the library, which have the same names."""
    try:
        yield
    except ERRORS as error:
        raise getattr(library, type(error).__name__)(str(error), request=request) from error


def _response(library: ModuleType, incoming: Incoming, body: object) -> Any:  # noqa: ANN401  # of either library
    return library.Response(incoming.status, headers=incoming.headers, stream=body, extensions=incoming.extensions)


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
