"""Transports of httpx that send requests to the members of route tables.

client = httpx.Client(transport=Transport(routes))
"""

import httpx

from isochrone.routing import bridge
from isochrone.routing.routes import Routes


class AsyncTransport(bridge.AsyncTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient`, for one asyncio event loop."""

    def __init__(self, routes: Routes) -> None:
        super().__init__(routes, httpx)


class Transport(bridge.Transport[httpx.Request, httpx.Response], httpx.BaseTransport):
    """A transport for `httpx.Client`, for any number of threads."""

    def __init__(self, routes: Routes) -> None:
        super().__init__(routes, httpx)
