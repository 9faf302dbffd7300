"""The contract of every dialect: recorded shapes become samples, however the network cuts them."""

import json
from typing import Any

import pytest

from isochrone_agent.dialects import DIALECTS, NO_QUIRKS, Quirks
from isochrone_wire.model import Outcome, Target, Workload
from material.replay import replay, whole
from material.transcripts import EVERY, Transcript


def by_name(case: Transcript) -> str:
    return case.name


@pytest.mark.parametrize("case", EVERY, ids=by_name)
def test_each_shape_comes_to_its_sample(case: Transcript) -> None:
    """Outcome, chunks and tokens follow from what the server said, in all the ways servers say it."""
    sample = whole(case.dialect, case.body)
    assert sample.outcome is case.outcome, sample.error
    assert (sample.chunks, sample.reasoning_tokens) == (case.chunks, case.reasoning_tokens)
    if case.outcome in (Outcome.OK, Outcome.TRUNCATED):
        assert sample.output_tokens == case.output_tokens
    assert case.error in (sample.error or "")


@pytest.mark.parametrize("case", EVERY, ids=by_name)
def test_where_the_network_cuts_changes_nothing(case: Transcript) -> None:
    """A transcript cut in two at any byte, or into single bytes, gives the same sample."""
    expected = whole(case.dialect, case.body)
    for at in range(len(case.body) + 1):
        assert replay(case.dialect, [(100, case.body[:at]), (100, case.body[at:])]) == expected
    assert replay(case.dialect, [(100, bytes([byte])) for byte in case.body]) == expected


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_has_its_transcripts(name: str) -> None:
    """A dialect without a success, a broken stream and an error inside it is not covered by the laws above."""
    outcomes = {case.outcome for case in EVERY if case.dialect == name}
    assert {Outcome.OK, Outcome.TRUNCATED} < outcomes
    assert outcomes & {Outcome.HTTP_ERROR, Outcome.THROTTLED}


def request(dialect: str, *, quirks: Quirks = NO_QUIRKS, **workload: Any) -> tuple[str, dict[str, str], dict[str, Any]]:
    target = Target(
        id=1, name="m", provider="p", model="m-1", base_url="https://x/v1", workload=Workload(prompt="Hi", **workload)
    )
    made = DIALECTS[dialect].request(target, nonce="nonce", key="sk-1", quirks=quirks)
    return made.url, dict(made.headers), json.loads(made.body)


URLS = {
    "openai-chat": ("https://x/v1/chat/completions", "authorization"),
    "openai-responses": ("https://x/v1/responses", "authorization"),
    "anthropic": ("https://x/v1/messages", "x-api-key"),
    "gemini": ("https://x/v1/models/m-1:streamGenerateContent?alt=sse", "x-goog-api-key"),
    "cohere": ("https://x/v1/chat", "authorization"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_asks_at_its_address_with_its_key(dialect: str) -> None:
    """Path, model, the header of the key and the nonce are where this API wants them; the key is nowhere else."""
    url, headers, body = request(dialect)
    assert (url, [name for name, value in headers.items() if "sk-1" in value]) == (URLS[dialect][0], [URLS[dialect][1]])
    assert "[nonce] Hi" in json.dumps(body)
    assert "m-1" in url or body["model"] == "m-1"
    assert "sk-1" not in json.dumps(body) + url


def limits(body: dict[str, Any]) -> list[int]:
    flat = body | body.get("generationConfig", {})
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
    return [flat[name] for name in names if name in flat]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_bounds_the_answer(dialect: str) -> None:
    """The longest answer is bounded once, with the workload's number."""
    _, _, body = request(dialect, max_output_tokens=77)
    assert limits(body) == [77]


def test_quirks_change_the_request() -> None:
    """A provider may want the limit under another name, no temperature, and no question for usage."""
    quirks = Quirks(token_limit="max_completion_tokens", temperature=False, usage_option=False)
    _, _, body = request("openai-chat", quirks=quirks, max_output_tokens=77)
    assert "max_completion_tokens" in body
    assert not {"max_tokens", "temperature", "stream_options"} & set(body)


@pytest.mark.parametrize(
    ("dialect", "field", "value"),
    [
        ("openai-chat", "reasoning_effort", "low"),
        ("openai-responses", "reasoning", {"effort": "low", "summary": "auto"}),
        ("anthropic", "thinking", {"type": "enabled", "budget_tokens": 1024}),
        ("cohere", "thinking", {"type": "enabled"}),
    ],
)
def test_effort_is_pinned_in_each_apis_words(dialect: str, field: str, value: object) -> None:
    """The workload's reasoning effort is said the way this API wants it."""
    _, _, body = request(dialect, reasoning_effort="low")
    assert body[field] == value


def test_thinking_leaves_room_for_the_answer() -> None:
    """Anthropic's limit covers thinking and answer, and thinking forbids a temperature."""
    _, _, body = request("anthropic", reasoning_effort="low", max_output_tokens=77)
    assert (body["max_tokens"], "temperature" in body) == (1024 + 77, False)


def test_cached_prompts_are_counted_and_flagged() -> None:
    """Anthropic states fresh and cached prompt tokens apart; the sample has both together and the cached ones."""
    case = next(case for case in EVERY if case.name == "anthropic")
    sample = whole("anthropic", case.body)
    assert (sample.prompt_tokens, sample.cached_tokens, sample.quality.labels[:2]) == (14, 4, ("buffered", "cached"))
