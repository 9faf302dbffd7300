"""Reading of request bodies, with limits of their size and time."""

import asyncio

from starlette.requests import Request

from isochrone_collector.errors import MessageTooLarge, TookTooLong

_READ_S = 10.0


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Return the body of a request. Raises `MessageTooLarge` and `TookTooLong`."""
    body = bytearray()
    try:
        async with asyncio.timeout(_READ_S):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise MessageTooLarge(f"the body has more than {max_bytes} bytes")
    except TimeoutError:
        raise TookTooLong("the request did not arrive in time") from None
    return bytes(body)
