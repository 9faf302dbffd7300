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


def message(size: int) -> bytes:
    """Return a message of gRPC of this size in all."""
    return b"\x00" + (size - 5).to_bytes(4, "big") + b"x" * (size - 5)


def connection() -> bytes:
    """Return what a client of h2 sends in a connection with twenty calls, two of which it resets."""
    client = H2Connection(H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    for stream in range(1, 41, 2):
        client.send_headers(stream, [*HEAD, ("grpc-timeout", f"{stream}S")], priority_weight=16)
        client.send_data(stream, message(3_000), end_stream=stream % 10 != 1)
    client.ping(b"12345678")
    client.reset_stream(1)
    client.reset_stream(11)
    return bytes(client.data_to_send())


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 10, 100, 1_000, 100_000])
def test_all_bytes_of_a_client_are_passed_on(size: int) -> None:
    """Wherever reads end, and in their order; only a request that has not arrived in full is held back."""
    content, limits = connection(), FrameLimits()
    parts = [passed([content[at : at + size]], limits) for at in range(0, len(content), size)]
    assert b"".join(parts) == content


def test_a_message_with_a_credential_is_passed_on_as_it_arrives() -> None:
    """The head of its frame is enough: gRPC limits what it buffers of a message."""
    limits = FrameLimits()
    limits.is_admitted = True
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
    content = head(Encoder().encode(HEAD), "END_STREAM").serialize()
    assert passed([PREFACE, content[:-1]], limits) == PREFACE
    assert passed([content[-1:]], limits) == content


def test_without_a_credential_a_part_begins_with_each_call() -> None:
    """So that calls can be passed on one at a time; with a credential everything is one part, and nothing waits."""
    calls = [call_of(stream, "message") for stream in (1, 3, 5)]
    call = call_of(7, "never")
    limits = FrameLimits()
    assert limits.passed(PREFACE + b"".join([*calls, call]), NOW_AT) == [PREFACE, *calls]
    assert limits.passed(call_of(9, "message")[:-1], NOW_AT) == []
    limits.is_admitted = True
    assert passed([], limits) == call + call_of(9, "message")[:-1]
    assert limits.passed(b"x" + call, NOW_AT) == [b"x" + call]


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
        # gRPC would read the length of the padding, and the padding, as fields.
        ([head(Encoder().encode(HEAD), "PADDED")], "padded header fields"),
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


def call_of(stream: int, ends: str) -> bytes:
    """Return a call whose request is complete with its head, a message, or the end of the stream, or not at all."""
    flags = ["END_HEADERS", *(["END_STREAM"] if ends == "head" else [])]
    frames: list[Frame] = [HeadersFrame(stream, STATIC, flags=flags)]
    if ends in ("message", "prefix first", "prefix in two"):
        content = message(2_000)
        at = {"message": 0, "prefix first": 5, "prefix in two": 3}[ends]
        frames += [DataFrame(stream, content[:at]), DataFrame(stream, content[at:])]
    elif ends == "part of a prefix":
        # Together they are the prefix of a large message; the second one alone is that of an empty one.
        frames += [DataFrame(stream, message(1 << 20)[:4]), DataFrame(stream, bytes(5))]
    elif ends == "second message":
        frames.append(DataFrame(stream, message(100) + message(2_000)[:1_000]))
    elif ends == "end":
        frames += [DataFrame(stream, b""), DataFrame(stream, message(10)[:3], flags=["END_STREAM"])]
    elif ends == "reset":
        frames.append(RstStreamFrame(stream, error_code=8))
    elif ends == "message of another":
        frames.append(DataFrame(stream + 2, message(2_000)))
    return b"".join(frame.serialize() for frame in frames)


@pytest.mark.parametrize(
    ("ends", "is_complete"),
    [
        ("head", True),
        ("message", True),
        ("prefix first", True),
        ("prefix in two", True),
        ("part of a prefix", False),
        ("second message", False),
        ("end", True),
        ("reset", False),
        ("message of another", False),
        ("never", False),
    ],
)
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_request_is_passed_on_with_its_message(ends: str, size: int, *, is_complete: bool) -> None:
    """In its turn, wherever reads end; one that was reset is passed on, too."""
    content, limits = call_of(1, ends), FrameLimits()
    limits.passed(PREFACE, NOW_AT)
    parts = [passed([content[at : at + size]], limits) for at in range(0, len(content), size)]
    assert limits.has_request is is_complete
    next_call = call_of(5, "head")
    if is_complete or ends == "reset":
        assert parts[-1] == content
        assert passed([next_call], limits) == next_call
    else:
        assert passed([next_call], limits) == b"".join(parts) == b""
    assert not limits.is_held


@pytest.mark.parametrize("answer", [RstStreamFrame(1, error_code=7), head(STATIC, "END_STREAM")])
@pytest.mark.parametrize("size", [1, 9, 100_000])
def test_the_beginning_of_a_large_request_is_passed_on(answer: Frame, size: int) -> None:
    """Then nothing more before the server answers, wherever reads of that end: it may refuse the call by its head."""
    begun, limits = HeadersFrame(1, STATIC, flags=["END_HEADERS"]).serialize(), FrameLimits()
    begun += DataFrame(1, message(50_000)[:MAX_FRAME_BYTES]).serialize()
    other = call_of(3, "message")
    limits.passed(PREFACE, NOW_AT)
    assert passed([begun, other], limits) == begun
    states = [limits.is_held]
    before: list[Frame] = [SettingsFrame(0), PingFrame(0, b"12345678"), DataFrame(1, b"x" * 300)]
    for content in (b"".join(frame.serialize() for frame in before), answer.serialize()):
        for at in range(0, len(content), size):
            limits.note_answer(content[at : at + size])
        states.append(limits.is_held)
    assert states == [True, True, False]
    assert passed([], limits) == other


@pytest.mark.parametrize(("fields", "is_refused"), [(b"", False), (STATIC * 200, True)])
def test_a_priority_is_not_a_header_field(fields: bytes, *, is_refused: bool) -> None:
    """It is skipped, and what follows is measured."""
    frame = head(Encoder().encode(HEAD) + fields, "END_STREAM", "PRIORITY")
    if is_refused:
        with pytest.raises(LimitError):
            passed([frame])
    else:
        assert passed([frame]) == PREFACE + frame.serialize()


@pytest.mark.parametrize("later", [b"", message(20_000)[:15_000]])
def test_requests_wait_for_those_that_are_mixed_with_them(later: bytes) -> None:
    """A message that is complete reaches gRPC only with its end; if that is behind one that is not, it waits, too."""
    heads = [HeadersFrame(stream, STATIC, flags=["END_HEADERS"]).serialize() for stream in (1, 3, 5, 7)]
    ends = [DataFrame(stream, b"", flags=["END_STREAM"]).serialize() for stream in (1, 3, 5)]
    limits = FrameLimits()
    limits.passed(PREFACE, NOW_AT)
    rest = b"".join(DataFrame(7, part).serialize() for part in (later,) if part)
    content = b"".join([*heads, *ends, rest])
    assert limits.passed(content, NOW_AT) == heads[: len(later) > 0]
    limits.note_answer(RstStreamFrame(1, error_code=7).serialize())
    limits.note_answer(RstStreamFrame(7, error_code=7).serialize())
    limits.is_admitted = not later
    assert b"".join(limits.passed(b"", NOW_AT)) == content[len(heads[0]) * (len(later) > 0) :]


def test_later_messages_wait_for_their_end_too() -> None:
    """As do those of a stream whose number has the bit that is ignored."""
    limits, begun = FrameLimits(), DataFrame(1, message(2_000)[:1_000]).serialize()
    limits.passed(PREFACE + call_of(1, "message"), NOW_AT)
    content = begun[:5] + b"\x80" + begun[6:]
    assert limits.passed(content, NOW_AT) == []
    end = DataFrame(1, b"x" * 1_000).serialize()
    assert b"".join(limits.passed(end, NOW_AT)) == content + end
    assert limits.passed(begun + call_of(3, "message"), NOW_AT) == []
    assert limits.note_answer(RstStreamFrame(1, error_code=7).serialize())
    assert limits.passed(b"", NOW_AT) == [begun, call_of(3, "message")]


def test_messages_without_a_credential_are_small() -> None:
    """Those of a call that is not answered are at most a frame in all; nothing more is read before the answer."""
    limits = FrameLimits()
    limits.passed(PREFACE, NOW_AT)
    frame = DataFrame(1, message(8_000)).serialize()
    assert passed([HeadersFrame(1, STATIC, flags=["END_HEADERS"]), frame, frame], limits).endswith(frame * 2)
    assert [passed([frame], limits), limits.is_held] == [b"", False]
    assert [passed([frame], limits), limits.is_held] == [frame * 2, True]


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
