"""Faults: every name has its entry, and every entry does what its sentence says, byte for byte."""

import json
from dataclasses import dataclass
from typing import Any

import h11
import pytest

from isochrone_sim.dialects import DIALECTS, ResponseMetadata
from isochrone_sim.faults import FAULTS, fault_models
from isochrone_sim.requests import Request, RequestParameters
from isochrone_sim.response import Timeline, timeline
from isochrone_sim.script import Channel, Ending
from isochrone_sim.server.service import Arrival, Service
from isochrone_sim.settings import gather_world

CHAT = DIALECTS["openai-chat"]
WORLD = gather_world(None, faults=True)
BROKEN = ["401", "403", "404", "429", "500", "503", "html", "silence", "headers-only", "stall", "cut", "reset"]
BROKEN += ["truncated", "in-band-error", "in-band-error-first", "garbage", "invalid-utf8", "huge-line", "role-only"]
BROKEN += ["after-end", "flood", "endless-comments"]
FINE = [
    "none",
    "crlf",
    "cr",
    "comments",
    "bundled-first",
    "one-chunk",
    "null-content",
    "split-code-points",
    "tool-call",
]
FINE += ["byte-by-byte", "no-usage", "no-done", "usage-in-choice", "absurd-usage", "reasoning"]
FINE += ["slow-headers"]
WHOLE = [*FINE, "after-end", "garbage", "invalid-utf8", "huge-line"]


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What a client makes of a response; `chunks` are the JSON data lines that parse."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    data: list[bytes]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """Every JSON data line."""
        return [json.loads(line) for line in self.data if line.startswith(b"{") and line.endswith(b"}")]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        """Every choice's delta."""
        return [choice["delta"] for chunk in self.chunks for choice in chunk.get("choices", ())]

    @property
    def content(self) -> list[str]:
        """Every piece of the answer's text."""
        return [delta["content"] for delta in self.deltas if delta.get("content")]

    @property
    def usages(self) -> list[dict[str, Any]]:
        """Every usage stated."""
        return [chunk["usage"] for chunk in self.chunks if chunk.get("usage")]

    @property
    def finished(self) -> list[str]:
        """Every finish reason."""
        return [c["finish_reason"] for chunk in self.chunks for c in chunk.get("choices", ()) if c["finish_reason"]]


def played(fault: str, *, usage: bool = True, stream: bool = True) -> Timeline:
    parameters = RequestParameters(model=f"fault-{fault}", stream=stream, include_usage=usage, prompt_tokens=9)
    metadata = ResponseMetadata(request_id="req_1", model=parameters.model, created_at=1_779_235_200_000_000)
    model = WORLD.models[parameters.model]
    return timeline(model, WORLD, parameters, metadata, dialect=CHAT, region="us-east-2", content=b"{}")


def heard(fault: str, *, usage: bool = True, stream: bool = True) -> Heard:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(b"".join(frame.data for frame in played(fault, usage=usage, stream=stream).frames))
    response, body, complete = None, b"", False
    while (event := client.next_event()) is not h11.NEED_DATA:
        if isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            complete = True
            break
    assert response is not None
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return Heard(
        status=response.status_code,
        headers={name.decode(): value.decode() for name, value in response.headers},
        body=body,
        complete=complete,
        data=[line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")],
    )


def tokens(of: Timeline, channel: Channel | None = None) -> int:
    return sum(count for frame in of.frames for where, count in frame.token_counts if channel in (None, where))


def test_every_fault_is_in_the_table() -> None:
    """The names that plans and tests use are there, each with a sentence and a model."""
    assert {name for name, fault in FAULTS.items() if fault.fine} == set(FINE)
    assert {name for name, fault in FAULTS.items() if not fault.fine} == set(BROKEN)
    assert [model.id for model in fault_models()] == [f"fault-{name}" for name in FAULTS]
    assert all(fault.name == name and fault.sentence.endswith(".") for name, fault in FAULTS.items())


@pytest.mark.parametrize("name", WHOLE)
def test_all_tokens_come(name: str) -> None:
    """Where the stream is not cut short, all forty tokens come, and the response is complete."""
    timeline = played(name)
    assert tokens(timeline) == 40
    assert (timeline.ending, heard(name).complete) == (Ending.KEEP_ALIVE, True)


@pytest.mark.parametrize("name", sorted({*WHOLE} - {"slow-headers", "one-chunk"}))
def test_the_first_token_is_planned_for_its_time(name: str) -> None:
    """None of them moves the time to first token of about 50 ms."""
    assert played(name).ttft_us == pytest.approx(50_000, abs=6_000)


@pytest.mark.parametrize("name", ["401", "403", "404", "429", "500", "503"])
def test_error_responses(name: str) -> None:
    """An error response has its status and OpenAI's shape, streamed or not."""
    for stream in (True, False):
        answer = heard(name, stream=stream)
        assert (answer.status, answer.complete) == (int(name), True)
        assert set(json.loads(answer.body)["error"]) == {"message", "type", "param", "code"}
    assert played(name).status == int(name)


def test_429_says_when_to_come_back() -> None:
    """A throttled request is told how long to wait, and that nothing is left, by a service that counts."""
    body = json.dumps({"model": "fault-429", "messages": [{"content": "Hi"}]}).encode()
    arrival = Arrival(region="us-east-2", at_ns=0, at=0, request_id="req_1")
    reply = Service(WORLD).answer(Request(method="POST", path="/v1/chat/completions", body=body), arrival)
    head = reply.timeline.frames[0].data.decode()
    for line in ("retry-after: 2", "retry-after-ms: 2000", "x-ratelimit-remaining-requests: 0"):
        assert f"\r\n{line}\r\n" in head
    assert "\r\nx-ratelimit-reset-requests: 2s\r\n" in head


def test_html_is_a_page() -> None:
    """Status 200, text/html, and nothing to parse."""
    answer = heard("html")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.body.startswith(b"<!doctype html>")


@pytest.mark.parametrize("stream", [True, False])
def test_silence_says_nothing(stream: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """Not a byte, and the connection is left open."""
    timeline = played("silence", stream=stream)
    assert (timeline.frames, timeline.ending, timeline.ttft_us) == ((), Ending.HANG, None)


def test_headers_only() -> None:
    """A head without a body, and the connection is left open."""
    answer = heard("headers-only")
    assert (answer.status, answer.body, answer.complete) == (200, b"", False)
    assert played("headers-only").ending is Ending.HANG


@pytest.mark.parametrize(
    ("name", "ending", "complete"),
    [
        ("stall", Ending.HANG, False),
        ("cut", Ending.CLOSE, False),
        ("reset", Ending.RESET, False),
        ("truncated", Ending.KEEP_ALIVE, True),
    ],
)
def test_five_tokens_and_no_end(name: str, ending: Ending, complete: bool) -> None:  # noqa: FBT001  # as above
    """Five tokens, then no finish reason and no end marker, and the connection as the name says."""
    answer, timeline = heard(name), played(name)
    assert (len(answer.content), answer.finished, b"[DONE]" in answer.body) == (5, [], False)
    assert (timeline.ending, answer.complete, tokens(timeline)) == (ending, complete, 5)


def test_errors_in_band() -> None:
    """After five tokens, or in place of the first, an error event; in the one case even an end marker follows."""
    later, first = heard("in-band-error"), heard("in-band-error-first")
    assert (len(later.content), len(first.content)) == (5, 0)
    assert [("error" in chunk) for chunk in later.chunks[-2:]] == [False, True]
    assert "error" in first.chunks[-1]
    assert (later.data[-1], b"[DONE]" in first.body) == (b"[DONE]", False)


def test_garbage_is_not_json() -> None:
    """Between good chunks stands a data line that does not parse."""
    bad = [line for line in heard("garbage").data if not line.endswith(b"}") and line != b"[DONE]"]
    assert len(bad) == 1
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(bad[0])


def test_invalid_utf8_is_not_utf8() -> None:
    """One delta holds bytes that no decoder takes, and only one."""
    bad = [line for line in heard("invalid-utf8").data if not decodes(line)]
    assert len(bad) == 1
    assert b"\xff\xfe" in bad[0]


def test_a_huge_line() -> None:
    """One data line of ten megabytes."""
    assert max(map(len, heard("huge-line").data)) > 10_000_000


def test_role_only() -> None:
    """Role and finish, no token anywhere, and nothing planned."""
    answer = heard("role-only")
    assert (answer.content, answer.finished, played("role-only").ttft_us) == ([], ["stop"], None)
    assert answer.usages[0]["completion_tokens"] == 0


@pytest.mark.parametrize(("name", "newline"), [("crlf", b"\r\n"), ("cr", b"\r")])
def test_line_ends(name: str, newline: bytes) -> None:
    """Every line ends in this way and no other."""
    body = heard(name).body
    assert body.endswith(newline * 2)
    assert body.replace(newline, b"").translate(None, b"\r\n") == body.replace(newline, b"")


def test_comments_say_nothing() -> None:
    """Comments stand before the first token and later, and the rest is as without them."""
    body = heard("comments").body
    assert body.index(b": keep-alive") < body.index(b'"content":"', body.index(b'"role"') + 40)
    assert body.count(b": keep-alive\n\n") > 5
    assert len(heard("comments").content) == 40


def test_the_bundled_first_chunk() -> None:
    """Five tokens in the first chunk, and the rate of the rest is the model's."""
    answer, timeline = heard("bundled-first"), played("bundled-first")
    assert (len(answer.content), len(answer.content[0].split())) == (36, 5)
    said = [frame for frame in timeline.frames if frame.token_counts]
    span_ns = said[-1].offset_ns - said[0].offset_ns
    assert 35 / (span_ns / 1e9) == pytest.approx(200, rel=0.05)


def test_one_chunk() -> None:
    """All tokens in one delta, when the last would have come."""
    assert len(heard("one-chunk").content) == 1
    assert played("one-chunk").ttft_us == pytest.approx(50_000 + 39 * 5_000, abs=6_000)


def test_null_and_empty_deltas_come_first() -> None:
    """A null and an empty delta stand between role and first token, and carry none."""
    deltas = heard("null-content").deltas
    assert deltas[1:3] == [{"content": None}, {"content": ""}]
    assert played("null-content").frames[1].token_counts == played("null-content").frames[2].token_counts == ()


def test_writes_cut_inside_characters() -> None:
    """Every token comes in two writes, of which neither is UTF-8 by itself; the second is on time."""
    frames = played("split-code-points").frames
    said = [number for number, frame in enumerate(frames) if frame.token_counts]
    assert not any(decodes(frames[number].data) for number in said)
    assert not any(decodes(frames[number - 1].data) for number in said)
    assert decodes(heard("split-code-points").body)
    assert frames[said[0]].offset_ns == frames[said[0] - 1].offset_ns + 300_000


def test_writes_of_one_byte() -> None:
    """The first five events come byte by byte; the token is complete with the last of them."""
    frames = played("byte-by-byte").frames
    ones = [frame for frame in frames if len(frame.data) == 1]
    assert len(ones) > 5 * 200
    assert [len(frame.token_counts) for frame in ones if frame.token_counts] == [1] * 5


@pytest.mark.parametrize(
    ("name", "usages", "done"),
    [("none", 1, True), ("no-usage", 0, True), ("no-done", 1, False), ("usage-in-choice", 1, False)],
)
def test_endings_that_are_fine(name: str, usages: int, done: bool) -> None:  # noqa: FBT001  # as above
    """A finish reason is there in any case; usage and end marker as the name says."""
    answer = heard(name)
    assert (answer.finished, len(answer.usages), answer.data[-1] == b"[DONE]") == (["stop"], usages, done)


def test_usage_in_the_last_choice() -> None:
    """Usage stands beside the finish reason, even when nobody parameters."""
    last = heard("usage-in-choice", usage=False).chunks[-1]
    assert (last["choices"][0]["finish_reason"], last["usage"]["completion_tokens"]) == ("stop", 40)


def test_absurd_usage() -> None:
    """Counts that no client may believe."""
    usage = heard("absurd-usage").usages[0]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (-1, 10**12)


def test_after_the_end() -> None:
    """A delta behind the end marker counts no token."""
    answer = heard("after-end")
    assert (answer.data[-2], json.loads(answer.data[-1])["choices"][0]["delta"]) == (b"[DONE]", {"content": " and"})
    assert tokens(played("after-end")) == 40


def test_reasoning_first() -> None:
    """A quarter of the tokens is reasoning and comes first; usage says so."""
    timeline, answer = played("reasoning"), heard("reasoning")
    assert (tokens(timeline, Channel.REASONING), tokens(timeline, Channel.ANSWER)) == (10, 30)
    assert ["reasoning_content" in delta for delta in answer.deltas[1:41]] == [True] * 10 + [False] * 30
    assert answer.usages[0]["completion_tokens_details"]["reasoning_tokens"] == 10


def test_a_tool_call_in_pieces() -> None:
    """The first token names the tool; the pieces of the arguments join to JSON."""
    calls = [delta["tool_calls"][0] for delta in heard("tool-call").deltas if "tool_calls" in delta]
    assert calls[0]["function"]["name"] == "look_up"
    assert set(json.loads("".join(call["function"]["arguments"] for call in calls))) == {"query"}
    assert (heard("tool-call").finished, tokens(played("tool-call"), Channel.TOOL)) == (["tool_calls"], 40)


def test_slow_headers() -> None:
    """Nothing at all for a second and a half."""
    assert played("slow-headers").frames[0].offset_ns > 1_500_000_000


@pytest.mark.parametrize("name", ["stall", "cut", "reset"])
def test_half_a_body_without_stream(name: str) -> None:
    """What breaks a stream off breaks a whole answer off in its middle."""
    answer = heard(name, stream=False)
    assert (answer.complete, tokens(played(name, stream=False))) == (False, 0)


def decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
