"""Answers, their frames and their timelines, which follow from request, region and instant only."""

import statistics
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from isochrone_sim.dialects import DIALECTS, ResponseMetadata
from isochrone_sim.requests import RequestParameters, count_prompt_tokens, find_nonce, invalid, throttled
from isochrone_sim.response import (
    LAST_CHUNK,
    STREAM,
    Timeline,
    answer_script,
    body_frames,
    chunk,
    complete_response,
    error_timeline,
    head,
    stream_frames,
    timeline,
)
from isochrone_sim.script import Channel, Cut, Ending, Kind, Script, Step, Usage, filler_tokens, multibyte_tokens
from isochrone_sim.world import TokenTiming, default_world

CHAT = DIALECTS["openai-chat"]
WORLD = default_world()
MONDAY_AT = 1_779_235_200_000_000
METADATA = ResponseMetadata(request_id="req_1", model="qwen3-32b", created_at=MONDAY_AT)


def planned(
    name: str = "qwen3-32b", *, region: str = "us-east-2", at: int = MONDAY_AT, content: bytes = b"", **model: Any
) -> Timeline:
    parameters = RequestParameters(model=name, stream=True, include_usage=True)
    metadata = replace(METADATA, created_at=at)
    return timeline(
        replace(WORLD.models[name], **model), WORLD, parameters, metadata, dialect=CHAT, region=region, content=content
    )


def test_offsets_are_absolute() -> None:
    """Frames stand at offsets from the request, at the planned rate; only another nonce changes the answer."""
    played = planned(steady=True, jitter_us=0)
    offsets = [frame.offset_ns for frame in played.frames]
    assert offsets == sorted(offsets)
    said = [frame.offset_ns for frame in played.frames if frame.token_counts]
    assert (offsets[0], said[0]) == (75_000_000, 250_000_000)
    assert said[-1] == pytest.approx(250_000_000 + 149 / 45 * 1e9, abs=2)
    assert (played.ttft_us, played.tokens_per_second, played.status) == (250_000, 45.0, 200)
    played = planned()
    said = [frame.offset_ns for frame in played.frames if frame.token_counts]
    assert played.tokens_per_second is not None
    assert (len(said) - 1) / ((said[-1] - said[0]) / 1e9) == pytest.approx(played.tokens_per_second, rel=1e-6)
    assert played.tokens_per_second == pytest.approx(45, rel=0.021)
    assert planned(content=b"a") == planned(content=b"a")
    assert planned(content=b"a").ttft_us != planned(content=b"b").ttft_us
    assert planned(content=b"a").frames[1].data != planned(content=b"b").frames[1].data


def test_the_median_is_the_published_one() -> None:
    """Over a day of requests the median time to first token is the leaderboard's, to within 2 %."""
    times = [planned(at=MONDAY_AT + n * 301_000_000, content=str(n).encode()).ttft_us for n in range(288)]
    assert statistics.median(time for time in times if time) == pytest.approx(250_000, rel=0.02)


def test_a_fault_may_be_rare() -> None:
    """A model with a share of faults fails that often, and the same requests each time."""
    faults = [planned(content=str(n).encode(), fault="cut", fault_share=0.2).fault for n in range(400)]
    assert faults.count("cut") == pytest.approx(80, abs=30)
    assert set(faults) == {"cut", None}
    again = [planned(content=str(n).encode(), fault="cut", fault_share=0.2).fault for n in range(400)]
    assert again == faults


def test_refusals_come_at_once() -> None:
    """An error response goes out five milliseconds after the request, and plans no token."""
    played = error_timeline(invalid("no"), METADATA, CHAT)
    assert (played.status, played.ttft_us, [frame.offset_ns for frame in played.frames]) == (400, None, [5_000_000])
    assert b"retry-after" not in played.frames[0].data


@pytest.mark.parametrize(("wait_us", "seconds"), [(1, 1), (1_000_000, 1), (1_000_001, 2)])
def test_a_wait_is_rounded_up(wait_us: int, seconds: int) -> None:
    """`retry-after` counts whole seconds, and never too few."""
    played = error_timeline(throttled("m", "requests", retry_after_us=wait_us), METADATA, CHAT)
    assert b"\r\nretry-after: %d\r\n" % seconds in played.frames[0].data


MODELS = default_world().models
TIMING = TokenTiming(ttft_ns=600_000_000, tokens_per_second=50.0)


def script(name: str = "qwen3-8b", **parameters: Any) -> Script:
    return answer_script(MODELS[name], RequestParameters(model=name, stream=True, **parameters), TIMING, Random(1))


def tokens(of: Script, channel: Channel) -> int:
    return sum(step.tokens for step in of.steps if step.channel is channel)


def test_the_role_comes_first_and_is_no_token() -> None:
    """Head and role delta go out together, well before the first token."""
    said = script()
    assert (said.steps[0].kind, said.steps[0].tokens, said.steps[0].offset_ns) == (Kind.ROLE, 0, said.head_ns)
    assert said.head_ns == 180_000_000
    assert said.steps[1].offset_ns == TIMING.ttft_ns


def test_a_slow_model_still_opens_early() -> None:
    """The head never takes longer than 200 ms."""
    slow = answer_script(
        MODELS["qwen3.5-397b"], RequestParameters(model="m"), replace(TIMING, ttft_ns=1_200_000_000), Random(1)
    )
    assert slow.head_ns == 200_000_000


def test_beats_are_in_order() -> None:
    """No step comes before the one it follows."""
    offsets = [step.offset_ns for step in script(include_usage=True).steps]
    assert offsets == sorted(offsets)


@pytest.mark.parametrize(
    ("parameters", "count", "reason"),
    [
        ({}, 150, "stop"),
        ({"max_tokens": 200}, 150, "stop"),
        ({"max_tokens": 7}, 7, "length"),
        ({"max_tokens": 1}, 1, "length"),
    ],
)
def test_the_limit_is_kept(parameters: dict[str, Any], count: int, reason: str) -> None:
    """The model says what it has to say, or stops at the limit and says so; usage counts what was said."""
    said = script(**parameters)
    assert said.usage is not None
    assert tokens(said, Channel.ANSWER) == count == said.usage.output_tokens
    assert said.of_kind(Kind.FINISH)[0].text == reason


def test_usage_comes_when_asked_for() -> None:
    """Usage stands between the finish and the end marker, and only on demand."""
    assert [step.kind for step in script(include_usage=True).steps[-3:]] == [Kind.FINISH, Kind.USAGE, Kind.DONE]
    assert script().of_kind(Kind.USAGE) == ()


@pytest.mark.parametrize(
    ("name", "effort", "reasoning"),
    [
        ("deepseek-r1", None, 0),
        ("deepseek-r1", "none", 0),
        ("deepseek-r1", "low", 16),
        ("kimi-k2.5", "high", 64),
        ("kimi-k2.5", "extreme", 32),
        ("qwen3-8b", "high", 0),
    ],
)
def test_reasoning_only_when_asked_for(name: str, effort: str | None, reasoning: int) -> None:
    """Only a reasoning model reasons aloud, only when parameters, and before it answers."""
    said = script(name, reasoning_effort=effort)
    assert said.usage is not None
    assert (tokens(said, Channel.REASONING), said.usage.reasoning_tokens) == (reasoning, reasoning)
    assert tokens(said, Channel.ANSWER) == 150
    channels = [step.channel for step in said.steps if step.tokens]
    assert channels == [Channel.REASONING] * reasoning + [Channel.ANSWER] * 150


def test_reasoning_counts_towards_the_limit() -> None:
    """A limit below the reasoning leaves no answer."""
    said = script("deepseek-r1", reasoning_effort="high", max_tokens=10)
    assert (tokens(said, Channel.REASONING), tokens(said, Channel.ANSWER)) == (10, 0)


@pytest.mark.parametrize("count", [0, 1, 12, 13, 150])
def test_prose_has_a_token_per_word(count: int) -> None:
    """So many tokens, each of them with text; joined they begin without a blank and end a sentence."""
    said = filler_tokens(Random(2), count)
    assert len(said) == count
    assert all(token.strip() for token in said)
    assert not count or ("".join(said)[0].isupper() and "".join(said).endswith("."))


def test_multibyte_prose_is_that() -> None:
    """Every token takes more bytes than characters."""
    assert all(len(token.encode()) > len(token) for token in multibyte_tokens(30))


@pytest.mark.parametrize(
    ("texts", "nonce"),
    [(["[abcdef123456] Hi"], "abcdef123456"), (["Hi [abcdef123456]"], None), (["[x] Hi"], None), ([], None)],
)
def test_a_nonce_is_found_in_front(texts: list[str], nonce: str | None) -> None:
    """The last message's first bracketed word is the nonce."""
    assert find_nonce(texts) == nonce


def test_prompts_are_counted_roughly_and_always_the_same() -> None:
    """Four bytes make a token, and nonces of equal length count equally."""
    assert count_prompt_tokens(["[aaaaaaaaaaaa] Hi"]) == count_prompt_tokens(["[bbbbbbbbbbbb] Hi"]) == 12
    assert count_prompt_tokens(["a" * 400]) > count_prompt_tokens(["a" * 40])


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


def short_script(
    *, cut: Cut = Cut.WHOLE, ending: Ending = Ending.KEEP_ALIVE, steps: tuple[Step, ...] = STEPS
) -> Script:
    return Script(head_ns=10, steps=steps, usage=USAGE, cut=cut, ending=ending)


def test_one_write_per_token() -> None:
    """Head and role are one write, every token is one, the rest is one; cuts change no byte and no instant."""
    frames = stream_frames(SCRIPT, RENDERER, head=b"HEAD")
    assert [frame.offset_ns for frame in frames] == [10, 1_000_000, 2_000_000, 2_200_000]
    assert [frame.token_counts for frame in frames] == [(), ((Channel.REASONING, 1),), ((Channel.ANSWER, 1),), ()]
    assert frames[0].data.startswith(b"HEAD")
    assert frames[-1].data.endswith(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)
    whole = stream_frames(SCRIPT, RENDERER, head=b"HEAD")
    for cut in Cut:
        frames = stream_frames(short_script(cut=cut), RENDERER, head=b"HEAD")
        assert b"".join(frame.data for frame in frames) == b"".join(frame.data for frame in whole)
        assert [f[::2] for f in frames if f.token_counts] == [f[::2] for f in whole if f.token_counts]


def test_a_broken_connection_gives_the_last_token_time() -> None:
    """A broken connection ends after the last token; without a stream all tokens come at once, in their channels."""
    frames = stream_frames(short_script(ending=Ending.CLOSE, steps=STEPS[:3]), RENDERER, head=b"HEAD")
    assert (frames[-1].offset_ns, frames[-1].data) == (7_000_000, b"")
    assert not any(LAST_CHUNK in frame.data for frame in frames)
    (frame,) = body_frames(SCRIPT, b"BODY")
    assert (frame.offset_ns, frame.data) == (2_200_000, b"BODY")
    assert dict(frame.token_counts) == {Channel.REASONING: 1, Channel.ANSWER: 1}


def test_half_an_answer_counts_no_token() -> None:
    """A body cut in half carries no token, and then the connection goes."""
    half, end = body_frames(short_script(ending=Ending.RESET), b"BODY")
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
