"""Transports of httpx2 to the members of route tables: `httpx2.Client(transport=Transport(routes))`."""

import httpx2

from isochrone.routing import bridge


class AsyncTransport(bridge.AsyncTransport[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    """A transport for `httpx2.AsyncClient`, for one asyncio event loop."""

    library = httpx2


class Transport(bridge.Transport[httpx2.Request, httpx2.Response], httpx2.BaseTransport):
    """A transport for `httpx2.Client`, for any number of threads."""

    library = httpx2
