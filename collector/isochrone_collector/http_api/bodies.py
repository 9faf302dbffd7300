"""Bodies: those of requests are read with limits of their size and time, and JSON is sent compressed to clients that
accept gzip.

The route tables of a region are not sent from here: they are small, and have tags of their bytes. Nor are streams,
whose events must arrive one by one.
"""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from isochrone_collector.errors import DeadlineExceeded, MessageTooLarge
from isochrone_collector.http_api.encoded_documents import accepts_gzip, compress, is_compressible

VARY: Mapping[str, str] = MappingProxyType({"Vary": "Accept-Encoding"})
"""The header of answers that differ in compression, also of those without a body."""

_READ_S = 10.0
_IN_THREAD_BYTES = 64 << 10
# Many callers get the same status or description.
_compress_once = lru_cache(maxsize=32)(compress)


class JsonResponse(Response):
    """A response whose body is JSON. It is compressed when it is sent, unless it is small or `is_compressed` already.
    Its tag must be weak, because it is that of both.
    """

    media_type = "application/json"

    def __init__(
        self,
        content: bytes,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        *,
        is_compressed: bool = False,
    ) -> None:
        super().__init__(content, status_code, {**VARY, **(headers or {})}, media_type)
        self._is_compressed = is_compressed
        if is_compressed:
            self._note_compression()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        if not self._is_compressed and is_compressible(self.body) and accepts_gzip(Headers(scope=scope)):
            body = bytes(self.body)
            is_large = len(body) >= _IN_THREAD_BYTES
            self.body = await asyncio.to_thread(_compress_once, body) if is_large else _compress_once(body)
            self._note_compression()
        await super().__call__(scope, receive, send)

    def _note_compression(self) -> None:
        self._is_compressed = True
        self.headers["Content-Encoding"] = "gzip"
        self.headers["Content-Length"] = str(len(self.body))


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Return the body of a request. Raises `MessageTooLarge` and `DeadlineExceeded`."""
    body = bytearray()
    try:
        async with asyncio.timeout(_READ_S):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise MessageTooLarge(f"the body has more than {max_bytes} bytes")
    except TimeoutError:
        raise DeadlineExceeded("the request did not arrive in time") from None
    return bytes(body)
