"""Answers as response bodies: the document of the wire, and a tag that does not change with the instant."""

import gzip
import json
from dataclasses import replace

import pytest
from starlette.datastructures import Headers

from fixtures.fake_collector import STANDINGS, VANTAGES, WINDOW
from isochrone_collector.http_api.responses import accepts_gzip, encode_compressed, encode_document
from isochrone_wire.answers import Window
from isochrone_wire.insights import Leaderboard
from isochrone_wire.queries.documents import document
from testdata.routes import EXPLANATION

BOARD = Leaderboard(window=WINDOW, standings=STANDINGS)


def test_the_bytes_are_the_document() -> None:
    """The rows that are encoded on their own make the same document, also without any; it ends its line."""
    for answer in (BOARD, VANTAGES, replace(BOARD, standings=())):
        content = encode_document(answer).content
        assert json.loads(content) == document(answer)
        assert content.endswith(b"}\n")
        assert content.count(b"\n") == 1


def test_a_tag_is_of_the_rows() -> None:
    """The ends of the window and the instant of the answer do not change the tag; a row, or another field, does."""
    tag = encode_document(BOARD).etag
    assert encode_document(replace(BOARD, window=Window(from_at=1, until_at=2))).etag == tag
    assert encode_document(replace(VANTAGES, answered_at=1)).etag == encode_document(VANTAGES).etag
    assert encode_document(replace(BOARD, standings=STANDINGS[:1])).etag != tag
    assert encode_document(replace(VANTAGES, paused="restored")).etag != encode_document(VANTAGES).etag


def test_a_compressed_document_has_the_tag_of_the_plain_one() -> None:
    """Only its bytes are others, and those of a small one are the same."""
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
