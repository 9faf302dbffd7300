"""Properties specific to OpenAI's chat completions."""

import json

import pytest

from isochrone_agent.probe.dialects import DIALECTS
from isochrone_agent.probe.dialects.base import NO_QUIRKS, make_nonce
from isochrone_wire.model import Target, Workload
from testdata.replay import replay, whole
from testdata.transcripts import FULL, ROLE, sse

DIALECT = DIALECTS["openai-chat"]


def test_the_role_is_not_a_token() -> None:
    """A server that sends the role after 3 ms and the first word after 300 ms has a TTFT of 300 ms."""
    sample = replay("openai-chat", [(3, sse(ROLE)), (300, sse(*FULL[1:]))])
    assert sample.ttft_us == 300_000


def test_reasoning_starts_the_clock_and_the_answer_its_own() -> None:
    """TTFT counts the first token of any channel, TTFAT the first of the answer."""
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
    ],
)
def test_error_bodies_become_a_sentence_without_keys(body: bytes, sentence: str) -> None:
    """The provider's error message is kept on one line, with anything like a key masked."""
    assert DIALECT.error(body) == sentence


def test_usage_with_every_chunk_counts_the_first_one() -> None:
    """If usage comes with every chunk, the tokens of the first chunk are its count, not an estimate."""
    said = '{{"choices":[{{"delta":{{"content":"{}"}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":{}}}}}'
    first, *rest = [said.format("abcd" * n, tokens) for n, tokens in ((5, 2), (1, 10), (1, 20), (1, 42))]
    reads = [(100, sse(first)), *((100 + 100 * n, sse(text)) for n, text in enumerate(rest, 1)), (400, sse(*FULL[4:5]))]
    sample = replay("openai-chat", reads)
    assert (sample.first_chunk_tokens, sample.output_tokens) == (2, 42)
    assert sample.tokens_per_second == pytest.approx(40 / 0.3)


def test_groqs_own_times_are_kept() -> None:
    """Groq's queue and prompt times are the provider's own time to first token."""
    counts = '"prompt_tokens":9,"completion_tokens":3,"queue_time":0.02,"prompt_time":0.003'
    usage = f'{{"choices":[],"x_groq":{{"usage":{{{counts}}}}}}}'
    sample = whole("openai-chat", sse(*FULL[:5], usage, FULL[6]))
    assert (sample.provider_us, sample.output_tokens) == (23_000, 3)
