"""Responses with JSON: compressed when they are sent, for clients that accept it."""

import gzip

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from isochrone_collector.http_api import responses
from isochrone_collector.http_api.responses import MIN_COMPRESSED_BYTES, JsonResponse

LARGE = b'{"rows":[' + b"1234567890," * MIN_COMPRESSED_BYTES + b"0]}"


async def sent(response: JsonResponse, coding: str = "gzip") -> tuple[Headers, bytes]:
    """Return the headers and the body that a client gets that names this coding."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    scope = {"type": "http", "method": "GET", "headers": [(b"accept-encoding", coding.encode())]}
    await response(scope, receive, send)
    head, body = messages
    return Headers(raw=head["headers"]), body["body"]


@pytest.mark.parametrize("in_thread_bytes", [1, 1 << 30])
async def test_a_large_body_is_compressed(monkeypatch: pytest.MonkeyPatch, in_thread_bytes: int) -> None:
    """Its headers state how, and its length."""
    monkeypatch.setattr(responses, "_IN_THREAD_BYTES", in_thread_bytes)
    headers, body = await sent(JsonResponse(LARGE, headers={"ETag": 'W/"a"', "Cache-Control": "no-cache"}))
    assert gzip.decompress(body) == LARGE
    assert {name: headers[name] for name in ("content-encoding", "content-type", "etag", "vary", "cache-control")} == {
        "content-encoding": "gzip",
        "content-type": "application/json",
        "etag": 'W/"a"',
        "vary": "Accept-Encoding",
        "cache-control": "no-cache",
    }
    assert int(headers["content-length"]) == len(body) < len(LARGE) / 10


@pytest.mark.parametrize(("content", "coding"), [(LARGE, "br"), (LARGE, "gzip;q=0"), (b"{}", "gzip")])
async def test_other_bodies_are_sent_as_they_are(content: bytes, coding: str) -> None:
    """A small body, and one for a client that does not accept gzip; caches learn that the coding matters."""
    headers, body = await sent(JsonResponse(content), coding)
    assert body == content
    assert (headers.get("content-encoding"), headers["vary"]) == (None, "Accept-Encoding")
    assert int(headers["content-length"]) == len(content)


async def test_a_compressed_body_is_not_compressed_again() -> None:
    """Not even if it is large."""
    packed = gzip.compress(LARGE, 0)
    headers, body = await sent(JsonResponse(packed, is_compressed=True))
    assert (body, headers["content-encoding"], headers["content-length"]) == (packed, "gzip", str(len(packed)))
