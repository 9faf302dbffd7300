"""Responses: compression, encoded documents, and entity tags."""

import gzip
import json
from dataclasses import replace

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from fixtures.fake_collector import STANDINGS, VANTAGES, WINDOW
from isochrone_collector.http_api import responses
from isochrone_collector.http_api.responses import (
    MIN_COMPRESSED_BYTES,
    JsonResponse,
    accepts_gzip,
    encode_compressed,
    encode_document,
    is_current,
    quoted,
)
from isochrone_wire.answers import Window
from isochrone_wire.insights import Leaderboard
from isochrone_wire.queries.documents import document
from testdata.routes import EXPLANATION

LARGE = b'{"rows":[' + b"1234567890," * MIN_COMPRESSED_BYTES + b"0]}"


async def sent(response: JsonResponse, coding: str = "gzip") -> tuple[Headers, bytes]:
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


BOARD = Leaderboard(window=WINDOW, standings=STANDINGS)


def test_the_bytes_are_the_document() -> None:
    """Rows encoded on their own make the same document; its tag is of the rows, whatever instant and coding."""
    for answer in (BOARD, VANTAGES, replace(BOARD, standings=())):
        content = encode_document(answer).content
        assert json.loads(content) == document(answer)
        assert content.endswith(b"}\n")
        assert content.count(b"\n") == 1
    tag = encode_document(BOARD).etag
    assert encode_document(replace(BOARD, window=Window(from_at=1, until_at=2))).etag == tag
    assert encode_document(replace(VANTAGES, answered_at=1)).etag == encode_document(VANTAGES).etag
    assert encode_document(replace(BOARD, standings=STANDINGS[:1])).etag != tag
    assert encode_document(replace(VANTAGES, paused="restored")).etag != encode_document(VANTAGES).etag
    board = replace(BOARD, standings=STANDINGS * 20)
    packed, plain = encode_compressed(board), encode_document(board)
    assert (packed.etag, packed.is_compressed, plain.is_compressed) == (plain.etag, True, False)
    assert gzip.decompress(packed.content) == plain.content
    assert encode_compressed(replace(BOARD, standings=())) == encode_document(replace(BOARD, standings=()))


def test_other_answers_are_encoded_as_they_are() -> None:
    """An explanation has no rows: it is its own document."""
    found = encode_document(EXPLANATION)
    assert json.loads(found.content)["replays"] is EXPLANATION.replays
    assert found.etag


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], False),
        (["gzip"], True),
        (["br, GZIP ;q=0.5"], True),
        (["deflate", "gzip"], True),
        (["identity"], False),
        (["gzip;q=0"], False),
        (["gzip; q=0.000, identity"], False),
        (["gzip;q=0.001"], True),
        (["x-gzipped"], False),
        (["*"], False),
    ],
)
def test_gzip_is_named(said: list[str], expected: bool) -> None:  # noqa: FBT001  # a case
    """A client accepts gzip if it names it, in any of its headers, and does not refuse it with the weight 0."""
    assert accepts_gzip(Headers(raw=[(b"accept-encoding", one.encode()) for one in said])) is expected


TAG = "g48-9f3ac1d20001"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, False),
        ("", False),
        ("*", True),
        (quoted(TAG), True),
        (f"  {quoted(TAG)}  ", True),
        (f"W/{quoted(TAG)}", True),
        (f'"other",{quoted(TAG)}', True),
        (f'W/"other"  ,\t W/{quoted(TAG)}', True),
        (f'"a,{TAG}", "b"', False),
        (TAG, False),
        (f"w/{quoted(TAG)}", False),
        (f"{quoted(TAG)},", False),
        (f"{quoted(TAG)} {quoted(TAG)}", False),
        (f"*, {quoted(TAG)}", False),
        (f'"{TAG}', False),
        (f'" {TAG}"', False),
        ('"' * 20_000, False),
        ('"a",' * 5_000, False),
        ('W/"' * 5_000, False),
        (quoted(TAG)[:-1] + "\r\n" + '"', False),
    ],
)
def test_only_a_tag_that_is_named_is_current(said: str | None, expected: bool) -> None:  # noqa: FBT001  # a case
    """A tag matches strong, weak, in a list or as `*`; a malformed header matches nothing."""
    assert is_current(said, TAG) is expected
