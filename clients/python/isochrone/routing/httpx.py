"""Transports of httpx that send requests to the members of route tables.

client = httpx.Client(transport=Transport(routes))
"""

import httpx

from isochrone.routing import bridge
from isochrone.routing.routes import Routes


class AsyncTransport(httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient`, for one asyncio event loop."""

    def __init__(self, routes: Routes) -> None:
        self._bridge = bridge.AsyncBridge(routes, httpx)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to a member of the route that its model names, or to its own address."""
        incoming = await self._bridge.send(request, await request.aread())
        body = _AsyncBody(incoming, httpx, request)
        return httpx.Response(
            incoming.status, headers=incoming.headers, stream=body, extensions=dict(incoming.extensions)
        )

    async def aclose(self) -> None:
        """Close the connections; the routes stay."""
        await self._bridge.aclose()


class Transport(httpx.BaseTransport):
    """A transport for `httpx.Client`, for any number of threads."""

    def __init__(self, routes: Routes) -> None:
        self._bridge = bridge.Bridge(routes, httpx)
        self._loop = routes.background

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """As `AsyncTransport.handle_async_request`."""
        incoming = self._bridge.send(request, request.read())
        body = _Body(incoming, httpx, request, self._loop)
        return httpx.Response(
            incoming.status, headers=incoming.headers, stream=body, extensions=dict(incoming.extensions)
        )

    def close(self) -> None:
        """Close the connections; the routes stay."""
        self._bridge.close()


class _AsyncBody(bridge.AsyncBody, httpx.AsyncByteStream):
    pass


class _Body(bridge.Body, httpx.SyncByteStream):
    pass
