"""Transports of httpx2 that send requests to the members of route tables.

client = httpx2.Client(transport=Transport(routes))
"""

import httpx2

from isochrone.routing import bridge
from isochrone.routing.routes import Routes


class AsyncTransport(bridge.AsyncTransport[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    """A transport for `httpx2.AsyncClient`, for one asyncio event loop."""

    def __init__(self, routes: Routes) -> None:
        super().__init__(routes, httpx2)


class Transport(bridge.Transport[httpx2.Request, httpx2.Response], httpx2.BaseTransport):
    """A transport for `httpx2.Client`, for any number of threads."""

    def __init__(self, routes: Routes) -> None:
        super().__init__(routes, httpx2)
