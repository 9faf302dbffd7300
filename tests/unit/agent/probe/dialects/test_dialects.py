"""The contract of every dialect: recorded streams become samples, with any boundaries of reads."""

import json
from typing import Any

import pytest

from isochrone_agent.probe.dialects import DIALECTS, NO_QUIRKS, Quirks
from isochrone_wire.model import Outcome, Quality, Target, Workload
from isochrone_wire.reasoning_effort import supported_efforts
from testdata.replay import arrivals, replay, whole
from testdata.transcripts import EVERY, Transcript


def by_name(case: Transcript) -> str:
    return case.name


@pytest.mark.parametrize("case", EVERY, ids=by_name)
def test_each_shape_comes_to_its_sample(case: Transcript) -> None:
    """Outcome, chunks and tokens follow from the stream, in every format of the servers."""
    sample = whole(case.dialect, case.body)
    assert sample.outcome is case.outcome, sample.error
    assert (sample.chunks, sample.reasoning_tokens) == (case.chunks, case.reasoning_tokens)
    if case.outcome in (Outcome.OK, Outcome.TRUNCATED):
        assert sample.output_tokens == case.output_tokens
    assert case.error in (sample.error or "")


@pytest.mark.parametrize("case", [case for case in EVERY if case.every_ms], ids=by_name)
def test_reasoning_is_counted_where_it_was_told(case: Transcript) -> None:
    """Speed, first chunk and cost of a reasoning model's stream are those of what came when, to the token; where the
    provider leaves open what of its output was told, there is no speed, and no flag that it was buffered.
    """
    sample = replay(case.dialect, arrivals(case.body, case.every_ms))
    assert sample.tokens_per_second == pytest.approx(case.tokens_per_second)
    assert (sample.output_tokens, sample.first_chunk_tokens) == (case.output_tokens, case.first_chunk_tokens)
    assert sample.cost_usd == pytest.approx(case.cost_usd)
    assert Quality.BUFFERED not in sample.quality


@pytest.mark.parametrize("case", EVERY, ids=by_name)
def test_where_the_network_cuts_changes_nothing(case: Transcript) -> None:
    """A transcript cut into single bytes, or in two at every seventh byte, gives the same sample."""
    reads = arrivals(case.body, case.every_ms)
    expected = replay(case.dialect, reads)
    for number, (at_ms, data) in enumerate(reads):
        before, after = reads[:number], reads[number + 1 :]
        for at in range(number % 7, len(data) + 1, 7):
            assert replay(case.dialect, [*before, (at_ms, data[:at]), (at_ms, data[at:]), *after]) == expected
    assert replay(case.dialect, [(at_ms, bytes([byte])) for at_ms, data in reads for byte in data]) == expected


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_has_its_transcripts(name: str) -> None:
    """A dialect without a success, a broken stream and an error inside it is not covered by the laws above."""
    outcomes = {case.outcome for case in EVERY if case.dialect == name}
    assert {Outcome.OK, Outcome.TRUNCATED} < outcomes
    assert outcomes & {Outcome.HTTP_ERROR, Outcome.THROTTLED}


def request(
    dialect: str, *, quirks: Quirks = NO_QUIRKS, model: str = "m-1", **workload: Any
) -> tuple[str, dict[str, str], dict[str, Any]]:
    target = Target(
        id=1, name="m", provider="p", model=model, base_url="https://x/v1", workload=Workload(prompt="Hi", **workload)
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
    """Path, model, key header and nonce are where the API expects them; the key is nowhere else."""
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
    """The request contains the workload's output limit exactly once."""
    _, _, body = request(dialect, max_output_tokens=77)
    assert limits(body) == [77]


def test_quirks_change_the_request() -> None:
    """A quirk renames the limit, and omits the request for usage."""
    quirks = Quirks(token_limit="max_completion_tokens", usage_option=False)
    _, _, body = request("openai-chat", quirks=quirks, max_output_tokens=77)
    assert "max_completion_tokens" in body
    assert not {"max_tokens", "stream_options"} & set(body)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("temperature", [None, 0.0, 1.0])
def test_a_temperature_is_sent_when_it_is_pinned(dialect: str, temperature: float | None) -> None:
    """Many models refuse every temperature but their own, so none is sent unless the workload says it; then it is."""
    pinned: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    _, _, body = request(dialect, reasoning_effort="low", **pinned)
    assert (body | body.get("generationConfig", {})).get("temperature") == temperature


def thinking(body: dict[str, Any]) -> dict[str, Any]:
    """Return the reasoning parameters of a request."""
    names = ("reasoning_effort", "reasoning", "thinking", "output_config", "thinkingConfig")
    said = body | body.get("generationConfig", {})
    return {name: said[name] for name in names if name in said}


ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("dialect", "model", "effort", "said"),
    [
        ("openai-chat", "gpt-5-mini", "minimal", {"reasoning_effort": "minimal"}),
        ("openai-responses", "gpt-5-mini", "low", {"reasoning": {"effort": "low", "summary": "auto"}}),
        ("anthropic", "claude-3-7-sonnet-20250219", "low", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("anthropic", "claude-sonnet-4-20250514", "high", {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
        ("anthropic", "claude-opus-4-5-20251101", "medium", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("anthropic", "MiniMax-M2", "low", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("anthropic", "claude-sonnet-4-6", "low", {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("anthropic", "claude-opus-4-7", "xhigh", {"thinking": ADAPTIVE, "output_config": {"effort": "xhigh"}}),
        ("anthropic", "anthropic/claude-opus-4.7", "max", {"thinking": ADAPTIVE, "output_config": {"effort": "max"}}),
        ("anthropic", "claude-sonnet-5", "low", {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("anthropic", "claude-fable-5", "high", {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}),
        ("anthropic", "claude-opus-5", "none", {"thinking": {"type": "disabled"}}),
        ("gemini", "gemini-2.5-flash", "low", {"thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": True}}),
        ("gemini", "gemini-2.5-flash", "none", {"thinkingConfig": {"thinkingBudget": 0}}),
        ("gemini", "gemini-3.5-flash", "low", {"thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True}}),
        ("cohere", "command-a-reasoning-08-2025", "low", {"thinking": {"type": "enabled"}}),
        ("cohere", "command-a-reasoning-08-2025", "none", {"thinking": {"type": "disabled"}}),
    ],
)
def test_effort_is_pinned_in_each_apis_words(dialect: str, model: str, effort: str, said: dict[str, Any]) -> None:
    """The workload's reasoning effort is said the way this API wants it of this model, and in no other word beside."""
    _, _, body = request(dialect, model=model, reasoning_effort=effort)
    assert thinking(body) == said


@pytest.mark.parametrize("model", ["m-1", "claude-opus-4-5", "claude-opus-4-7", "gemini-2.5-flash", "gemini-3.5-flash"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_effort_is_left_out(dialect: str, model: str) -> None:
    """Each word there is asks for something of its own or for what its neighbours do; one that there is not goes out as
    it is, for the provider to refuse, and is never taken for none.
    """
    known = supported_efforts(dialect, model)
    for effort in (*(known or ()), "strenuous"):
        assert thinking(request(dialect, model=model, reasoning_effort=effort)[2])
    assert "strenuous" in json.dumps(thinking(request(dialect, model=model, reasoning_effort="strenuous")[2]))
    assert known is None or "low" in known


@pytest.mark.parametrize(
    ("model", "effort", "limit"),
    [
        ("claude-opus-4-5", "low", 1024 + 77),
        ("claude-opus-4-7", "low", 1024 + 77),
        ("claude-opus-4-7", "max", 32_768 + 77),
        ("claude-opus-4-7", "none", 77),
    ],
)
def test_thinking_leaves_room_for_the_answer(model: str, effort: str, limit: int) -> None:
    """Anthropic's limit covers thinking and answer; the workload's limit is for the answer alone."""
    _, _, body = request("anthropic", model=model, reasoning_effort=effort, max_output_tokens=77)
    assert body["max_tokens"] == limit


def test_cached_prompts_are_counted_and_flagged() -> None:
    """Anthropic states fresh and cached prompt tokens apart; the sample has both together and the cached ones."""
    case = next(case for case in EVERY if case.name == "anthropic")
    sample = whole("anthropic", case.body)
    assert (sample.prompt_tokens, sample.cached_tokens, sample.quality.labels[:2]) == (14, 4, ("buffered", "cached"))
