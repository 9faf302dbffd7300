"""What providers send in place of a plain stream: the failures of all forms, and harmless frames, in every dialect."""

import json
import re

import pytest

from isochrone_common.dialects.failures import error_sentence, finish, in_band_failure, omission_hint
from isochrone_common.dialects.signals import Failed
from isochrone_wire.model import Outcome, Sample
from testdata.transcripts import (
    A_BLOCK,
    A_DELTA,
    A_END,
    A_ONE,
    A_START,
    A_TWO,
    DONE,
    G_LAST,
    G_ONE,
    G_TWO,
    ONE,
    R_COMPLETED,
    R_CREATED,
    R_ONE,
    R_TWO,
    ROLE,
    STOP,
    THREE,
    TWO,
    USAGE,
    a_delta,
    a_end,
    replay,
    sse,
    typed,
    whole,
)

TOKENS = sse(ROLE, ONE, TWO)
END = sse(THREE, STOP, USAGE, DONE)


def data(document: object) -> bytes:
    return sse(json.dumps(document))


def by_name(value: object) -> str:
    return value if isinstance(value, str) else ""


ERRORS: dict[str, tuple[bytes, str]] = {
    "a field error": (b'error: {"code":500,"message":"context shift failed"}\n\n', "context shift failed"),
    "a field error with text": (b"error: context shift failed\n\n", "context shift failed"),
    "an event error": (b'event: error\ndata: {"code":500,"details":"worker died"}\n\n', "worker died"),
    "an event error with text": (b"event: error\ndata: worker died\n\n", "worker died"),
    "an event error with nothing": (b"event: error\ndata:\n\n", "no message"),
    "an exception of Bedrock": (b'event: modelStreamErrorException\ndata: {"Message":"no"}\n\n', "no"),
    "an object error": (data({"object": "error", "message": "out of memory", "code": 500}), "out of memory"),
    "a type error": (data({"type": "error", "message": "oops"}), "oops"),
    "a type that ends with error": (data({"type": "invalid_request_error", "message": "oops", "x": 1}), "oops"),
    "an error code": (data({"text": "network error", "error_code": 50004}), "network error"),
    "a message and a code": (data({"message": "upstream timeout", "code": 504}), "upstream timeout"),
    "a message and a code of words": (data({"message": "died", "code": "worker_died", "data": None}), "died"),
    "a message and a negative code": (data({"msg": "died", "code": -1}), "died"),
    "a message alone": (data({"message": "Internal server error"}), "Internal server error"),
    "a detail": (data({"detail": "not loaded"}), "not loaded"),
    "details": (data({"details": "worker died", "code": 500}), "worker died"),
    "a list of details": (data({"detail": [{"loc": ["body", "n"], "msg": "too large"}]}), "body.n: too large"),
    "error is true": (data({"error": True, "message": "broke"}), "broke"),
    "an error beside choices": (data({"choices": [], "error": {"message": "broke", "code": 502}}), "broke"),
    "an error in a choice": (data({"choices": [{"delta": {}, "error": {"message": "broke"}}]}), "broke"),
    "an error in an error": (data({"error": {"error": {"message": "broke"}}}), "broke"),
    "errors": (data({"errors": [{"message": "broke"}]}), "broke"),
    "an error in a part": (data({"data": {"error": {"message": "broke"}}}), "broke"),
    "x_groq": (data({"choices": [{"delta": {}}], "x_groq": {"id": "r", "error": "over capacity"}}), "over capacity"),
    "base_resp": (data({"choices": None, "base_resp": {"status_code": 1008, "status_msg": "no money"}}), "no money"),
    "a status": (data({"status": "error", "message": "broke", "id": 1}), "broke"),
    "a finish reason": (data({"choices": [{"delta": {}, "finish_reason": "abort"}]}), "abort"),
    "JSON without framing": (b'{"error":{"message":"broke"}}\n\n', "broke"),
    "JSON without framing, on many lines": (json.dumps({"error": {"message": "broke"}}, indent=1).encode(), "broke"),
    "a list without framing": (json.dumps([{"error": {"message": "broke"}}], indent=1).encode() + b"\n", "broke"),
}


@pytest.mark.parametrize("ending", [sse(DONE), b""], ids=["done", "cut"])
@pytest.mark.parametrize(("frame", "message"), ERRORS.values(), ids=ERRORS)
def test_a_broken_stream_is_no_success(frame: bytes, message: str, ending: bytes) -> None:
    """An error of any form, with or without tokens and `[DONE]`, in any reads, is `stream_error` with its message."""
    # The next line begins where the error without an end of line has ended.
    separated = frame if frame.endswith(b"\n") else frame + b"\n"
    for before in (b"", TOKENS):
        stream = before + separated + ending
        sample = whole("openai-chat", stream)
        assert (sample.outcome, sample.tokens_per_second) == (Outcome.STREAM_ERROR, None), sample.error
        assert message in (sample.error or "")
        assert replay("openai-chat", [(100, bytes([byte])) for byte in stream]) == sample


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"quota exceeded","type":"rate_limit_error"}}',
        b'[{"error":{"message":"quota exceeded","status":"RESOURCE_EXHAUSTED"}}]',
        b'{"detail":{"error":{"message":"quota exceeded","code":"429"}}}',
        b'{"error":"quota exceeded","code":429}',
        b'{"code":"Throttling","message":"quota exceeded"}',
        b'{"base_resp":{"status_code":429,"status_msg":"quota exceeded"}}',
    ],
)
def test_a_rate_limit_is_throttled_in_any_framing(body: bytes) -> None:
    """A rate limit in an event, in a field or without framing slows the agent down."""
    for frame in (b"data: " + body + b"\n\n", b"error: " + body + b"\n\n", body, body + b"\n"):
        sample = whole("openai-chat", frame)
        assert sample.outcome is Outcome.THROTTLED, sample.error
        assert "quota exceeded" in (sample.error or "")


@pytest.mark.parametrize(
    ("body", "outcome", "error"),
    [
        (b"upstream connect error or disconnect", Outcome.STREAM_ERROR, "upstream connect error"),
        (b"429 Too Many Requests\n", Outcome.THROTTLED, "429 Too Many Requests"),
        (b"<html>\n<head><title>502 Bad Gateway</title></head>\n</html>\n", Outcome.STREAM_ERROR, "502 Bad Gateway"),
        (b"<html><title>Welcome</title></html>", Outcome.GARBLED, "Welcome"),
        (b'{"model":"m","response":"hi","done":false}\n', Outcome.GARBLED, "no event of the stream"),
        (b"dat", Outcome.TRUNCATED, "terminal marker"),
        (b'data: {"choi', Outcome.TRUNCATED, "terminal marker"),
    ],
)
def test_text_without_framing_is_judged_at_the_end(body: bytes, outcome: Outcome, error: str) -> None:
    """Text in place of a stream gives its sentence or title; the beginning of a frame is a truncated stream."""
    sample = whole("openai-chat", body)
    assert sample.outcome is outcome, sample.error
    assert error in (sample.error or "")


HARMLESS: dict[str, tuple[bytes, int]] = {
    "empty data": (b"data:\n\n", 0),
    "a ping with empty data": (b"event: ping\ndata: \n\n", 0),
    "a ping": (data({"type": "ping"}), 0),
    "an empty object": (data({}), 0),
    "a name that is no text": (b"event: \xff\ndata: {}\n\n", 0),
    "text": (b"data: processing\n\n", 1),
    "an unknown object": (data({"cost": 0.1}), 1),
    "a status of success": (data({"code": 200, "message": "ok"}), 1),
    "a type that is no error": (data({"type": "status", "message": "processing"}), 1),
    "null": (data(None), 1),
    "an error of null": (data({"choices": [], "error": None, "error_code": 0}), 0),
    "a line without a field": (b"processing\n\n", 0),
    "a log line": (b"failed to flush the cache\n\n", 0),
    "JSON without framing": (b'{"progress":0.5}\n\n', 1),
    "a shape of another dialect": (data({"choices": 7}), 1),
    "an invalid byte": (sse(ONE).replace(b"Rec", b"R\xffc"), 0),
    "a finish reason of the word null": (data({"choices": [{"delta": {}, "finish_reason": "null"}]}), 0),
}


@pytest.mark.parametrize(("frame", "unknown"), HARMLESS.values(), ids=HARMLESS)
def test_a_harmless_frame_ends_nothing(frame: bytes, unknown: int) -> None:
    """Before, inside or after an answer it changes nothing; a frame that is not understood is counted."""
    for stream in (frame + TOKENS + END, TOKENS + frame + END):
        sample = whole("openai-chat", stream)
        assert (sample.outcome, sample.frames_unknown, sample.output_tokens) == (Outcome.OK, unknown, 3), sample.error
    assert whole("openai-chat", TOKENS + END + frame).outcome is Outcome.OK


@pytest.mark.parametrize(("frame", "_message"), ERRORS.values(), ids=ERRORS)
def test_nothing_after_a_complete_answer_is_a_failure(frame: bytes, _message: str) -> None:
    """An error after `[DONE]` is none of this answer."""
    assert whole("openai-chat", TOKENS + END + frame).outcome is Outcome.OK


def test_done_alone_says_no_success_after_an_unknown_frame() -> None:
    """`[DONE]` ends a stream without a finish reason, unless a frame before it may have been an error."""
    unknown = data({"weird": "worker 7 gone"})
    assert whole("openai-chat", TOKENS + sse(DONE)).outcome is Outcome.OK
    assert whole("openai-chat", TOKENS + unknown + sse(DONE)).outcome is Outcome.TRUNCATED
    assert whole("openai-chat", unknown + sse(DONE)).outcome is Outcome.GARBLED
    assert whole("openai-chat", TOKENS + unknown + sse(STOP, DONE)).outcome is Outcome.OK


ENDS = {
    "openai-responses": (typed(R_CREATED, R_ONE, R_TWO), typed(R_COMPLETED)),
    "anthropic": (typed(A_START, A_BLOCK, A_ONE, A_TWO), typed(A_DELTA, A_END)),
    "gemini": (sse(G_ONE, G_TWO), sse(G_LAST)),
}


@pytest.mark.parametrize("dialect", ENDS)
def test_the_sentinel_of_the_chat_is_the_end_in_every_dialect(dialect: str) -> None:
    """`[DONE]` after the end, or in place of it, is harmless; an error before it is not."""
    tokens, end = ENDS[dialect]
    done = sse(DONE)
    assert whole(dialect, tokens + end + done).outcome is Outcome.OK
    assert whole(dialect, tokens + done).outcome is Outcome.OK
    broken = data({"error": {"message": "broke"}})
    assert whole(dialect, tokens + broken + done).outcome is Outcome.STREAM_ERROR
    assert whole(dialect, tokens + done + broken).outcome is Outcome.OK


FILTERS = ("content_filter", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "refusal")
FAILURES = ("abort", "error", "network_error", "insufficient_system_resource", "ERROR", "ERROR_LIMIT", "OTHER")


@pytest.mark.parametrize("reason", [*FILTERS, "ERROR_TOXIC", "IMAGE_SAFETY", "guardrail_intervened", "content-filter"])
def test_a_filter_is_named(reason: str) -> None:
    """A filter that ends an answer, with or without tokens, is `filtered` with its own name."""
    for ended in (finish(reason)[0], finish(reason, final=True, error="text")[0]):
        assert isinstance(ended, Failed)
        assert (ended.outcome, reason in ended.error) == (Outcome.FILTERED, True)


@pytest.mark.parametrize("reason", [*FAILURES, "MALFORMED_FUNCTION_CALL", "engine_overloaded", "TIMEOUT", "cancelled"])
def test_a_failed_finish_reason_is_an_error(reason: str) -> None:
    """A finish reason that says that the provider failed is `stream_error` with its own name."""
    ended = finish(reason)[0]
    assert isinstance(ended, Failed)
    assert (ended.outcome, reason in ended.error) == (Outcome.STREAM_ERROR, True)


@pytest.mark.parametrize("reason", ["stop", "length", "end_turn", "MAX_TOKENS", "tool_calls", "COMPLETE", "eos_token"])
def test_other_finish_reasons_are_ends(reason: str) -> None:
    """Every other finish reason is an end; an empty stream with it is `empty`, and names it."""
    assert not isinstance(finish(reason)[0], Failed)
    sample = whole("openai-chat", sse(ROLE, json.dumps({"choices": [{"delta": {}, "finish_reason": reason}]}), DONE))
    assert (sample.outcome, reason in (sample.error or "")) == (Outcome.EMPTY, True)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"statusCode":400,"message":["n must be 1"],"error":"Bad Request"}', "Bad Request: n must be 1"),
        (b'{"error":"invalid_token","error_description":"The token expired"}', "invalid_token: The token expired"),
        (b'{"error":"no model","message":"no model"}', "no model"),
        (b'{"reason":"region not supported"}', "region not supported"),
        (b'{"status":"error","data":{"message":"boom"}}', "boom"),
        (b'{"success":false,"result":{"error":"boom"}}', "boom"),
        (b'event: error\ndata: {"type":"error","error":{"message":"Overloaded"}}\n\n', "Overloaded"),
        (b"<!DOCTYPE html><html><body><pre>Cannot POST /v1</pre></body></html>", "Cannot POST /v1"),
        (b"null", ""),
        (b"\x28\xb5\x2f\xfd\x84", ""),
    ],
)
def test_a_refusal_shows_its_message(body: bytes, sentence: str) -> None:
    """A mere name has the text beside it; pages without a title, events and other places are read."""
    assert error_sentence(body) == sentence


def test_a_filter_as_an_error_is_filtered() -> None:
    """Azure and DashScope report their filter as an error too."""
    assert in_band_failure({"code": "content_filter", "message": "no"}).outcome is Outcome.FILTERED
    assert in_band_failure({"code": "data_inspection_failed", "message": "no"}).outcome is Outcome.FILTERED


@pytest.mark.parametrize("field", ["error", "type", "message", "choices", "code"])
@pytest.mark.parametrize("depth", [200, 900, 5_000, 100_000])
def test_json_without_a_bottom_fails_only_the_stream(depth: int, field: str) -> None:
    """Nesting of any depth, in any field, fails the stream, and neither the agent nor the client."""
    deep = b"[" * depth + b"]" * depth
    sample = whole("openai-chat", b'data: {"%s":' % field.encode() + deep + b"}\n\n" + sse(DONE))
    assert sample.outcome in (Outcome.STREAM_ERROR, Outcome.GARBLED, Outcome.EMPTY)
    assert error_sentence(b'{"error":' + deep + b"}") is not None


def content(value: object) -> Sample:
    return replay("openai-chat", [(100, data({"choices": [{"delta": {"content": value}}]})), (200, sse(ONE, STOP))])


@pytest.mark.parametrize(
    ("value", "ttft_us", "ttfat_us"),
    [
        ([{"type": "text", "text": "hi"}], 100_000, 100_000),
        ({"type": "text", "text": "hi"}, 100_000, 100_000),
        ([{"type": "text", "text": ""}], 200_000, 200_000),
        ([{"type": "reference", "reference_ids": [1]}], 200_000, 200_000),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}], 100_000, 200_000),
        ("", 200_000, 200_000),
        (5, 200_000, 200_000),
        ("<think>hm", 100_000, None),
        ("hm</think>", 100_000, None),
        ("<|start|>assistant<|channel|>analysis", 100_000, None),
    ],
)
def test_content_has_a_type(value: object, ttft_us: int, ttfat_us: int | None) -> None:
    """A part counts by its text; reasoning inside the content leaves the time of the answer unknown."""
    sample = content(value)
    assert (sample.ttft_us, sample.ttfat_us) == (ttft_us, ttfat_us)


@pytest.mark.parametrize(
    "delta",
    [
        {"tool_calls": [{"function": {"name": "f", "arguments": {"n": 1}}}]},
        {"tool_calls": [None, {"function": {"name": "f", "arguments": '{"n": 1}'}}]},
        {"function_call": {"name": "f", "arguments": '{"n": 1}'}},
    ],
)
def test_a_call_is_part_of_the_answer(delta: object) -> None:
    """Arguments may be text or an object; both count with their characters."""
    sample = replay("openai-chat", [(100, data({"choices": [{"delta": delta}]})), (200, sse(STOP))])
    assert (sample.ttfat_us, sample.output_chars, sample.outcome) == (100_000, 9, Outcome.OK)


def test_usage_of_another_shape_costs_no_content() -> None:
    """Details that are no object are unknown; the rest of the frame counts."""
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "completion_tokens_details": "none",
        "prompt_tokens_details": 0,
    }
    last = {"choices": [{"delta": {"content": "end"}, "finish_reason": "stop"}], "usage": usage}
    sample = whole("openai-chat", sse(ROLE, ONE) + data(last))
    assert (sample.chunks, sample.output_tokens, sample.frames_unknown) == (2, 3, 0)


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "hm"},
        {"reasoning": {"text": "hm"}},
        {"reasoning_text": "hm"},
        {"reasoning_content": [{"text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
    ],
)
def test_reasoning_in_any_field_is_the_first_token(delta: object) -> None:
    """Reasoning counts for TTFT, not for TTFAT."""
    sample = replay("openai-chat", [(100, data({"choices": [{"delta": delta}]})), (200, sse(ONE, STOP))])
    assert (sample.ttft_us, sample.ttfat_us, sample.output_chars) == (100_000, 200_000, 11)


@pytest.mark.parametrize(
    ("dialect", "usage", "output", "reasoning"),
    [
        ("openai-chat", {"usage": {"prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 540}}, 520, 500),
        ("openai-chat", {"usage": {"prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 40}}, 20, None),
        (
            "gemini",
            {"usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 20, "totalTokenCount": 540}},
            520,
            500,
        ),
    ],
)
def test_tokens_that_only_the_total_has_count(dialect: str, usage: object, output: int, reasoning: int | None) -> None:
    """What the total has beyond prompt and answer is hidden output, which is paid for."""
    tokens = {"openai-chat": sse(ONE, TWO, STOP), "gemini": sse(G_ONE, G_TWO, G_LAST)}[dialect]
    sample = whole(dialect, tokens + data(usage))
    assert (sample.output_tokens, sample.reasoning_tokens) == (output, reasoning)
    assert sample.cost_usd == pytest.approx((20 + 10 * output) / 1e6)


def test_no_tokens_beside_text_is_no_count() -> None:
    """A count of 0 beside text is a placeholder: the tokens are estimated, and flagged."""
    usage = {"choices": [], "usage": {"prompt_tokens": 14, "completion_tokens": 0, "total_tokens": 14}}
    sample = whole("openai-chat", sse(ROLE, ONE, TWO, STOP) + data(usage))
    assert (sample.output_tokens, "estimated_tokens" in sample.quality.labels) == (3, True)


def test_full_thinking_has_a_speed() -> None:
    """Thinking with about four characters per output token is no summary: its chunks have a speed."""
    thought = a_delta("thinking_delta", thinking="hmm, ").encode()
    reads = [(0, typed(A_START)), *((100 + 20 * n, thought) for n in range(40))]
    reads += [*((900 + 20 * n, typed(a_delta("text_delta", text="word "))) for n in range(10))]
    sample = replay("anthropic", [*reads, (1100, typed(a_end(output_tokens=50), A_END))])
    assert sample.tokens_per_second == pytest.approx(50.0)
    summary = replay("anthropic", [*reads, (1100, typed(a_end(output_tokens=1011), A_END))])
    assert summary.tokens_per_second is None


SENT = ("stream_options", "temperature", "max_tokens")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"detail": [{"loc": ["body", "stream_options", "x"], "msg": "Extra inputs are not permitted"}]}, SENT[:1]),
        ({"error": {"message": "Unknown parameter.", "param": "stream_options"}}, SENT[:1]),
        ({"error": {"message": "stream_options and temperature are not supported"}}, SENT[:2]),
        ({"error": {"message": "'max_tokens' is not supported, use 'max_completion_tokens'"}}, SENT[2:]),
        ({"error": {"message": "max_tokens must be at least 16"}}, ()),
        ({"error": {"message": "top_temperature, reasoning_effort: not supported"}}, ()),
        ({"error": {"message": "bad", "input": {"temperature": 0}}}, ()),
    ],
)
def test_a_refused_optional_field_is_named(body: object, names: tuple[str, ...]) -> None:
    """Only a field that was sent and that the message names is worth a try; not one in a quoted request."""
    hint = omission_hint(json.dumps(body).encode(), SENT)
    assert re.findall(r"--omit (\w+)", hint) == list(names)
    assert (f"omit: [{', '.join(names)}] in the plan" in hint) is bool(names)


def test_a_last_frame_without_a_blank_line_counts() -> None:
    """Some servers end with the sentinel, or an error, without the blank line of an event."""
    assert whole("openai-chat", TOKENS + b"data: [DONE]").outcome is Outcome.OK
    assert whole("openai-chat", TOKENS + b'data: {"error":"broke"}\n').outcome is Outcome.STREAM_ERROR
    assert whole("openai-chat", TOKENS + b"data: [DO").outcome is Outcome.TRUNCATED


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"html-message":"Internal Server Error"}', "Internal Server Error"),
        (
            b'{"fault":{"faultstring":"Quota of the plan reached","detail":{"errorcode":"q.1"}}}',
            "Quota of the plan reached",
        ),
        (b'{"code":401,"error_description":"the token has expired"}', "the token has expired"),
        (b'data: {"error":{"message":"no worker","code":"500"}}\n\ndata: [DONE]\n\n', "no worker"),
        (b'event: error\nid: 1\ndata: {"message":"no worker"}\n\n', "no worker"),
        (b"data: no worker\n\n", "no worker"),
        (
            b"""{"error":{"message":"1: {'loc': 'body.effort', 'msg': \\"use 'low' or 'high'\\", 'input': 1}"}}""",
            "body.effort: use 'low' or 'high'",
        ),
    ],
)
def test_a_refusal_states_its_message_whatever_its_shape(body: bytes, sentence: str) -> None:
    """Unknown fields with a sentence count, and a refusal that is framed as an event is read as one."""
    assert error_sentence(body) == sentence
