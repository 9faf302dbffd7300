"""The event-stream grammar."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isochrone_common.sse import Event, SseDecoder, SseOverflow


def decode(*reads: bytes) -> list[Event]:
    decoder = SseDecoder()
    return [event for read in reads for event in decoder.receive(read)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [Event(b"a")]),
        (b"data:a\r\n\r\n", [Event(b"a")]),
        (b"data: a\r\r", [Event(b"a")]),
        (b"data: a\ndata: b\n\n", [Event(b"a\nb")]),
        (b"data:  two spaces\n\n", [Event(b" two spaces")]),
        (b": comment\n\ndata: a\n\n", [Event(b"a")]),
        (b"event: ping\ndata: {}\n\n", [Event(b"{}", b"ping")]),
        (b"event: ping\n\ndata: a\n\n", [Event(b"a")]),
        (b"id: 1\nretry: 5\nunknown\ndata: a\n\n", [Event(b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
        (b"data\n\n", [Event(b"")]),
        (b"data: no blank line\n", []),
        (b'data: {"a":1}\ndata: {"b":2}\n', [Event(b'{"a":1}'), Event(b'{"b":2}')]),
        (b'event: x\ndata: {"a":1}\nevent: y\ndata: {"b":2}\n', [Event(b'{"a":1}', b"x"), Event(b'{"b":2}', b"y")]),
        (b'data: {"a":\ndata: 1}\n\n', [Event(b'{"a":\n1}')]),
        ("data: a\u2028b\u0085c\n\n".encode(), [Event("a\u2028b\u0085c".encode())]),
        (b"data: \xff\xfe\n\n", [Event(b"\xff\xfe")]),
    ],
)
def test_the_grammar(stream: bytes, events: list[Event]) -> None:
    """Every line ending, field and oddity of the grammar gives the events the standard says."""
    assert decode(stream) == events


@example([b"\r", b'data: {"a":1}', b"\r", b"data: x"], [15])
@given(
    st.lists(
        st.sampled_from(
            [b"data: x", b"data:y", b'data: {"a":1}', b"\r", b"\n", b"\r\n", b":c", b"event: e", b"\xef\xbb\xbf"]
        )
    ),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_cuts_never_matter(pieces: list[bytes], cuts: list[int]) -> None:
    """However a stream is cut into reads, the same events come out."""
    stream = b"".join(pieces)
    cuts = sorted(min(cut, len(stream)) for cut in cuts)
    reads = [stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])]
    assert decode(*reads) == decode(stream)


@pytest.mark.parametrize(
    "piece",
    [b"x" * 1000, b"data: " + b"x" * 1000 + b"\n", b"data:\n" * 1000],
    ids=["endless-line", "endless-event", "endless-empty-lines"],
)
def test_memory_is_bounded(piece: bytes) -> None:
    """A line or an event without end is an overflow, not a full memory."""
    decoder = SseDecoder(limit=10_000)
    fitting = [decoder.receive(piece) for _ in range(9)]
    assert fitting == [[]] * 9
    with pytest.raises(SseOverflow, match="10000 bytes"):
        decoder.receive(piece * 2)


def test_endless_comments_hold_nothing() -> None:
    """A million comment lines leave the decoder as it was."""
    decoder = SseDecoder(limit=1000)
    for _ in range(1000):
        assert decoder.receive(b": keep-alive\n\n" * 100) == []
    assert decoder.receive(b"data: a\n\n") == [Event(b"a")]
