"""The contract of every dialect: recorded streams become samples, with any boundaries of reads."""

import json
from dataclasses import replace
from typing import Any

import pytest

from isochrone_agent.probe.measurement import Measurement
from isochrone_common.dialects import DIALECTS, Quirks
from isochrone_common.dialects.base import NO_QUIRKS, make_nonce
from isochrone_common.dialects.failures import error_sentence, in_band_failure, stated_wait_us
from isochrone_common.dialects.providers import CATALOGUE, Provider, quirks_of
from isochrone_common.dialects.signals import Failed, Opened, Sent
from isochrone_wire.model import Outcome, Quality, RateLimit, Target, Workload
from isochrone_wire.workloads import OPTIONAL_FIELDS, supported_efforts
from testdata.transcripts import EVERY, FULL, ROLE, Transcript, arrivals, replay, sse, whole


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
    """Speed, first chunk and cost of reasoning are exact; an unknown share of the output has no speed, and no flag."""
    sample = replay(case.dialect, arrivals(case.body, case.every_ms))
    # Where chunks have several tokens, those of the last one, which is left out, are known by their characters only.
    rel = 5e-3 if case.name == "gemini-thoughts-in-digest-usage-everywhere" else None
    assert sample.tokens_per_second == pytest.approx(case.tokens_per_second, rel=rel)
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
    assert outcomes & {Outcome.STREAM_ERROR, Outcome.THROTTLED}


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


@pytest.mark.parametrize(("dialect", "name"), [(name, field) for name in DIALECTS for field in OPTIONAL_FIELDS[name]])
def test_each_optional_field_can_be_omitted(dialect: str, name: str) -> None:
    """A request is without the fields that its target omits, and with all others."""
    workload = Workload(prompt="Hi", temperature=0.5, reasoning_effort="low")
    target = Target(id=7, name="m", provider="p", model="claude-sonnet-4-6", base_url="http://x", workload=workload)
    whole, without = (
        json.loads(DIALECTS[dialect].request(replace(target, omit=omit), nonce="", key=None, quirks=NO_QUIRKS).body)
        for omit in ((), (name,))
    )
    owner = whole if name in whole else whole["generationConfig"]
    del owner[name]
    assert without == whole


@pytest.mark.parametrize(
    ("omit", "limit"),
    [
        (("max_tokens",), "max_completion_tokens"),
        (("max_completion_tokens",), "max_tokens"),
        (("max_tokens", "max_completion_tokens", "model", "messages"), "max_tokens"),
    ],
)
def test_no_plan_omits_the_limit_or_the_prompt(omit: tuple[str, ...], limit: str) -> None:
    """In place of one name of the limit the other is sent; what is not optional is always sent."""
    target = Target(id=7, name="m", provider="p", model="m", base_url="http://x", omit=omit)
    body = json.loads(DIALECT.request(target, nonce="", key=None, quirks=NO_QUIRKS).body)
    assert set(body) == {"model", "messages", limit, "stream", "stream_options"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("temperature", [None, 0.0, 1.0])
def test_a_temperature_is_sent_when_it_is_pinned(dialect: str, temperature: float | None) -> None:
    """Many models refuse every temperature but their own, so none is sent unless the workload says it; then it is."""
    pinned: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    _, _, body = request(dialect, reasoning_effort="low", **pinned)
    assert (body | body.get("generationConfig", {})).get("temperature") == temperature


def thinking(body: dict[str, Any]) -> dict[str, Any]:
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
    """Each effort is a parameter of the request; an unknown one is sent as it is, for the provider to refuse."""
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


# The shape of Gemini's 429 when a quota of the free tier is used up.
GEMINI = {
    "code": 429,
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaMetric": "requests", "quotaId": "PerMinute", "quotaValue": "10"}],
        },
        {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"description": "More", "url": "https://x.test"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"},
    ],
}


def delayed(delay: Any) -> dict[str, Any]:
    return {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]}


@pytest.mark.parametrize(
    ("body", "wait_us"),
    [
        ({"error": GEMINI}, 12_000_000),
        ([{"error": GEMINI}], 12_000_000),
        ({"error": delayed("0.837192s")}, 837_192),
        ({"error": delayed("0s")}, 0),
        ({"error": delayed("-3s")}, None),
        ({"error": delayed("soon")}, None),
        ({"error": delayed("1000000s")}, None),
        ({"error": delayed(12)}, None),
        ({"error": {"details": ["12s", None]}}, None),
        ({"error": {"details": "retryDelay: 12s"}}, None),
        ({"error": {"message": "Try again in 12s."}}, None),
        ({"error": "12s"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_a_wait_in_the_body(body: object, wait_us: int | None) -> None:
    """Only `RetryInfo` is used; anything else is an unknown wait, and never an error."""
    assert stated_wait_us(json.dumps(body).encode()) == wait_us


def test_a_body_cut_short_says_nothing() -> None:
    """A cut body has no wait; the same error as an event under status 200 has the same one."""
    assert stated_wait_us(json.dumps({"error": GEMINI}).encode()[:-9]) is None
    failure = in_band_failure(GEMINI)
    assert (failure.outcome, failure.retry_after_us) == (Outcome.THROTTLED, 12_000_000)


@pytest.mark.parametrize(
    ("error", "throttled"),
    [
        ({"code": "RateLimitExceeded.EndpointRPMExceeded", "type": "TooManyRequests"}, True),
        ({"code": "AccountRateLimitExceeded"}, True),
        ({"code": "TooManyRequests"}, True),
        ({"code": "Throttling.RateQuota"}, True),
        ({"code": "ThrottlingException"}, True),
        ({"code": "limit_requests", "type": "limit_requests"}, True),
        ({"code": "limit_burst_rate"}, True),
        ({"type": "rate_limit_error"}, True),
        ({"code": "rate_limit_exceeded"}, True),
        ({"code": 429}, True),
        ({"code": "HTTP_429"}, True),
        ({"status": "RESOURCE_EXHAUSTED"}, True),
        ({"code": 14290}, False),
        ({"type": "overloaded_error"}, False),
        ({"code": "context_length_exceeded"}, False),
        ({"message": "the rate limit of 429 rooms"}, False),
        ("rate limit", False),
    ],
)
def test_a_throttle_has_many_names(error: object, throttled: bool) -> None:  # noqa: FBT001  # a case
    """A rate limit inside a stream is recognised by its code, type or status, not by its message."""
    assert in_band_failure(error).outcome is (Outcome.THROTTLED if throttled else Outcome.STREAM_ERROR)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, RateLimit(retry_after_us=12)),
        (RateLimit(limit_requests=5), RateLimit(limit_requests=5, retry_after_us=12)),
        (RateLimit(retry_after_us=7), RateLimit(retry_after_us=7)),
    ],
)
def test_headers_are_believed_first(told: RateLimit | None, expected: RateLimit) -> None:
    """The wait of the body is used only if the headers have none."""
    measurement = Measurement()
    measurement.observe(Sent(), 0)
    measurement.observe(Opened(status=429, ratelimit=told), 1)
    measurement.observe(Failed(outcome=Outcome.THROTTLED, error="HTTP 429", retry_after_us=12), 1)
    assert measurement.sample(target_id=1, round_at=0, dispatched_at=0).ratelimit == expected


NAMED = "openai anthropic google groq cerebras together fireworks deepinfra cohere xai deepseek moonshot minimax qwen"
NAMED += " zhipu stepfun hunyuan doubao global-apis crazyrouter openrouter azure vllm ollama llamacpp"


def test_every_named_provider_is_there() -> None:
    """Every provider and gateway that appears in published figures is in the catalogue."""
    assert set(NAMED.split()) <= set(CATALOGUE)


@pytest.mark.parametrize("provider", CATALOGUE.values(), ids=lambda provider: provider.slug)
def test_every_entry_can_be_used(provider: Provider) -> None:
    """An entry has a known dialect, and a key variable and TLS unless it is on this machine."""
    assert provider.dialect in DIALECTS
    assert provider.base_url.startswith("https://" if provider.key_env else "http://127.0.0.1:")
    assert not provider.base_url.endswith("/")


def test_quirks_follow_the_provider_and_its_dialect() -> None:
    """OpenAI's own chat needs the new name of the token limit; an unknown provider has no quirks."""
    target = Target(id=1, name="t", provider="openai", model="m", base_url="https://api.openai.com/v1")
    assert quirks_of(target).token_limit == "max_completion_tokens"
    assert quirks_of(Target(id=1, name="t", provider="nobody", model="m", base_url="http://x")) == NO_QUIRKS


DIALECT = DIALECTS["openai-chat"]


def test_the_role_is_not_a_token() -> None:
    """The role is no token; TTFT counts the first token of any channel, TTFAT the first of the answer."""
    sample = replay("openai-chat", [(3, sse(ROLE)), (300, sse(*FULL[1:]))])
    assert sample.ttft_us == 300_000
    thought = '{"choices":[{"delta":{"reasoning":"hm"}}]}'
    sample = replay("openai-chat", [(50, sse(thought)), (900, sse(*FULL[1:]))])
    assert (sample.ttft_us, sample.ttfat_us) == (50_000, 900_000)


def test_requests_differ_only_in_their_nonce() -> None:
    """Two vantages in one round send bodies of one length that differ in the nonce alone."""
    target = Target(id=7, name="m", provider="p", model="m", base_url="https://api.example.com/v1/")
    nonces = [make_nonce(target_id=7, round_at=60, vantage=name) for name in ("us-1", "sg-1")]
    ours, theirs = (DIALECT.request(target, nonce=nonce, key="sk-1", quirks=NO_QUIRKS) for nonce in nonces)
    assert nonces[0] != nonces[1]
    assert ours.body.replace(nonces[0].encode(), b"") == theirs.body.replace(nonces[1].encode(), b"")
    assert ours.url == "https://api.example.com/v1/chat/completions"
    assert "sk-1" not in repr(ours)


def test_the_request_says_what_the_workload_asks_for() -> None:
    """Model, limit, temperature, effort and the wish for usage are in the body."""
    workload = Workload(prompt="Hi", max_output_tokens=9, temperature=0.0, reasoning_effort="low")
    target = Target(id=7, name="m", provider="p", model="m", base_url="http://x", workload=workload)
    body = json.loads(DIALECT.request(target, nonce="n", key=None, quirks=NO_QUIRKS).body)
    assert body["stream_options"] == {"include_usage": True}
    assert (body["max_tokens"], body["temperature"], body["reasoning_effort"]) == (9, 0.0, "low")
    assert body["messages"] == [{"role": "user", "content": "[n] Hi"}]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            b'{"error":{"message":"Incorrect API key provided: sk-abc12345","code":"invalid_api_key"}}',
            "Incorrect API key provided: ***",
        ),
        (b'{"error":"model not found"}', "model not found"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b"<html>", ""),
        (b"[]", ""),
        (b"<html><title>\n 502 Bad Gateway</title><h1>nginx</h1>", "502 Bad Gateway"),
        (b"<Error><Code>Denied</Code><Message>no access</Message></Error>", "no access"),
        (b'{"error":true,"message":"no model"}', "no model"),
        (b'{"title":"One or more","errors":{"model":["is required"]}}', "model: is required"),
        (json.dumps({"error": {"message": json.dumps({"error": {"message": "inner"}})}}).encode(), "inner"),
        (
            b'{"error":{"message":"Provider failed","metadata":{"raw":"{\\"detail\\":\\"busy\\"}"}}}',
            "Provider failed: busy",
        ),
        (
            b"{\"message\":\"[{'type': 'x', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs', 'input': 1}]\"}",
            "body.stream_options: Extra inputs",
        ),
    ],
)
def test_error_bodies_become_a_sentence_without_keys(body: bytes, sentence: str) -> None:
    """The provider's error message is kept on one line, with anything like a key masked."""
    assert error_sentence(body) == sentence


def test_usage_with_every_chunk_counts_the_first_one() -> None:
    """If usage comes with every chunk, the tokens of the first chunk are its count, not an estimate."""
    said = '{{"choices":[{{"delta":{{"content":"{}"}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":{}}}}}'
    counts = ((2, 2), (8, 10), (8, 18), (8, 26), (8, 34), (8, 42))
    first, *rest = [said.format("abcd" * n, tokens) for n, tokens in counts]
    reads = [(100, sse(first)), *((100 + 100 * n, sse(text)) for n, text in enumerate(rest, 1)), (700, sse(*FULL[4:5]))]
    sample = replay("openai-chat", reads)
    assert (sample.first_chunk_tokens, sample.output_tokens) == (2, 42)
    assert sample.tokens_per_second == pytest.approx(32 / 0.4)


def test_groqs_own_times_are_kept() -> None:
    """Groq's queue and prompt times are the provider's own time to first token."""
    counts = '"prompt_tokens":9,"completion_tokens":3,"queue_time":0.02,"prompt_time":0.003'
    usage = f'{{"choices":[],"x_groq":{{"usage":{{{counts}}}}}}}'
    sample = whole("openai-chat", sse(*FULL[:5], usage, FULL[6]))
    assert (sample.provider_us, sample.output_tokens) == (23_000, 3)
