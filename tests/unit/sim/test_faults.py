"""Faults as bytes, beyond the contract in `dialects/test_dialects.py`. Streams are those of openai-chat."""

import json
from typing import Any

import pytest

from isochrone_sim.faults import FAULTS, fault_models
from isochrone_sim.requests import Request
from isochrone_sim.response import Timeline
from isochrone_sim.script import Channel, Ending
from isochrone_sim.server.service import Service
from unit.sim.stream_reader import ARRIVAL, WORLD, ReadResponse, read, reply_to, response_to

BROKEN = ["401", "403", "404", "429", "500", "503", "html", "silence", "headers-only", "stall", "cut", "reset"]
BROKEN += ["truncated", "in-band-error", "in-band-error-first", "huge-line", "role-only", "flood", "endless-comments"]
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
    "empty-data",
    *("after-end", "garbage", "invalid-utf8"),
]
FINE += ["byte-by-byte", "no-usage", "no-done", "usage-in-choice", "absurd-usage", "reasoning", "slow-headers"]
WHOLE = {*FINE, "huge-line"}


def played(fault: str, *, stream: bool = True) -> Timeline:
    return reply_to("openai-chat", f"fault-{fault}", stream=stream).timeline


def answered(fault: str, *, stream: bool = True) -> ReadResponse:
    return response_to("openai-chat", f"fault-{fault}", stream=stream)


def data(fault: str) -> list[bytes]:
    lines = answered(fault).body.split(b"\n")
    return [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]


def deltas(fault: str) -> list[dict[str, Any]]:
    """The delta of every choice."""
    chunks = [json.loads(line) for line in data(fault) if line.startswith(b"{")]
    return [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]


def decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_every_fault_is_in_the_table() -> None:
    """The names that plans and tests use are there, each with a sentence and a model."""
    assert {name for name, fault in FAULTS.items() if fault.fine} == set(FINE)
    assert {name for name, fault in FAULTS.items() if not fault.fine} == set(BROKEN)
    assert [model.id for model in fault_models()] == [f"fault-{name}" for name in FAULTS]
    assert all(
        name in WORLD.models["fault-" + name].id and fault.sentence.endswith(".") for name, fault in FAULTS.items()
    )


@pytest.mark.parametrize("name", sorted(WHOLE - {"slow-headers", "one-chunk"}))
def test_the_first_token_is_planned_for_its_time(name: str) -> None:
    """None of them moves the time to first token of about 50 ms."""
    assert played(name).ttft_us == pytest.approx(50_000, abs=6_000)


def test_a_throttled_request_states_when_to_come_back() -> None:
    """A throttled request states the wait from a service that counts; a portal is status 200 and HTML."""
    headers = answered("429").headers
    wanted = {"retry-after": "2", "retry-after-ms": "2000", "x-ratelimit-remaining-requests": "0"}
    assert headers.items() >= (wanted | {"x-ratelimit-reset-requests": "2s"}).items()
    answer = answered("html")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.body.startswith(b"<!doctype html>")


@pytest.mark.parametrize("stream", [True, False])
def test_silence_sends_nothing(*, stream: bool) -> None:
    """Not a byte, streamed or not, and the connection is left open."""
    timeline = played("silence", stream=stream)
    assert (timeline.frames, timeline.ending, timeline.ttft_us) == ((), Ending.HANG, None)


def test_errors_in_band() -> None:
    """The error is the last event, and in the one case even an end marker follows."""
    later, first = data("in-band-error"), data("in-band-error-first")
    assert [b'"error"' in line for line in later[-3:]] == [False, True, False]
    assert (later[-1], b'"error"' in first[-1], b"[DONE]" in first) == (b"[DONE]", True, False)


@pytest.mark.parametrize(
    ("name", "piece"), [("garbage", b'{"choices":[{"delta":{"content":'), ("invalid-utf8", b"\xff\xfe")]
)
def test_one_line_is_broken(name: str, piece: bytes) -> None:
    """Between good lines stands one that is not JSON, or not UTF-8."""
    [bad] = [line for line in data(name) if not decodes(line) or not line.endswith((b"}", b"[DONE]"))]
    assert piece in bad


def test_a_huge_line() -> None:
    """One data line of ten megabytes."""
    assert max(map(len, data("huge-line"))) > 10_000_000


def test_the_bundled_first_chunk() -> None:
    """Five tokens come in the first chunk and the rest at the model's rate, or all at the end in one."""
    pieces = [text for _, text in answered("bundled-first").parsed.pieces]
    assert (len(pieces), len(pieces[0].split())) == (36, 5)
    sent = [frame.offset_ns for frame in played("bundled-first").frames if frame.token_counts]
    assert 35 / ((sent[-1] - sent[0]) / 1e9) == pytest.approx(200, rel=0.05)
    assert len(answered("one-chunk").parsed.pieces) == 1
    assert played("one-chunk").ttft_us == pytest.approx(50_000 + 39 * 5_000, abs=6_000)


def test_null_and_empty_deltas_come_first() -> None:
    """A null and an empty delta stand between role and first token."""
    assert deltas("null-content")[1:3] == [{"content": None}, {"content": ""}]


def test_writes_cut_inside_characters() -> None:
    """Tokens whose writes are cut inside characters, or byte by byte, are complete with the last one."""
    frames = played("split-code-points").frames
    sent = [number for number, frame in enumerate(frames) if frame.token_counts]
    assert not any(decodes(frames[number - step].data) for number in sent for step in (0, 1))
    assert decodes(answered("split-code-points").body)
    assert frames[sent[0]].offset_ns == frames[sent[0] - 1].offset_ns + 300_000
    ones = [frame for frame in played("byte-by-byte").frames if len(frame.data) == 1]
    assert len(ones) > 5 * 200
    assert [len(frame.token_counts) for frame in ones if frame.token_counts] == [1] * 5


@pytest.mark.parametrize(
    ("name", "has_usage", "done"),
    [("none", True, True), ("no-usage", False, True), ("no-done", True, False), ("usage-in-choice", True, False)],
)
def test_endings_that_are_fine(name: str, *, has_usage: bool, done: bool) -> None:
    """A finish reason is there in any case; usage and end marker as the name says."""
    parsed = answered(name).parsed
    assert (parsed.finished, bool(parsed.counts), data(name)[-1] == b"[DONE]") == (["stop"], has_usage, done)


def test_usage_in_the_last_choice() -> None:
    """Usage stands beside the finish reason, asked for or not; a delta behind the end counts no token."""
    asked = {"model": "fault-usage-in-choice", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    request = Request(method="POST", path="/v1/chat/completions", body=json.dumps(asked).encode())
    *_, line = read("openai-chat", Service(WORLD).answer(request, ARRIVAL)).body.split(b"\n\n")[:-1]
    last = json.loads(line.removeprefix(b"data: "))
    assert (last["choices"][0]["finish_reason"], last["usage"]["completion_tokens"]) == ("stop", 40)
    *_, marker, stray = data("after-end")
    assert (marker, json.loads(stray)["choices"][0]["delta"]) == (b"[DONE]", {"content": " and"})


def test_a_tool_call_in_pieces() -> None:
    """The first token names the tool, and the finish reason is that of a call."""
    calls = [delta["tool_calls"][0] for delta in deltas("tool-call") if "tool_calls" in delta]
    assert calls[0]["function"]["name"] == "look_up"
    assert answered("tool-call").parsed.finished == ["tool_calls"]


def test_slow_headers() -> None:
    """Nothing at all for a second and a half."""
    assert played("slow-headers").frames[0].offset_ns > 1_500_000_000


@pytest.mark.parametrize("name", ["stall", "cut", "reset"])
def test_half_a_body_without_stream(name: str) -> None:
    """What breaks a stream off breaks a whole answer off in its middle."""
    frames = played(name, stream=False).frames
    assert (answered(name, stream=False).complete, [frame for frame in frames if frame.token_counts]) == (False, [])


def test_reasoning_has_its_own_field() -> None:
    """The first quarter of the deltas is reasoning, in a field of its own."""
    assert ["reasoning_content" in delta for delta in deltas("reasoning")[1:41]] == [True] * 10 + [False] * 30
    assert {Channel.REASONING, Channel.ANSWER} == {channel for channel, _ in answered("reasoning").parsed.pieces}
