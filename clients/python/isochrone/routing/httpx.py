"""Transports of httpx to the members of route tables: `httpx.Client(transport=Transport(routes))`."""

import httpx

from isochrone.routing import bridge


class AsyncTransport(bridge.AsyncTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient`, for one asyncio event loop."""

    library = httpx


class Transport(bridge.Transport[httpx.Request, httpx.Response], httpx.BaseTransport):
    """A transport for `httpx.Client`, for any number of threads."""

    library = httpx
