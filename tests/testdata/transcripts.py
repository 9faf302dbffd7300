"""Transcripts: shortened streams in the formats of real servers, each with its expected sample, and their replay."""

import json
import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from isochrone_agent.probe.measurement import Measurement
from isochrone_common.dialects import DIALECTS
from isochrone_common.dialects.reader import ResponseReader
from isochrone_common.dialects.signals import Failed, Opened, Sent
from isochrone_common.sse import SseOverflow
from isochrone_wire.model import Outcome, Price, Sample

MS = 1_000_000
PRICE = Price(usd_per_m_input=1.0, usd_per_m_output=10.0)
WORDS = ("Recursion", " is", " naïve 再帰")


@dataclass(frozen=True, slots=True)
class Transcript:
    """The bytes of a response body, and the expected outcome, chunks and tokens; with `every_ms`, the milliseconds
    between events, also the speed, the first chunk and the cost.
    """

    dialect: str
    name: str
    body: bytes
    _: KW_ONLY
    outcome: Outcome = Outcome.OK
    chunks: int = 3
    output_tokens: int | None = 3
    reasoning_tokens: int | None = None
    error: str = ""
    every_ms: int = 0
    tokens_per_second: float | None = None
    first_chunk_tokens: int | None = None
    cost_usd: float | None = None


def replay(dialect: str, reads: Iterable[tuple[int, bytes]]) -> Sample:
    """Return the sample of a stream whose reads arrived at these milliseconds after the request was sent at 0."""
    measurement, reader, at_ns = Measurement(), ResponseReader(DIALECTS[dialect]), 0
    measurement.observe(Sent(), 0)
    measurement.observe(Opened(status=200), 0)
    try:
        for at_ms, data in reads:
            at_ns = at_ms * MS
            for signal in reader.receive(data):
                measurement.observe(signal, at_ns)
        for signal in reader.end():
            measurement.observe(signal, at_ns)
    except SseOverflow as error:
        measurement.observe(Failed(outcome=Outcome.GARBLED, error=str(error)), at_ns)
    return measurement.sample(target_id=1, round_at=0, dispatched_at=0, price=PRICE)


def arrivals(transcript: bytes, every_ms: int) -> list[tuple[int, bytes]]:
    """Return one read of everything, 100 ms after the request, or one read per event, `every_ms` milliseconds apart."""
    if not every_ms:
        return [(100, transcript)]
    events = re.findall(rb".+?(?:\r\n\r\n|\n\n)", transcript, re.DOTALL)
    return [(100 + every_ms * number, event) for number, event in enumerate(events)]


def whole(dialect: str, transcript: bytes) -> Sample:
    """Return the sample of a transcript that arrives in one read, 100 ms after the request."""
    return replay(dialect, [(100, transcript)])


def sse(*datas: str, end: str = "\n", between: str = "") -> bytes:
    """Return events with these data lines, in this framing."""
    return "".join(f"{between}data: {data}{end}{end}" for data in datas).encode()


def compact(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def event(kind: str, **parts: Any) -> str:
    """Return an event with a type line and a data line, as in Anthropic's, OpenAI responses' and Cohere's APIs."""
    return f"event: {kind}\ndata: {compact({'type': kind, **parts})}\n\n"


def typed(*events: str) -> bytes:
    return "".join(events).encode()


def chat_chunk(**delta: object) -> str:
    return compact({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def chat_usage(*, prompt: int, completion: int, reasoning: int, total: int) -> str:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return compact({"choices": [], "usage": usage | {"completion_tokens_details": {"reasoning_tokens": reasoning}}})


def counted(chunk: str, *, completion: int) -> str:
    """Return a chunk with the counts so far, like vLLM with `continuous_usage_stats`."""
    usage = {"prompt_tokens": 9, "completion_tokens": completion, "total_tokens": 9 + completion}
    return compact(json.loads(chunk) | {"usage": usage})


def gemini_chunk(text: str, *, thought: bool = False, more: str = "") -> str:
    mark = '"thought":true,' if thought else ""
    return f'{{"candidates":[{{"content":{{"parts":[{{{mark}"text":"{text}"}}],"role":"model"}}{more}}}]}}'


def gemini_counted(text: str, *, said: int, thought: int, more: str = "") -> str:
    """Return a chunk with the counts so far; like Gemini, it omits counts of zero."""
    usage = {"promptTokenCount": 9, "totalTokenCount": 9 + said + thought}
    usage |= {"candidatesTokenCount": said} if said else {}
    usage |= {"thoughtsTokenCount": thought} if thought else {}
    return compact(json.loads(gemini_chunk(text, thought=not said, more=more)) | {"usageMetadata": usage})


ROLE = chat_chunk(role="assistant", content="")
ONE, TWO, THREE = (chat_chunk(content=word) for word in WORDS)
STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = '{"choices":[],"usage":{"prompt_tokens":14,"completion_tokens":3,"total_tokens":17}}'
DONE = "[DONE]"
FULL = (ROLE, ONE, TWO, THREE, STOP, USAGE, DONE)
THOUGHT = '{"choices":[{"delta":{"content":null,"reasoning_content":"Let me think"}}]}'
THOUGHT_USAGE = chat_usage(prompt=9, completion=40, reasoning=37, total=49)
TOOL = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"n\\":"}}]}}]}'
LAST_WITH_USAGE = USAGE.replace("[]", '[{"delta":{"content":null},"finish_reason":"length"}]')
FAILURE = '{"error":{"message":"overloaded, key sk-abcdef123456","type":"server_error"}}'
OVERLOADED = "error inside the stream: overloaded, key ***"

chat = partial(Transcript, "openai-chat")
OPENAI_CHAT = [
    chat("openai", sse(*FULL)),
    chat("crlf", sse(*FULL, end="\r\n")),
    chat("lone-cr", sse(*FULL, end="\r")),
    chat("byte-order-mark", b"\xef\xbb\xbf" + sse(*FULL)),
    chat("no-space-after-colon", sse(*FULL).replace(b"data: ", b"data:")),
    chat("openrouter-comments", sse(*FULL, between=": OPENROUTER PROCESSING\n\n")),
    chat("transformers-no-done-usage-in-choice", sse(ROLE, ONE, TWO, THREE, LAST_WITH_USAGE)),
    chat("no-done", sse(*FULL[:-1])),
    chat("no-finish-reason", sse(ROLE, ONE, TWO, THREE, USAGE, DONE)),
    chat("no-usage", sse(ROLE, ONE, TWO, THREE, STOP, DONE), output_tokens=6),
    chat("absurd-usage", sse(*FULL).replace(b'tokens":3', b'tokens":-3'), output_tokens=6),
    chat(
        "deepseek-reasoning",
        sse(ROLE, THOUGHT, THOUGHT, ONE, STOP, THOUGHT_USAGE, DONE),
        output_tokens=40,
        reasoning_tokens=37,
    ),
    chat("tool-call", sse(ROLE, TOOL, TOOL, TOOL, STOP, USAGE, DONE)),
    chat("role-only", sse(ROLE, STOP, DONE), outcome=Outcome.EMPTY, chunks=0, output_tokens=None),
    chat("cut", sse(ROLE, ONE, TWO), outcome=Outcome.TRUNCATED, chunks=2, output_tokens=3),
    chat("in-band-error", sse(ROLE, ONE, FAILURE), outcome=Outcome.STREAM_ERROR, chunks=1, error=OVERLOADED),
    chat(
        "in-band-rate-limit",
        sse('{"error":{"message":"slow down","code":429}}'),
        outcome=Outcome.THROTTLED,
        chunks=0,
        output_tokens=None,
    ),
    chat("not-json", sse(ONE, "{oops"), outcome=Outcome.TRUNCATED, chunks=1, error="without its terminal marker"),
    chat("not-json-inside", sse("{oops", *FULL)),
    chat("after-the-end", sse(*FULL, ONE)),
    chat("empty", b"", outcome=Outcome.TRUNCATED, chunks=0, output_tokens=None),
]


def a_block(block: str, index: int = 0, **parts: Any) -> str:
    return event("content_block_start", index=index, content_block={"type": block, **parts})


def a_delta(delta: str, index: int = 0, **parts: Any) -> str:
    return event("content_block_delta", index=index, delta={"type": delta, **parts})


def a_end(**usage: object) -> str:
    return event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage)


A_USAGE = {"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": 1}
A_START = event("message_start", message={"role": "assistant", "content": [], "usage": A_USAGE})
A_BLOCK = a_block("text", text="")
A_PING = event("ping")
A_ONE, A_TWO, A_THREE = (a_delta("text_delta", text=word) for word in WORDS)
A_THOUGHT = a_delta("thinking_delta", thinking="Let me see")
A_SIGNATURE = a_delta("signature_delta", signature="Eq")
A_TOOL_START = a_block("tool_use", 1, id="t", name="f", input={})
A_TOOL = a_delta("input_json_delta", 1, partial_json='{"n":')
A_STOP = event("content_block_stop", index=0)
A_DELTA = a_end(output_tokens=3)
A_END = event("message_stop")
A_FULL = (A_START, A_BLOCK, A_PING, A_ONE, A_TWO, A_THREE, A_STOP, A_DELTA, A_END)
A_ERROR = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
A_OVERLOADED = "error inside the stream: Overloaded"

claude = partial(Transcript, "anthropic")
ANTHROPIC = [
    claude("anthropic", typed(*A_FULL)),
    claude("anthropic-crlf", typed(*A_FULL).replace(b"\n", b"\r\n")),
    claude("anthropic-thinking", typed(A_START, A_THOUGHT, A_SIGNATURE, A_ONE, A_TWO, A_DELTA, A_END)),
    claude("anthropic-tool", typed(A_START, A_TOOL_START, A_TOOL, A_TOOL, A_DELTA, A_END)),
    claude(
        "anthropic-overloaded",
        typed(A_START, A_ONE, A_ERROR),
        outcome=Outcome.STREAM_ERROR,
        chunks=1,
        error=A_OVERLOADED,
    ),
    claude("anthropic-cut", typed(*A_FULL[:-2]), outcome=Outcome.TRUNCATED, output_tokens=6),
    claude("anthropic-no-text", typed(A_START, A_BLOCK, A_DELTA, A_END), outcome=Outcome.EMPTY, chunks=0),
]


def r_text(word: str) -> str:
    return event("response.output_text.delta", delta=word)


def r_summary(text: str) -> str:
    return event("response.reasoning_summary_text.delta", delta=text)


def r_completed(*, prompt: int, output: int, reasoning: int) -> str:
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": reasoning}}
    usage = {"input_tokens": prompt, "output_tokens": output, **details}
    return event("response.completed", response={"usage": usage})


R_CREATED = event("response.created", response={"status": "in_progress", "usage": None})
R_ITEM = event("response.output_item.added", item={"type": "message"})
R_PART = event("response.content_part.added", part={"type": "output_text", "text": ""})
R_ONE, R_TWO, R_THREE = map(r_text, WORDS)
R_TEXT_DONE = event("response.output_text.done", text="".join(WORDS))
R_COMPLETED = r_completed(prompt=14, output=3, reasoning=0)
R_FAILED = event("response.failed", response={"error": {"code": "rate_limit_exceeded", "message": "slow down"}})
R_ERROR = event("error", code="server_error", message="oops")
R_FULL = (R_CREATED, R_ITEM, R_PART, R_ONE, R_TWO, R_THREE, R_TEXT_DONE, R_COMPLETED)
R_INCOMPLETE = typed(*R_FULL).replace(b"response.completed", b"response.incomplete")
R_SUMMARISED = typed(R_CREATED, r_summary("**Thinking**"), R_ONE, R_TWO, R_COMPLETED)

responses = partial(Transcript, "openai-responses")
OPENAI_RESPONSES = [
    responses("responses", typed(*R_FULL), reasoning_tokens=0),
    responses("responses-at-its-limit", R_INCOMPLETE, reasoning_tokens=0),
    responses("responses-summary", R_SUMMARISED, reasoning_tokens=0),
    responses(
        "responses-failed",
        typed(R_CREATED, R_ONE, R_FAILED),
        outcome=Outcome.THROTTLED,
        chunks=1,
        error="slow down",
    ),
    responses("responses-error", typed(R_CREATED, R_ERROR), outcome=Outcome.STREAM_ERROR, chunks=0, error="oops"),
    responses("responses-cut", typed(*R_FULL[:-1]), outcome=Outcome.TRUNCATED, output_tokens=6),
]

G_END = ',"finishReason":"STOP"'
G_ONE, G_TWO = gemini_chunk("Recursion"), gemini_chunk(" is")
G_LAST = gemini_chunk(" naïve 再帰", more=G_END)
G_USAGE = (
    '{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}],'
    '"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3,"totalTokenCount":12}}'
)
G_THOUGHT = gemini_chunk("Let me see", thought=True)
G_THOUGHT_USAGE = (
    '{"candidates":[{"finishReason":"MAX_TOKENS"}],'
    '"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3,"thoughtsTokenCount":37}}'
)
G_ERROR = '{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}'
G_BLOCKED = '{"promptFeedback":{"blockReason":"SAFETY"}}'
G_THOUGHTS = sse(G_THOUGHT, G_ONE, G_TWO, G_THOUGHT_USAGE)

gemini = partial(Transcript, "gemini")
GEMINI = [
    gemini("gemini", sse(G_ONE, G_TWO, gemini_chunk(" x"), G_USAGE, end="\r\n")),
    gemini("gemini-no-usage", sse(G_ONE, G_TWO, G_LAST), output_tokens=6),
    gemini("gemini-thoughts", G_THOUGHTS, output_tokens=40, reasoning_tokens=37),
    gemini("gemini-error", sse(G_ONE, G_ERROR), outcome=Outcome.THROTTLED, chunks=1, error="quota"),
    gemini("gemini-blocked", sse(G_BLOCKED), outcome=Outcome.FILTERED, chunks=0, error="blocked: SAFETY"),
    gemini("gemini-cut", sse(G_ONE, G_TWO), outcome=Outcome.TRUNCATED, chunks=2, output_tokens=3),
]


def c_content(**parts: str) -> str:
    return event("content-delta", index=0, delta={"message": {"content": parts}})


C_START = event("message-start", delta={"message": {"role": "assistant", "content": []}})
C_BEGIN = event("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}})
C_ONE, C_TWO, C_THREE = (c_content(text=word) for word in WORDS)
C_THOUGHT = c_content(thinking="Let me see")
C_TOOL = event("tool-call-delta", delta={"message": {"tool_calls": {"function": {"arguments": '{"n":'}}}})
C_USAGE = {"billed_units": {"output_tokens": 2}, "tokens": {"input_tokens": 9, "output_tokens": 3}}
C_END = event("message-end", delta={"finish_reason": "COMPLETE", "usage": C_USAGE})
C_ERROR_END = event("message-end", delta={"finish_reason": "ERROR", "error": "broke"})
C_FULL = (C_START, C_BEGIN, C_ONE, C_TWO, C_THREE, event("content-end", index=0), C_END)

cohere = partial(Transcript, "cohere")
COHERE = [
    cohere("cohere", typed(*C_FULL)),
    cohere("cohere-thinking", typed(C_START, C_THOUGHT, C_ONE, C_TWO, C_END)),
    cohere("cohere-tool", typed(C_START, C_TOOL, C_TOOL, C_TOOL, C_END)),
    cohere(
        "cohere-error-end",
        typed(C_START, C_ONE, C_ERROR_END),
        outcome=Outcome.STREAM_ERROR,
        chunks=1,
        error="broke",
    ),
    cohere("cohere-cut", typed(*C_FULL[:-1]), outcome=Outcome.TRUNCATED, output_tokens=6),
]

# Eleven pieces of the answer, a tenth of a second from first to last; a thousand hidden tokens.
EVERY_MS = 10
HIDDEN: dict[str, Any] = {"every_ms": EVERY_MS, "chunks": 12, "output_tokens": 1011}
APART = HIDDEN | {"reasoning_tokens": 1000, "tokens_per_second": 100.0, "first_chunk_tokens": 1, "cost_usd": 0.010119}
TOGETHER = HIDDEN | {"chunks": 11, "cost_usd": 0.010124}
ALOUD = APART | {"chunks": 20, "output_tokens": 20, "reasoning_tokens": 9, "cost_usd": 0.000209}
GEMINI_APART = APART | {"chunks": 11, "reasoning_tokens": 500, "tokens_per_second": 1000.0}
USED_UP: dict[str, Any] = {
    "outcome": Outcome.EMPTY,
    "chunks": 0,
    "error": "all output tokens were used by hidden reasoning",
}
WORD = chat_chunk(content="word ")
MUSED = chat_chunk(reasoning_content="hmm, ")
A_WORD = a_delta("text_delta", 1, text="word ")
A_THINKING = a_block("thinking", thinking="", signature="")
A_REDACTED = a_block("redacted_thinking", data="RXF1")
A_WITH_THOUGHTS = a_end(output_tokens=1011, output_tokens_details={"thinking_tokens": 1000})
A_ALL_TOGETHER = a_end(output_tokens=1011)
A_WORDS = (A_STOP, A_BLOCK, *[A_WORD] * 11)
R_DIGEST = r_summary("I think. " * 80)
R_REASONED = r_completed(prompt=9, output=1011, reasoning=1000)
DIGEST = chat_chunk(
    reasoning="I think. " * 200, reasoning_details=[{"type": "reasoning.summary", "summary": "I think. " * 200}]
)
CHAT_REASONED = chat_usage(prompt=9, completion=1011, reasoning=1000, total=1020)
G_WORDS = [gemini_counted("ten words ", said=10 * n, thought=500) for n in range(1, 11)]
G_LATER_WORDS = [gemini_counted("ten words ", said=4 + 10 * n, thought=500) for n in range(1, 11)]
G_DIGEST = [gemini_counted("**Looking** at it from afar. " * 20, said=0, thought=250 * n) for n in (1, 2)]
NO_RESOURCES = '{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}'

REASONERS = [
    responses(
        "responses-digest-paced",
        typed(R_CREATED, R_DIGEST, R_DIGEST, *[r_text("word ")] * 11, R_REASONED),
        **APART | {"chunks": 13},
    ),
    claude(
        "anthropic-digest-counted-apart",
        typed(A_START, A_THINKING, A_THOUGHT, A_SIGNATURE, *A_WORDS, A_WITH_THOUGHTS, A_END),
        **APART | {"cost_usd": 0.010124},
    ),
    claude(
        "anthropic-digest-not-counted-apart",
        typed(A_START, A_THOUGHT, A_SIGNATURE, *A_WORDS, A_ALL_TOGETHER, A_END),
        **TOGETHER | {"chunks": 12},
    ),
    claude(
        "anthropic-thoughts-omitted",
        typed(A_START, A_THINKING, A_SIGNATURE, *A_WORDS, A_ALL_TOGETHER, A_END),
        **TOGETHER,
    ),
    claude("anthropic-thoughts-redacted", typed(A_START, A_REDACTED, *A_WORDS, A_ALL_TOGETHER, A_END), **TOGETHER),
    gemini(
        "gemini-thoughts-hidden-usage-everywhere",
        sse(*G_WORDS, gemini_counted("ten words ", said=110, thought=500, more=G_END), end="\r\n"),
        **GEMINI_APART | {"output_tokens": 610, "first_chunk_tokens": 10, "cost_usd": 0.006109},
    ),
    gemini(
        "gemini-thoughts-in-digest-usage-everywhere",
        sse(*G_DIGEST, *G_LATER_WORDS, gemini_counted("ten words ", said=114, thought=500, more=G_END), end="\r\n"),
        **GEMINI_APART | {"chunks": 13, "output_tokens": 614, "first_chunk_tokens": 14, "cost_usd": 0.006149},
    ),
    gemini(
        "gemini-cut-in-thought",
        sse(*[gemini_counted("**Looking** at it.", said=0, thought=100 * n) for n in (1, 2, 3)]),
        outcome=Outcome.TRUNCATED,
        output_tokens=300,
        reasoning_tokens=300,
    ),
    gemini(
        "gemini-nothing-but-thoughts",
        sse('{"candidates":[{"finishReason":"MAX_TOKENS"}],"usageMetadata":{"thoughtsTokenCount":200}}'),
        **USED_UP | {"reasoning_tokens": 200},
    ),
    chat(
        "xai-hidden",
        sse(ROLE, *[WORD] * 11, STOP, chat_usage(prompt=9, completion=11, reasoning=94, total=114), DONE),
        **APART | {"chunks": 11, "output_tokens": 105, "reasoning_tokens": 94, "cost_usd": 0.001059},
    ),
    chat(
        "xai-aloud",
        sse(*[MUSED] * 9, *[WORD] * 11, STOP, chat_usage(prompt=9, completion=11, reasoning=9, total=29), DONE),
        **ALOUD,
    ),
    chat(
        "deepseek-aloud",
        sse(*[MUSED] * 9, *[WORD] * 11, STOP, chat_usage(prompt=9, completion=20, reasoning=9, total=29), DONE),
        **ALOUD,
    ),
    chat(
        "vllm-aloud-usage-everywhere",
        sse(
            *[counted(MUSED, completion=n) for n in range(1, 10)],
            *[counted(WORD, completion=9 + n) for n in range(1, 12)],
            *(STOP, DONE),
        ),
        **ALOUD | {"reasoning_tokens": None},
    ),
    chat("openrouter-digest", sse(DIGEST, *[WORD] * 11, STOP, CHAT_REASONED, DONE), **APART),
    chat("a-digest-that-does-not-say-so", sse(MUSED, *[WORD] * 11, STOP, CHAT_REASONED, DONE), **APART),
    chat(
        "openai-nothing-but-reasoning",
        sse(ROLE, STOP, chat_usage(prompt=9, completion=200, reasoning=200, total=209), DONE),
        **USED_UP | {"reasoning_tokens": 200},
    ),
    claude(
        "anthropic-nothing-but-thinking",
        typed(A_START, A_THINKING, A_SIGNATURE, A_STOP, a_end(output_tokens=200), A_END),
        **USED_UP,
    ),
    chat(
        "deepseek-out-of-resources",
        sse(ONE, NO_RESOURCES, DONE),
        outcome=Outcome.STREAM_ERROR,
        chunks=1,
        error="the provider failed: insufficient_system_resource",
    ),
]
EVERY = [*OPENAI_CHAT, *ANTHROPIC, *OPENAI_RESPONSES, *GEMINI, *COHERE, *REASONERS]
