"""Limits of frames, with the frames of hyperframe and the header fields of hpack."""

from collections.abc import Iterable, Sequence

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from isochrone_collector.grpc_api.frame_limits import (
    MAX_ARRIVING,
    MAX_FIELDS_BYTES,
    MAX_FRAME_BYTES,
    FrameLimits,
    LimitError,
)
from isochrone_wire.model import SECOND_US

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = [
    (":method", "POST"),
    (":scheme", "https"),
    (":path", "/isochrone.v1.Fleet/Push"),
    (":authority", "collector"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("authorization", f"Bearer isochrone-key-{'x' * 54}"),
]
NOW_AT = 10**15
# The newest field that was stored, and one of the static table, by a byte each.
NEWEST, STATIC = b"\xbe", b"\x8f"


def head(block: bytes, *flags: str) -> HeadersFrame:
    return HeadersFrame(1, block, flags=["END_HEADERS", *flags])


def passed(frames: Iterable[Frame | bytes], limits: FrameLimits | None = None, *, now_at: int = NOW_AT) -> bytes:
    """Return what a new connection with these frames passes on, all of which arrive at once."""
    content = b"".join(frame if isinstance(frame, bytes) else frame.serialize() for frame in frames)
    if limits is None:
        return b"".join(FrameLimits().passed(PREFACE + content, now_at))
    return b"".join(limits.passed(content, now_at))


def connection() -> bytes:
    """Return what a client of h2 sends in a connection with twenty calls, two of which it resets."""
    client = H2Connection(H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    for stream in range(1, 41, 2):
        client.send_headers(stream, [*HEAD, ("grpc-timeout", f"{stream}S")], priority_weight=16)
        client.send_data(stream, b"x" * 3_000, end_stream=stream % 10 != 1, pad_length=stream)
    client.ping(b"12345678")
    client.reset_stream(1)
    client.reset_stream(11)
    return bytes(client.data_to_send())


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 10, 100, 1_000, 100_000])
def test_all_bytes_of_a_client_are_passed_on(size: int) -> None:
    """Wherever reads end, and in their order; at most a frame that has not arrived in full is held back."""
    content, limits = connection(), FrameLimits()
    parts = [passed([content[at : at + size]], limits) for at in range(0, len(content), size)]
    assert b"".join(parts) == content


def test_a_message_is_passed_on_as_it_arrives() -> None:
    """The head of its frame is enough: gRPC limits what it buffers of a message."""
    limits = FrameLimits()
    content = PREFACE + DataFrame(1, b"x" * 10_000).serialize()
    assert passed([content[:5_000]], limits) == content[:5_000]
    assert passed([content[5_000:]], limits) == content[5_000:]


def test_the_frames_of_a_large_message_are_not_counted() -> None:
    """A push of any size arrives, before its credential is known."""
    message = DataFrame(1, b"x" * MAX_FRAME_BYTES).serialize() * 2_000
    assert len(passed([message])) == len(PREFACE) + len(message)


def test_a_head_is_passed_on_when_it_is_known() -> None:
    """Of header fields that may be too large, gRPC gets nothing."""
    limits = FrameLimits()
    content = head(Encoder().encode(HEAD)).serialize()
    assert passed([PREFACE, content[:-1]], limits) == PREFACE
    assert passed([content[-1:]], limits) == content


def test_without_a_credential_a_part_begins_with_each_call() -> None:
    """So that calls can be passed on one at a time; with a credential everything is one part."""
    call, message = head(Encoder().encode(HEAD)).serialize(), DataFrame(1, b"x" * 2_000).serialize()
    content = message + call + message + call
    limits = FrameLimits()
    assert limits.passed(PREFACE + content, NOW_AT) == [PREFACE + message, call + message, call]
    assert limits.passed(content[:-1], NOW_AT) == [message, call + message]
    limits.is_admitted = True
    assert limits.passed(content[-1:] + content, NOW_AT) == [call + content]


def stored_fields() -> list[Frame | bytes]:
    """Return a head that stores a field of 2 kB, and one that refers to it often enough for the limit."""
    encoder = Encoder()
    first = encoder.encode([*HEAD, ("x", "y" * 2_000)], huffman=False)
    return [head(first), head(encoder.encode(HEAD) + bytes([NEWEST[0]]) * 4)]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([head(Encoder().encode(HEAD) + NEWEST * 12_000)], "too large header fields"),
        ([head(Encoder().encode(HEAD) + STATIC * 12_000)], "too large header fields"),
        ([head(Encoder().encode(HEAD) + b"\x20" * 12_000)], "too large header fields"),
        ([head(Encoder().encode([*HEAD, ("x", "y" * MAX_FIELDS_BYTES)], huffman=False))], "too large header fields"),
        ([head(Encoder().encode([*HEAD, ("x", "0" * 9_000)], huffman=True))], "too large header fields"),
        (stored_fields(), "too large header fields"),
        ([HeadersFrame(1, Encoder().encode(HEAD))], "header fields in more than one frame"),
        ([ContinuationFrame(1, b"", flags=["END_HEADERS"])], "header fields in more than one frame"),
        ([head(b"\x00" * MAX_FRAME_BYTES + b"\x00")], "too large a frame"),
        ([DataFrame(1, b"x" * (MAX_FRAME_BYTES + 1))], "too large a frame"),
        ([head(NEWEST)], "malformed header fields"),
        ([head(b"\x00\x05x")], "malformed header fields"),
        ([head(b"\xff\xff\xff\xff\xff\xff\xff")], "malformed header fields"),
    ],
)
def test_header_fields_are_limited(frames: Sequence[Frame | bytes], reason: str) -> None:
    """By the size that they have for gRPC, however few bytes they are, and also with a credential."""
    for is_admitted in (False, True):
        limits = FrameLimits()
        limits.passed(PREFACE, NOW_AT)
        limits.is_admitted = is_admitted
        with pytest.raises(LimitError, match=reason):
            passed(frames, limits)


def calls(ends: str, count: int = 1) -> list[Frame | bytes]:
    """Return calls on streams of their own whose request is complete with `head` or `message`, or is `reset`."""
    frames: list[Frame | bytes] = []
    for stream in range(1, 2 * count, 2):
        is_head = ends == "head"
        frames.append(HeadersFrame(stream, STATIC, flags=["END_HEADERS", *(["END_STREAM"] if is_head else [])]))
        if ends == "message":
            frames += [DataFrame(stream, b"x" * 2_000), DataFrame(stream, b"", flags=["END_STREAM"])]
        elif ends == "reset":
            frames.append(RstStreamFrame(stream, error_code=8))
        elif ends == "another message":
            frames.append(DataFrame(2 * count + 1, b"", flags=["END_STREAM"]))
    return frames


@pytest.mark.parametrize("ends", ["head", "message", "reset", "another message", "never"])
def test_requests_that_do_not_arrive_are_limited(ends: str) -> None:
    """Until there is a credential; requests that are complete, or were reset, do not count."""
    limits, admitted = FrameLimits(), FrameLimits()
    for one in (limits, admitted):
        one.passed(PREFACE, NOW_AT)
    passed(calls(ends, MAX_ARRIVING), limits)
    assert limits.has_request is (ends in ("head", "message"))
    if ends in ("never", "another message"):
        with pytest.raises(LimitError, match="do not arrive"):
            passed([HeadersFrame(1_001, STATIC, flags=["END_HEADERS"])], limits)
    else:
        passed([HeadersFrame(1_001, STATIC, flags=["END_HEADERS"])], limits)
    admitted.is_admitted = True
    passed(calls(ends, 3 * MAX_ARRIVING), admitted)


@pytest.mark.parametrize("size", [1, 5, 9, 100, 100_000])
def test_answered_requests_do_not_count(size: int) -> None:
    """Whatever the answer is, and wherever reads of it end: the client sends nothing more of such a request."""
    limits = FrameLimits()
    limits.passed(PREFACE, NOW_AT)
    for _ in range(5):
        passed(calls("never", MAX_ARRIVING), limits)
        streams = range(1, 2 * MAX_ARRIVING, 2)
        answers: list[Frame] = [SettingsFrame(0), PingFrame(0, b"12345678")]
        for number, stream in enumerate(streams):
            if number % 2:
                answers.append(RstStreamFrame(stream, error_code=7))
            else:
                trailers = HeadersFrame(stream, STATIC, flags=["END_HEADERS", "END_STREAM"])
                answers += [DataFrame(stream, b"x" * 300), trailers]
        content = b"".join(frame.serialize() for frame in answers)
        for at in range(0, len(content), size):
            limits.note_answer(content[at : at + size])


@pytest.mark.parametrize("flags", [[], ["PADDED"], ["PRIORITY"], ["PADDED", "PRIORITY"]])
def test_padding_and_priority_are_not_header_fields(flags: list[str]) -> None:
    """They are skipped, in every combination; what is between them is measured."""
    block = Encoder().encode(HEAD)
    for content, is_refused in ((block, False), (block + STATIC * 200, True)):
        frame = head(content, *flags)
        frame.pad_length = 9 if "PADDED" in flags else 0
        if is_refused:
            with pytest.raises(LimitError):
                passed([frame])
        else:
            assert passed([frame]) == PREFACE + frame.serialize()


@pytest.mark.parametrize(
    ("frame", "at_once", "per_second"),
    [
        (RstStreamFrame(1, error_code=8), 20, 1),
        (head(b""), 200, 100),
        (PingFrame(0, b"12345678"), 1_000, 200),
        (SettingsFrame(0), 1_000, 200),
        (WindowUpdateFrame(0, window_increment=1), 1_000, 200),
        (DataFrame(1, b""), 1_000, 200),
    ],
)
def test_frames_without_a_credential_are_counted(frame: Frame, at_once: int, per_second: int) -> None:
    """A burst, and then a rate by their type; with a credential they are not counted."""
    limits = FrameLimits()
    limits.passed(PREFACE, NOW_AT)
    passed([frame] * at_once, limits)
    passed([frame] * per_second, limits, now_at=NOW_AT + SECOND_US)
    with pytest.raises(LimitError, match="too many frames"):
        passed([frame], limits, now_at=NOW_AT + SECOND_US)
    admitted = FrameLimits()
    admitted.is_admitted = True
    admitted.passed(PREFACE, NOW_AT)
    passed([frame] * 10 * at_once, admitted)
