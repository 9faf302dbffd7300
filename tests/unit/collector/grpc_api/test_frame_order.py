"""What limits of frames pass on, for random frames, reads, answers and instants of admission."""

from collections.abc import Sequence

from hyperframe.frame import DataFrame, Frame, HeadersFrame, RstStreamFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.grpc_api.frame_limits import MAX_FRAME_BYTES, FrameLimits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NOW_AT = 10**15
# Of the static table.
STATIC = b"\x8f"
WAITING_BYTES = (14 << 10) + MAX_FRAME_BYTES


def message(size: int) -> bytes:
    """Return a message of gRPC of this size in all."""
    return b"\x00" + (size - 5).to_bytes(4, "big") + b"x" * (size - 5)


STREAMS = (1, 3, 5, 7)
# Of a frame: its stream, its type, and how much of its messages a frame of data has; and after it, what happens.
STEPS = st.tuples(
    st.sampled_from(STREAMS),
    st.sampled_from(["head", "last head", "data", "data", "data", "last data", "reset"]),
    st.integers(0, 6) | st.integers(0, 6_000),
)
EVENTS = st.tuples(
    st.integers(1, 9_000) | st.just(60_000), st.sampled_from(["nothing", "nothing", "answer", "admission"])
)


def frames_of(steps: Sequence[tuple[int, str, int]], messages: Sequence[int]) -> bytes:
    """Return frames of streams, each of which has these messages from its beginning on."""
    content, left = bytearray(), dict.fromkeys(STREAMS, b"".join(map(message, messages)))
    for stream, kind, size in steps:
        flags = ["END_STREAM"] if kind.startswith("last") else []
        if kind == "reset":
            frame: Frame = RstStreamFrame(stream, error_code=8)
        elif kind.endswith("head"):
            frame = HeadersFrame(stream, STATIC, flags=["END_HEADERS", *flags])
        else:
            frame = DataFrame(stream, left[stream][:size], flags=flags)
            left[stream] = left[stream][size:]
        content += frame.serialize()
    return bytes(content)


class Server:
    """A server of HTTP/2, which reads no more than it is given."""

    def __init__(self) -> None:
        self.content = b""
        # By stream; the messages so far.
        self.calls: dict[int, bytes] = {}
        self.closed = set[int]()

    def receive(self, content: bytes) -> None:
        self.content += content
        self.content = self.content.removeprefix(PREFACE)
        if PREFACE.startswith(self.content):
            return
        while len(self.content) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(self.content[:9]))
            if len(self.content) < 9 + length:
                return
            if isinstance(frame, HeadersFrame) and frame.stream_id not in self.closed:
                self.calls.setdefault(frame.stream_id, b"")
            if isinstance(frame, DataFrame) and frame.stream_id in self.calls:
                self.calls[frame.stream_id] += self.content[9 : 9 + length]
            if isinstance(frame, RstStreamFrame) or "END_STREAM" in frame.flags:
                self.close(frame.stream_id)
            self.content = self.content[9 + length :]

    def close(self, stream: int) -> None:
        self.closed |= {stream} & {*self.calls}
        self.calls.pop(stream, None)

    def incomplete(self) -> list[int]:
        return [stream for stream, content in self.calls.items() if not self._is_whole(content)]

    @staticmethod
    def _is_whole(content: bytes) -> bool:
        at = 0
        while len(content) - at >= 5:
            at += 5 + int.from_bytes(content[at + 1 : at + 5], "big")
        return at == len(content) > 0


@given(
    opened=st.lists(st.sampled_from(STREAMS), unique=True),
    steps=st.lists(STEPS, max_size=18),
    messages=st.lists(st.integers(5, 20_000), min_size=4, max_size=4),
    events=st.lists(EVENTS, max_size=60),
)
@settings(max_examples=400, deadline=None)
def test_what_is_passed_on_is_what_was_sent(
    opened: Sequence[int],
    steps: Sequence[tuple[int, str, int]],
    messages: Sequence[int],
    events: Sequence[tuple[int, str]],
) -> None:
    """In its order, wherever reads end and whenever calls are answered; with a credential all of it, and without one
    the server never has two incomplete requests, and little waits unless it has one.
    """
    content = PREFACE + frames_of([*((stream, "head", 0) for stream in opened), *steps], messages)
    limits, server, got, at = FrameLimits(), Server(), b"", 0

    def read(size: int) -> None:
        nonlocal at, got
        parts = limits.passed(content[at : at + size], NOW_AT)
        at += size
        got += b"".join(parts)
        server.receive(b"".join(parts))
        assert content.startswith(got)
        assert limits.is_admitted or len(server.incomplete()) <= 1
        if limits.is_admitted:
            assert len(content[:at]) - len(got) < MAX_FRAME_BYTES
        elif not limits.is_held:
            assert len(content[:at]) - len(got) < WAITING_BYTES

    for size, event in events:
        if event == "answer" and server.calls:
            stream = min(server.incomplete(), default=min(server.calls))
            server.close(stream)
            limits.note_answer(RstStreamFrame(stream, error_code=8).serialize())
        limits.is_admitted |= event == "admission"
        read(0 if limits.is_held else size)
    limits.is_admitted = True
    read(len(content))
    assert got == content
