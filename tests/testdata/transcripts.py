"""Transcripts: shortened streams in the formats of real servers, each with its expected sample."""

import json
from dataclasses import dataclass

from isochrone_wire.model import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The bytes of a response body, and the outcome, chunks and tokens that must come of them.

    With `every_ms` the events come so many milliseconds apart, and there are a speed, a first chunk and a cost to them.
    """

    name: str
    body: bytes
    dialect: str = "openai-chat"
    outcome: Outcome = Outcome.OK
    chunks: int = 3
    output_tokens: int | None = 3
    reasoning_tokens: int | None = None
    error: str = ""
    every_ms: int = 0
    tokens_per_second: float | None = None
    first_chunk_tokens: int | None = None
    cost_usd: float | None = None


def sse(*datas: str, end: str = "\n", between: str = "") -> bytes:
    """Return events with these data lines, in this framing."""
    return "".join(f"{between}data: {data}{end}{end}" for data in datas).encode()


ROLE = '{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}'
ONE, TWO, THREE = (
    f'{{"choices":[{{"index":0,"delta":{{"content":"{word}"}},"finish_reason":null}}]}}'
    for word in ("Recursion", " is", " naïve 再帰")
)
STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = '{"choices":[],"usage":{"prompt_tokens":14,"completion_tokens":3,"total_tokens":17}}'
DONE = "[DONE]"
FULL = (ROLE, ONE, TWO, THREE, STOP, USAGE, DONE)
THOUGHT = '{"choices":[{"delta":{"content":null,"reasoning_content":"Let me think"}}]}'
THOUGHT_USAGE = (
    '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":40,'
    '"completion_tokens_details":{"reasoning_tokens":37}}}'
)
TOOL = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"n\\":"}}]}}]}'
LAST_WITH_USAGE = (
    '{"choices":[{"delta":{"content":null},"finish_reason":"length"}],'
    '"usage":{"prompt_tokens":14,"completion_tokens":3,"total_tokens":17}}'
)

OPENAI_CHAT = [
    Transcript(name="openai", body=sse(*FULL)),
    Transcript(name="crlf", body=sse(*FULL, end="\r\n")),
    Transcript(name="lone-cr", body=sse(*FULL, end="\r")),
    Transcript(name="byte-order-mark", body=b"\xef\xbb\xbf" + sse(*FULL)),
    Transcript(name="no-space-after-colon", body=sse(*FULL).replace(b"data: ", b"data:")),
    Transcript(name="openrouter-comments", body=sse(*FULL, between=": OPENROUTER PROCESSING\n\n")),
    Transcript(name="transformers-no-done-usage-in-choice", body=sse(ROLE, ONE, TWO, THREE, LAST_WITH_USAGE)),
    Transcript(name="no-done", body=sse(*FULL[:-1])),
    Transcript(name="no-finish-reason", body=sse(ROLE, ONE, TWO, THREE, USAGE, DONE)),
    Transcript(name="no-usage", body=sse(ROLE, ONE, TWO, THREE, STOP, DONE), output_tokens=6),
    Transcript(name="absurd-usage", body=sse(*FULL).replace(b'tokens":3', b'tokens":-3'), output_tokens=6),
    Transcript(
        name="deepseek-reasoning",
        body=sse(ROLE, THOUGHT, THOUGHT, ONE, STOP, THOUGHT_USAGE, DONE),
        output_tokens=40,
        reasoning_tokens=37,
    ),
    Transcript(name="tool-call", body=sse(ROLE, TOOL, TOOL, TOOL, STOP, USAGE, DONE)),
    Transcript(name="role-only", body=sse(ROLE, STOP, DONE), outcome=Outcome.GARBLED, chunks=0, output_tokens=None),
    Transcript(name="cut", body=sse(ROLE, ONE, TWO), outcome=Outcome.TRUNCATED, chunks=2, output_tokens=3),
    Transcript(
        name="in-band-error",
        body=sse(ROLE, ONE, '{"error":{"message":"overloaded, key sk-abcdef123456","type":"server_error"}}'),
        outcome=Outcome.HTTP_ERROR,
        chunks=1,
        error="error inside the stream: overloaded, key ***",
    ),
    Transcript(
        name="in-band-rate-limit",
        body=sse('{"error":{"message":"slow down","code":429}}'),
        outcome=Outcome.THROTTLED,
        chunks=0,
        output_tokens=None,
    ),
    Transcript(
        name="not-json", body=sse(ONE, "{oops"), outcome=Outcome.GARBLED, chunks=1, error="data that is not JSON"
    ),
    Transcript(
        name="after-the-end",
        body=sse(*FULL, ONE),
        outcome=Outcome.GARBLED,
        error="unexpected Answer in the state 'done'",
    ),
    Transcript(name="empty", body=b"", outcome=Outcome.TRUNCATED, chunks=0, output_tokens=None),
]


def typed(*events: tuple[str, str]) -> bytes:
    """Return events with a type line and a data line, as in Anthropic's, OpenAI responses' and Cohere's APIs."""
    return "".join(f"event: {name}\ndata: {data}\n\n" for name, data in events).encode()


A_START = (
    "message_start",
    (
        '{"type":"message_start","message":{"role":"assistant","content":[],'
        '"usage":{"input_tokens":10,"cache_read_input_tokens":4,"cache_creation_input_tokens":0,"output_tokens":1}}}'
    ),
)
A_BLOCK = ("content_block_start", '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}')
A_PING = ("ping", '{"type":"ping"}')
A_ONE, A_TWO, A_THREE = (
    (
        "content_block_delta",
        f'{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{word}"}}}}',
    )
    for word in ("Recursion", " is", " naïve 再帰")
)
A_THOUGHT = (
    "content_block_delta",
    '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me see"}}',
)
A_SIGNATURE = (
    "content_block_delta",
    '{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq"}}',
)
A_TOOL = (
    "content_block_delta",
    '{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"n\\":"}}',
)
A_TOOL_START = (
    "content_block_start",
    '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}',
)
A_STOP = ("content_block_stop", '{"type":"content_block_stop","index":0}')
A_DELTA = ("message_delta", '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}')
A_END = ("message_stop", '{"type":"message_stop"}')
A_FULL = (A_START, A_BLOCK, A_PING, A_ONE, A_TWO, A_THREE, A_STOP, A_DELTA, A_END)
A_ERROR = ("error", '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')

ANTHROPIC = [
    Transcript(dialect="anthropic", name="anthropic", body=typed(*A_FULL)),
    Transcript(dialect="anthropic", name="anthropic-crlf", body=typed(*A_FULL).replace(b"\n", b"\r\n")),
    Transcript(
        dialect="anthropic",
        name="anthropic-thinking",
        body=typed(A_START, A_THOUGHT, A_SIGNATURE, A_ONE, A_TWO, A_DELTA, A_END),
    ),
    Transcript(
        dialect="anthropic", name="anthropic-tool", body=typed(A_START, A_TOOL_START, A_TOOL, A_TOOL, A_DELTA, A_END)
    ),
    Transcript(
        dialect="anthropic",
        name="anthropic-overloaded",
        body=typed(A_START, A_ONE, A_ERROR),
        outcome=Outcome.HTTP_ERROR,
        chunks=1,
        error="error inside the stream: Overloaded",
    ),
    Transcript(
        dialect="anthropic",
        name="anthropic-cut",
        body=typed(*A_FULL[:-2]),
        outcome=Outcome.TRUNCATED,
        output_tokens=6,
    ),
    Transcript(
        dialect="anthropic",
        name="anthropic-no-text",
        body=typed(A_START, A_BLOCK, A_DELTA, A_END),
        outcome=Outcome.GARBLED,
        chunks=0,
    ),
]

R_CREATED = ("response.created", '{"type":"response.created","response":{"status":"in_progress","usage":null}}')
R_ITEM = ("response.output_item.added", '{"type":"response.output_item.added","item":{"type":"message"}}')
R_PART = (
    "response.content_part.added",
    '{"type":"response.content_part.added","part":{"type":"output_text","text":""}}',
)
R_ONE, R_TWO, R_THREE = (
    ("response.output_text.delta", f'{{"type":"response.output_text.delta","delta":"{word}"}}')
    for word in ("Recursion", " is", " naïve 再帰")
)
R_TEXT_DONE = ("response.output_text.done", '{"type":"response.output_text.done","text":"Recursion is naïve 再帰"}')
R_SUMMARY = (
    "response.reasoning_summary_text.delta",
    '{"type":"response.reasoning_summary_text.delta","delta":"**Thinking**"}',
)
R_COMPLETED = (
    "response.completed",
    (
        '{"type":"response.completed","response":{"usage":{"input_tokens":14,"input_tokens_details":{"cached_tokens":0},'
        '"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0}}}}'
    ),
)
R_FAILED = (
    "response.failed",
    '{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"slow down"}}}',
)
R_FULL = (R_CREATED, R_ITEM, R_PART, R_ONE, R_TWO, R_THREE, R_TEXT_DONE, R_COMPLETED)

OPENAI_RESPONSES = [
    Transcript(dialect="openai-responses", name="responses", body=typed(*R_FULL), reasoning_tokens=0),
    Transcript(
        dialect="openai-responses",
        name="responses-at-its-limit",
        body=typed(*R_FULL).replace(b"response.completed", b"response.incomplete"),
        reasoning_tokens=0,
    ),
    Transcript(
        dialect="openai-responses",
        name="responses-summary",
        body=typed(R_CREATED, R_SUMMARY, R_ONE, R_TWO, R_COMPLETED),
        reasoning_tokens=0,
    ),
    Transcript(
        dialect="openai-responses",
        name="responses-failed",
        body=typed(R_CREATED, R_ONE, R_FAILED),
        outcome=Outcome.THROTTLED,
        chunks=1,
        error="slow down",
    ),
    Transcript(
        dialect="openai-responses",
        name="responses-error",
        body=typed(R_CREATED, ("error", '{"type":"error","code":"server_error","message":"oops"}')),
        outcome=Outcome.HTTP_ERROR,
        chunks=0,
        error="oops",
    ),
    Transcript(
        dialect="openai-responses",
        name="responses-cut",
        body=typed(*R_FULL[:-1]),
        outcome=Outcome.TRUNCATED,
        output_tokens=6,
    ),
]


def gemini_chunk(text: str, *, thought: bool = False, more: str = "") -> str:
    mark = '"thought":true,' if thought else ""
    return f'{{"candidates":[{{"content":{{"parts":[{{{mark}"text":"{text}"}}],"role":"model"}}{more}}}]}}'


G_ONE, G_TWO = gemini_chunk("Recursion"), gemini_chunk(" is")
G_LAST = gemini_chunk(" naïve 再帰", more=',"finishReason":"STOP"')
G_USAGE = (
    '{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}],'
    '"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3,"totalTokenCount":12}}'
)
G_THOUGHT = gemini_chunk("Let me see", thought=True)
G_THOUGHT_USAGE = (
    '{"candidates":[{"finishReason":"MAX_TOKENS"}],'
    '"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3,"thoughtsTokenCount":37}}'
)

GEMINI = [
    Transcript(dialect="gemini", name="gemini", body=sse(G_ONE, G_TWO, gemini_chunk(" x"), G_USAGE, end="\r\n")),
    Transcript(dialect="gemini", name="gemini-no-usage", body=sse(G_ONE, G_TWO, G_LAST), output_tokens=6),
    Transcript(
        dialect="gemini",
        name="gemini-thoughts",
        body=sse(G_THOUGHT, G_ONE, G_TWO, G_THOUGHT_USAGE),
        output_tokens=40,
        reasoning_tokens=37,
    ),
    Transcript(
        dialect="gemini",
        name="gemini-error",
        body=sse(G_ONE, '{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}'),
        outcome=Outcome.THROTTLED,
        chunks=1,
        error="quota",
    ),
    Transcript(
        dialect="gemini",
        name="gemini-blocked",
        body=sse('{"promptFeedback":{"blockReason":"SAFETY"}}'),
        outcome=Outcome.HTTP_ERROR,
        chunks=0,
        error="blocked: SAFETY",
    ),
    Transcript(
        dialect="gemini",
        name="gemini-cut",
        body=sse(G_ONE, G_TWO),
        outcome=Outcome.TRUNCATED,
        chunks=2,
        output_tokens=3,
    ),
]

C_START = ("message-start", '{"type":"message-start","delta":{"message":{"role":"assistant","content":[]}}}')
C_BEGIN = (
    "content-start",
    '{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}',
)
C_ONE, C_TWO, C_THREE = (
    ("content-delta", f'{{"type":"content-delta","index":0,"delta":{{"message":{{"content":{{"text":"{word}"}}}}}}}}')
    for word in ("Recursion", " is", " naïve 再帰")
)
C_THOUGHT = ("content-delta", '{"type":"content-delta","delta":{"message":{"content":{"thinking":"Let me see"}}}}')
C_TOOL = (
    "tool-call-delta",
    '{"type":"tool-call-delta","delta":{"message":{"tool_calls":{"function":{"arguments":"{\\"n\\":"}}}}}',
)
C_END = (
    "message-end",
    (
        '{"type":"message-end","delta":{"finish_reason":"COMPLETE",'
        '"usage":{"billed_units":{"output_tokens":2},"tokens":{"input_tokens":9,"output_tokens":3}}}}'
    ),
)
C_FULL = (C_START, C_BEGIN, C_ONE, C_TWO, C_THREE, ("content-end", '{"type":"content-end","index":0}'), C_END)

COHERE = [
    Transcript(dialect="cohere", name="cohere", body=typed(*C_FULL)),
    Transcript(dialect="cohere", name="cohere-thinking", body=typed(C_START, C_THOUGHT, C_ONE, C_TWO, C_END)),
    Transcript(dialect="cohere", name="cohere-tool", body=typed(C_START, C_TOOL, C_TOOL, C_TOOL, C_END)),
    Transcript(
        dialect="cohere",
        name="cohere-error-end",
        body=typed(
            C_START, C_ONE, ("message-end", '{"type":"message-end","delta":{"finish_reason":"ERROR","error":"broke"}}')
        ),
        outcome=Outcome.HTTP_ERROR,
        chunks=1,
        error="broke",
    ),
    Transcript(
        dialect="cohere",
        name="cohere-cut",
        body=typed(*C_FULL[:-1]),
        outcome=Outcome.TRUNCATED,
        output_tokens=6,
    ),
]


def chat_chunk(**delta: object) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def chat_usage(*, prompt: int, completion: int, reasoning: int, total: int) -> str:
    details = {"reasoning_tokens": reasoning}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return json.dumps({"choices": [], "usage": usage | {"completion_tokens_details": details}})


def counted(chunk: str, *, completion: int) -> str:
    """Return a chunk with the counts so far, like vLLM with `continuous_usage_stats`."""
    usage = {"prompt_tokens": 9, "completion_tokens": completion, "total_tokens": 9 + completion}
    return json.dumps(json.loads(chunk) | {"usage": usage})


def anthropic_end(**usage: object) -> tuple[str, str]:
    message = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    return "message_delta", json.dumps(message)


def gemini_counted(text: str, *, said: int, thought: int, more: str = "") -> str:
    """Return a chunk with the counts so far; like Gemini, it omits counts of zero."""
    usage = {"promptTokenCount": 9, "totalTokenCount": 9 + said + thought}
    usage |= {"candidatesTokenCount": said} if said else {}
    usage |= {"thoughtsTokenCount": thought} if thought else {}
    chunk = json.loads(gemini_chunk(text, thought=not said, more=more))
    return json.dumps(chunk | {"usageMetadata": usage})


# Eleven pieces of the answer, a tenth of a second from first to last.
EVERY_MS = 10
WORD = chat_chunk(content="word ")
MUSED = chat_chunk(reasoning_content="hmm, ")
A_WORD = (
    "content_block_delta",
    '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"word "}}',
)
A_THINKING = (
    "content_block_start",
    '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
)
A_REDACTED = (
    "content_block_start",
    '{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"RXF1"}}',
)
A_WITH_THOUGHTS = anthropic_end(output_tokens=1011, output_tokens_details={"thinking_tokens": 1000})
A_ALL_TOGETHER = anthropic_end(output_tokens=1011)
R_WORD = ("response.output_text.delta", '{"type":"response.output_text.delta","delta":"word "}')
R_DIGEST = (
    "response.reasoning_summary_text.delta",
    json.dumps({"type": "response.reasoning_summary_text.delta", "delta": "I think. " * 80}),
)
R_REASONED = (
    "response.completed",
    (
        '{"type":"response.completed","response":{"usage":{"input_tokens":9,'
        '"output_tokens":1011,"output_tokens_details":{"reasoning_tokens":1000}}}}'
    ),
)
G_END = ',"finishReason":"STOP"'
DIGEST = chat_chunk(
    reasoning="I think. " * 200, reasoning_details=[{"type": "reasoning.summary", "summary": "I think. " * 200}]
)

REASONERS = [
    Transcript(
        dialect="openai-responses",
        name="responses-digest-paced",
        body=typed(R_CREATED, R_DIGEST, R_DIGEST, *[R_WORD] * 11, R_REASONED),
        chunks=13,
        output_tokens=1011,
        reasoning_tokens=1000,
        every_ms=EVERY_MS,
        tokens_per_second=100.0,
        first_chunk_tokens=1,
        cost_usd=0.010119,
    ),
    Transcript(
        dialect="anthropic",
        name="anthropic-digest-counted-apart",
        body=typed(
            A_START, A_THINKING, A_THOUGHT, A_SIGNATURE, A_STOP, A_BLOCK, *[A_WORD] * 11, A_WITH_THOUGHTS, A_END
        ),
        chunks=12,
        output_tokens=1011,
        reasoning_tokens=1000,
        every_ms=EVERY_MS,
        tokens_per_second=100.0,
        first_chunk_tokens=1,
        cost_usd=0.010124,
    ),
    Transcript(
        dialect="anthropic",
        name="anthropic-digest-not-counted-apart",
        body=typed(A_START, A_THOUGHT, A_SIGNATURE, A_STOP, A_BLOCK, *[A_WORD] * 11, A_ALL_TOGETHER, A_END),
        chunks=12,
        output_tokens=1011,
        every_ms=EVERY_MS,
        cost_usd=0.010124,
    ),
    Transcript(
        dialect="anthropic",
        name="anthropic-thoughts-omitted",
        body=typed(A_START, A_THINKING, A_SIGNATURE, A_STOP, A_BLOCK, *[A_WORD] * 11, A_ALL_TOGETHER, A_END),
        chunks=11,
        output_tokens=1011,
        every_ms=EVERY_MS,
        cost_usd=0.010124,
    ),
    Transcript(
        dialect="anthropic",
        name="anthropic-thoughts-redacted",
        body=typed(A_START, A_REDACTED, A_STOP, A_BLOCK, *[A_WORD] * 11, A_ALL_TOGETHER, A_END),
        chunks=11,
        output_tokens=1011,
        every_ms=EVERY_MS,
        cost_usd=0.010124,
    ),
    Transcript(
        dialect="gemini",
        name="gemini-thoughts-hidden-usage-everywhere",
        body=sse(
            *[gemini_counted("ten words ", said=10 * n, thought=500) for n in range(1, 11)],
            gemini_counted("ten words ", said=110, thought=500, more=G_END),
            end="\r\n",
        ),
        chunks=11,
        output_tokens=610,
        reasoning_tokens=500,
        every_ms=EVERY_MS,
        tokens_per_second=1000.0,
        first_chunk_tokens=10,
        cost_usd=0.006109,
    ),
    Transcript(
        dialect="gemini",
        name="gemini-thoughts-in-digest-usage-everywhere",
        body=sse(
            *[gemini_counted("**Looking** at it from afar. " * 20, said=0, thought=250 * n) for n in (1, 2)],
            *[gemini_counted("ten words ", said=4 + 10 * n, thought=500) for n in range(1, 11)],
            gemini_counted("ten words ", said=114, thought=500, more=G_END),
            end="\r\n",
        ),
        chunks=13,
        output_tokens=614,
        reasoning_tokens=500,
        every_ms=EVERY_MS,
        tokens_per_second=1000.0,
        first_chunk_tokens=14,
        cost_usd=0.006149,
    ),
    Transcript(
        dialect="gemini",
        name="gemini-cut-in-thought",
        body=sse(*[gemini_counted("**Looking** at it.", said=0, thought=100 * n) for n in (1, 2, 3)]),
        outcome=Outcome.TRUNCATED,
        output_tokens=300,
        reasoning_tokens=300,
    ),
    Transcript(
        dialect="gemini",
        name="gemini-nothing-but-thoughts",
        body=sse('{"candidates":[{"finishReason":"MAX_TOKENS"}],"usageMetadata":{"thoughtsTokenCount":200}}'),
        outcome=Outcome.GARBLED,
        chunks=0,
        reasoning_tokens=200,
        error="all output tokens were used by hidden reasoning",
    ),
    Transcript(
        name="xai-hidden",
        body=sse(ROLE, *[WORD] * 11, STOP, chat_usage(prompt=9, completion=11, reasoning=94, total=114), DONE),
        chunks=11,
        output_tokens=105,
        reasoning_tokens=94,
        every_ms=EVERY_MS,
        tokens_per_second=100.0,
        first_chunk_tokens=1,
        cost_usd=0.001059,
    ),
    Transcript(
        name="xai-aloud",
        body=sse(*[MUSED] * 9, *[WORD] * 11, STOP, chat_usage(prompt=9, completion=11, reasoning=9, total=29), DONE),
        chunks=20,
        output_tokens=20,
        reasoning_tokens=9,
        every_ms=EVERY_MS,
        tokens_per_second=100.0,
        first_chunk_tokens=1,
        cost_usd=0.000209,
    ),
    Transcript(
        name="deepseek-aloud",
        body=sse(*[MUSED] * 9, *[WORD] * 11, STOP, chat_usage(prompt=9, completion=20, reasoning=9, total=29), DONE),
        chunks=20,
        output_tokens=20,
        reasoning_tokens=9,
        every_ms=EVERY_MS,
        tokens_per_second=100.0,
        first_chunk_tokens=1,
        cost_usd=0.000209,
    ),
    Transcript(
        name="vllm-aloud-usage-everywhere",
        body=sse(
            *[counted(MUSED, completion=n) for n in range(1, 10)],
            *[counted(WORD, completion=9 + n) for n in range(1, 12)],
            STOP,
            DONE,
        ),
        chunks=20,
        output_tokens=20,
        every_ms=EVERY_MS,
        tokens_per_second=100.0,
        first_chunk_tokens=1,
        cost_usd=0.000209,
    ),
    Transcript(
        name="openrouter-digest",
        body=sse(DIGEST, *[WORD] * 11, STOP, chat_usage(prompt=9, completion=1011, reasoning=1000, total=1020), DONE),
        chunks=12,
        output_tokens=1011,
        reasoning_tokens=1000,
        every_ms=EVERY_MS,
        tokens_per_second=100.0,
        first_chunk_tokens=1,
        cost_usd=0.010119,
    ),
    Transcript(
        name="a-digest-that-does-not-say-so",
        body=sse(MUSED, *[WORD] * 11, STOP, chat_usage(prompt=9, completion=1011, reasoning=1000, total=1020), DONE),
        chunks=12,
        output_tokens=1011,
        reasoning_tokens=1000,
        every_ms=EVERY_MS,
        tokens_per_second=100.0,
        first_chunk_tokens=1,
        cost_usd=0.010119,
    ),
    Transcript(
        name="openai-nothing-but-reasoning",
        body=sse(ROLE, STOP, chat_usage(prompt=9, completion=200, reasoning=200, total=209), DONE),
        outcome=Outcome.GARBLED,
        chunks=0,
        reasoning_tokens=200,
        error="all output tokens were used by hidden reasoning",
    ),
    Transcript(
        dialect="anthropic",
        name="anthropic-nothing-but-thinking",
        body=typed(A_START, A_THINKING, A_SIGNATURE, A_STOP, anthropic_end(output_tokens=200), A_END),
        outcome=Outcome.GARBLED,
        chunks=0,
        error="all output tokens were used by hidden reasoning",
    ),
    Transcript(
        name="deepseek-out-of-resources",
        body=sse(ONE, '{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}', DONE),
        outcome=Outcome.HTTP_ERROR,
        chunks=1,
        error="the provider failed: insufficient_system_resource",
    ),
]
EVERY = [*OPENAI_CHAT, *ANTHROPIC, *OPENAI_RESPONSES, *GEMINI, *COHERE, *REASONERS]
