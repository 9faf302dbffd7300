"""Responses: answers as JSON with entity tags (RFC 9110), errors as `application/problem+json` (RFC 9457).

JSON is sent compressed to clients that accept gzip. The length of a compressed body can betray a secret in it to
someone who chooses other parts of it and sees the traffic (BREACH). Here no compressed body has a secret: credentials
and the tokens of sessions are in headers, and in the body of one request. Nor can a page of another site make a browser
ask with its session: the cookie is `SameSite=Strict`. The route tables of a region are not compressed, because they are
small, and have tags of their bytes; nor are streams, whose events must arrive one by one.
"""

import asyncio
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from isochrone_collector import errors
from isochrone_collector.recent_values import RecentValues
from isochrone_wire.json_format import json_text, plain_text, to_json_value
from isochrone_wire.model import SECOND_US
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.routes import RegionTables, RouteTable
from isochrone_wire.text import shortened

_log = structlog.get_logger()

VARY: Mapping[str, str] = MappingProxyType({"Vary": "Accept-Encoding"})
"""The header of answers that differ in compression, also of those without a body."""

MEDIA_TYPE = "application/problem+json"

MIN_COMPRESSED_BYTES = 1_024
"""Bodies below this size, of about one packet, are sent as they are."""

_READ_S = 10.0
_IN_THREAD_BYTES = 64 << 10
_REFUSED = re.compile(r"q=0(\.0*)?", re.IGNORECASE)
_MAX_ENTRIES = 512
_VOLATILE = ("answered_at", "stale_since_at")
# They change with the instant of the request.
_CHANGING = ("window", "answered_at")
_TAG = r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"'
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*")
_ONE_TAG = re.compile(_TAG)


def encode(value: object) -> bytes:
    """Encode a wire value as JSON on one line; instants are RFC 3339 text."""
    return json_text(value).encode()


def encode_line(value: object) -> bytes:
    """Encode a value as a response body, with a final newline for terminals."""
    return encode(value) + b"\n"


class EncodedTables:
    """The recent encodings, by the entity tags of their tables."""

    def __init__(self) -> None:
        self._encoded = RecentValues[bytes](_MAX_ENTRIES)

    def region(self, region: RegionTables) -> bytes:
        """Encode the tables of a region without the fields that are headers: equal tables give equal bytes."""
        key = (region.client_region, *(table.etag for table in region.tables))
        return self._encoded.get(
            key,
            lambda: encode_line({name: one for name, one in to_json_value(region).items() if name not in _VOLATILE}),
        )

    def event(self, table: RouteTable) -> bytes:
        """Encode a table as a server-sent event; its id is the generation."""
        return self._encoded.get(
            ("event", table.etag), lambda: b"id: %d\nevent: table\ndata: %s\n\n" % (table.generation, encode(table))
        )


class JsonResponse(Response):
    """A JSON body, compressed when it is sent unless it is small or `is_compressed`; so its tag must be weak."""

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
        if not self._is_compressed and len(self.body) >= MIN_COMPRESSED_BYTES and accepts_gzip(Headers(scope=scope)):
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
                    raise errors.MessageTooLarge(f"the body has more than {max_bytes} bytes")
    except TimeoutError:
        raise errors.DeadlineExceeded("the request did not arrive in time") from None
    return bytes(body)


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """The bytes of a document, and its tag, which ignores the instant of the request and the compression."""

    content: bytes
    etag: str
    is_compressed: bool = False


def compress(content: bytes) -> bytes:
    """Compress a body with gzip; equal bodies give equal bytes."""
    return gzip.compress(content, 6, mtime=0)


# Many callers get the same status or description.
_compress_once = lru_cache(maxsize=32)(compress)


def accepts_gzip(headers: Headers) -> bool:
    """Return whether a request names gzip in Accept-Encoding, other than with the weight 0."""
    for item in ",".join(headers.getlist("accept-encoding")).split(","):
        coding, _, weight = item.partition(";")
        if coding.strip().lower() == "gzip":
            return _REFUSED.fullmatch(weight.strip()) is None
    return False


def encode_compressed(answer: object) -> EncodedDocument:
    """Encode an answer as `encode_document` does, and compress it unless it is small."""
    plain = encode_document(answer)
    if len(plain.content) < MIN_COMPRESSED_BYTES:
        return plain
    return replace(plain, content=compress(plain.content), is_compressed=True)


def encode_document(answer: object) -> EncodedDocument:
    """Encode an answer as its document, or as it is without a format; row by row, so that other threads run."""
    format_ = FORMATS.get(type(answer).__name__)
    if format_ is None:
        content = encode(answer)
        return EncodedDocument(content + b"\n", _digest(content))
    head = {"schema": format_.schema, **format_.facts(answer)}
    write = json_text if not format_.inline else lambda row: plain_text(format_.record(row))
    rows = ",".join(write(row) for row in format_.rows_of(answer)).encode()
    content = encode(head).removesuffix(b"}") + b',"rows":[' + rows + b"]}\n"
    lasting = {name: part for name, part in head.items() if name not in _CHANGING}
    return EncodedDocument(content, _digest(encode(lasting), rows))


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:32]


def quoted(etag: str) -> str:
    """Format a strong entity tag for a header: equal bytes."""
    return f'"{etag}"'


def weak(etag: str) -> str:
    """Format a weak entity tag for a header: the same answer, perhaps as of another instant."""
    return f'W/"{etag}"'


def is_current(if_none_match: str | None, etag: str) -> bool:
    """Return whether the header contains the tag, strong or weak, or is `*`. A malformed header matches nothing."""
    header = (if_none_match or "").strip()
    if header == "*":
        return True
    return _TAGS.fullmatch(header) is not None and etag in _ONE_TAG.findall(header)


def none_match(headers: Headers) -> str | None:
    """Return the value of If-None-Match; `None` without one."""
    return ", ".join(headers.getlist("if-none-match")) or None


class NotBuilt(errors.CollectorError):
    """The table is not built yet. Act: the client, by retrying in a moment."""


_RETRY_AFTER_US = 2 * SECOND_US
# The maximum number of names in a response.
_MAX_NAMES = 200

# Error → status, and the last part of the problem type.
STATUS_OF: dict[type[Exception], tuple[HTTPStatus, str]] = {
    errors.BadRequest: (HTTPStatus.BAD_REQUEST, "bad-request"),
    errors.UnknownName: (HTTPStatus.NOT_FOUND, "unknown-name"),
    errors.Conflict: (HTTPStatus.CONFLICT, "conflict"),
    errors.Unauthenticated: (HTTPStatus.UNAUTHORIZED, "unauthenticated"),
    errors.Forbidden: (HTTPStatus.FORBIDDEN, "forbidden"),
    errors.ResourceExhausted: (HTTPStatus.SERVICE_UNAVAILABLE, "resource-exhausted"),
    errors.MessageTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large"),
    errors.DeadlineExceeded: (HTTPStatus.GATEWAY_TIMEOUT, "deadline-exceeded"),
    errors.DatabaseUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "database-unavailable"),
    NotBuilt: (HTTPStatus.SERVICE_UNAVAILABLE, "not-built"),
}


def response(error: Exception) -> Response:
    """Return the response to an error."""
    if isinstance(error, HTTPException):
        return _problem(HTTPStatus(error.status_code), "", error.detail, headers=error.headers or {})
    broken = HTTPStatus.INTERNAL_SERVER_ERROR, "internal"
    status, kind = next((STATUS_OF[cls] for cls in type(error).__mro__ if cls in STATUS_OF), broken)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        # A bug: the client gets a generic message, the log the details.
        _log.error("request.failed", exc_info=error)
        return _problem(status, kind, "internal error; see the collector's log")
    headers: dict[str, str] = {}
    members: dict[str, object] = {}
    if status is HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": 'Bearer realm="isochrone"'}
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        delay_us = error.delay_us if isinstance(error, errors.ResourceExhausted) else _RETRY_AFTER_US
        headers = {"Retry-After": str(max(1, -(-delay_us // SECOND_US)))}
    if isinstance(error, errors.CollectorError) and error.hint:
        members["hint"] = error.hint
    if isinstance(error, errors.UnknownName) and error.known:
        members |= {"known": error.known[:_MAX_NAMES], "nearest": error.nearest}
    return _problem(status, kind, shortened(str(error)), headers=headers, members=members)


async def handle(_request: Request, error: Exception) -> Response:
    """Exception handler for Starlette."""
    return response(error)


def _problem(
    status: HTTPStatus,
    kind: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    members: Mapping[str, object] | None = None,
) -> Response:
    problem: dict[str, object] = {
        "type": "urn:isochrone:problem:" + kind if kind else "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        **(members or {}),
    }
    content = json.dumps(problem, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    return JsonResponse(
        content, status_code=status, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", **(headers or {})}
    )
