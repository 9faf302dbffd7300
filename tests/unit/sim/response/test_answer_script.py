"""Speech: what a healthy answer holds, in order."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from isochrone_sim.requests import RequestParameters, count_prompt_tokens, find_nonce
from isochrone_sim.response import answer_script
from isochrone_sim.script import Channel, Kind, Script, filler_tokens, multibyte_tokens
from isochrone_sim.world import TokenTiming, default_world

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
