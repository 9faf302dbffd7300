"""Transports of httpx2 that send requests to the members of route tables.

client = httpx2.Client(transport=Transport(routes))
"""

import httpx2

from isochrone.routing import bridge
from isochrone.routing.routes import Routes


class AsyncTransport(httpx2.AsyncBaseTransport):
    """A transport for `httpx2.AsyncClient`, for one asyncio event loop."""

    def __init__(self, routes: Routes) -> None:
        self._bridge = bridge.AsyncBridge(routes, httpx2)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to a member of the route that its model names, or to its own address."""
        incoming = await self._bridge.send(request, await request.aread())
        body = _AsyncBody(incoming, httpx2, request)
        return httpx2.Response(
            incoming.status, headers=incoming.headers, stream=body, extensions=dict(incoming.extensions)
        )

    async def aclose(self) -> None:
        """Close the connections; the routes stay."""
        await self._bridge.aclose()


class Transport(httpx2.BaseTransport):
    """A transport for `httpx2.Client`, for any number of threads."""

    def __init__(self, routes: Routes) -> None:
        self._bridge = bridge.Bridge(routes, httpx2)
        self._loop = routes.background

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """As `AsyncTransport.handle_async_request`."""
        incoming = self._bridge.send(request, request.read())
        body = _Body(incoming, httpx2, request, self._loop)
        return httpx2.Response(
            incoming.status, headers=incoming.headers, stream=body, extensions=dict(incoming.extensions)
        )

    def close(self) -> None:
        """Close the connections; the routes stay."""
        self._bridge.close()


class _AsyncBody(bridge.AsyncBody, httpx2.AsyncByteStream):
    pass


class _Body(bridge.Body, httpx2.SyncByteStream):
    pass
