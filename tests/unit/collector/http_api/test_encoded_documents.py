"""Answers as response bodies: the document of the wire, and a tag that does not change with the instant."""

import json
from dataclasses import replace

from fix_observatory import STANDINGS, VANTAGES, WINDOW
from isochrone_collector.http_api.encoded_documents import encode_document
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


def test_other_answers_are_encoded_as_they_are() -> None:
    """An explanation has no rows: it is its own document."""
    found = encode_document(EXPLANATION)
    assert json.loads(found.content)["replays"] is EXPLANATION.replays
    assert found.etag
