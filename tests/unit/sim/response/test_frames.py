"""Frames: HTTP and SSE around the steps, one write per token, and nothing lost by cutting."""

from isochrone_sim.dialects import DIALECTS, ResponseMetadata
from isochrone_sim.requests import RequestParameters
from isochrone_sim.response import LAST_CHUNK, STREAM, body_frames, chunk, complete_response, head, stream_frames
from isochrone_sim.script import Channel, Cut, Ending, Kind, Script, Step, Style, Usage

USAGE = Usage(prompt_tokens=1, output_tokens=2)
RENDERER = DIALECTS["openai-chat"].renderer(
    RequestParameters(model="m"), ResponseMetadata(request_id="req_1", model="m", created_at=0), USAGE
)
STEPS = (
    Step(10, Kind.ROLE),
    Step(1_000_000, Kind.TOKENS, "é", 1, Channel.REASONING),
    Step(2_000_000, Kind.TOKENS, " b", 1),
    Step(2_200_000, Kind.FINISH, "stop"),
    Step(2_200_000, Kind.DONE),
)
SCRIPT = Script(head_ns=10, steps=STEPS, usage=USAGE)


def script(*, cut: Cut = Cut.WHOLE, ending: Ending = Ending.KEEP_ALIVE, steps: tuple[Step, ...] = STEPS) -> Script:
    return Script(head_ns=10, steps=steps, usage=USAGE, style=Style(cut=cut), ending=ending)


def test_one_write_per_token() -> None:
    """Head and role are one write, every token is one, and the rest is one."""
    frames = stream_frames(SCRIPT, RENDERER, head=b"HEAD")
    assert [frame.offset_ns for frame in frames] == [10, 1_000_000, 2_000_000, 2_200_000]
    assert [frame.token_counts for frame in frames] == [(), ((Channel.REASONING, 1),), ((Channel.ANSWER, 1),), ()]
    assert frames[0].data.startswith(b"HEAD")
    assert frames[-1].data.endswith(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)


def test_cutting_loses_nothing() -> None:
    """However writes are cut, the bytes are the same, and so are the instants at which tokens are complete."""
    whole = stream_frames(SCRIPT, RENDERER, head=b"HEAD")
    for cut in Cut:
        frames = stream_frames(script(cut=cut), RENDERER, head=b"HEAD")
        assert b"".join(frame.data for frame in frames) == b"".join(frame.data for frame in whole)
        assert [f[::2] for f in frames if f.token_counts] == [f[::2] for f in whole if f.token_counts]


def test_a_broken_connection_gives_the_last_token_time() -> None:
    """The connection is closed five milliseconds after the last token, without a last chunk."""
    frames = stream_frames(script(ending=Ending.CLOSE, steps=STEPS[:3]), RENDERER, head=b"HEAD")
    assert (frames[-1].offset_ns, frames[-1].data) == (7_000_000, b"")
    assert not any(LAST_CHUNK in frame.data for frame in frames)


def test_an_answer_that_is_not_streamed_comes_at_once() -> None:
    """With the last step, all tokens in it, each in its channel."""
    (frame,) = body_frames(SCRIPT, b"BODY")
    assert (frame.offset_ns, frame.data) == (2_200_000, b"BODY")
    assert dict(frame.token_counts) == {Channel.REASONING: 1, Channel.ANSWER: 1}


def test_half_an_answer_counts_no_token() -> None:
    """A body cut in half carries no token, and then the connection goes."""
    half, end = body_frames(script(ending=Ending.RESET), b"BODY")
    assert (half.data, half.token_counts, end.data) == (b"BO", (), b"")


def test_heads_are_http() -> None:
    """Status line, date and headers end in a blank line; a complete_response says its length."""
    assert head(200, STREAM, at=0).split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"server: isochrone-sim",
        b"date: Thu, 01 Jan 1970 00:00:00 GMT",
        b"content-type: text/event-stream; charset=utf-8",
        b"cache-control: no-cache",
        b"transfer-encoding: chunked",
        b"",
        b"",
    ]
    assert b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}" in complete_response(404, b"{}", {}, at=0)


def test_chunks_say_their_length_in_hex() -> None:
    """As RFC 9112 wants it."""
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
