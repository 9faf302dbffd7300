"""Google's Gemini: `POST /v1beta/models/MODEL:streamGenerateContent?alt=sse`, and `:generateContent` without a stream.

Every event is a complete response object with the new parts and the usage so far. The stream has no opening event, and
`finishReason` ends it. A function call is sent as a whole when it is complete.
"""

import re
from typing import Any
from urllib.parse import unquote

from isochrone_sim.dialects.base import (
    RAW_EVENTS,
    EventRenderers,
    Renderer,
    ResponseMetadata,
    arguments_in,
    data_event,
    finish_reason,
    message_texts,
    model_name,
    object_or_empty,
    parse_body,
    quoted,
    temperature,
    text_by_channel,
    to_json,
    token_limit,
    tool_name,
)
from isochrone_sim.errors import RequestRefused
from isochrone_sim.requests import ErrorResponse, Request, RequestParameters, count_prompt_tokens, find_nonce, invalid
from isochrone_sim.script import Channel, Kind, Script, Step, Usage

_PATH = re.compile(r"/v1beta/models/([^:]+):(streamGenerateContent|generateContent)")
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_REASONS = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}
_BUDGETS = ((16_384, "high"), (4096, "medium"), (1, "low"), (0, "none"))
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


class Gemini:
    """See `Dialect`."""

    name = "gemini"
    retry_after = False

    def serves(self, path: str) -> bool:
        """See `Dialect.serves`."""
        return _PATH.fullmatch(path) is not None

    def key(self, request: Request) -> str | None:
        """See `Dialect.key`: the header `x-goog-api-key`, or `key` in the query."""
        return request.headers.get("x-goog-api-key") or request.query.get("key")

    def read(self, request: Request) -> RequestParameters:
        """See `Dialect.read`. A stream without `alt=sse`, which would be one JSON list, is refused."""
        named = _PATH.fullmatch(request.path)
        stream = named is not None and named[2] == "streamGenerateContent"
        if stream and request.query.get("alt") != "sse":
            raise RequestRefused(invalid("Streaming requires alt=sse.", param="alt"))
        fields = parse_body(request.body)
        config = object_or_empty(fields.get("generationConfig"))
        thinking = object_or_empty(config.get("thinkingConfig"))
        texts = message_texts(fields.get("contents"), param="contents", content="parts")
        return RequestParameters(
            model=model_name(unquote(named[1]) if named else None),
            stream=stream,
            max_tokens=token_limit(config, "maxOutputTokens"),
            temperature=temperature(config),
            reasoning_effort=_effort(thinking),
            hidden_reasoning=bool(thinking) and thinking.get("includeThoughts") is not True,
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def renderer(self, parameters: RequestParameters, metadata: ResponseMetadata, usage: Usage | None) -> Renderer:
        """See `Dialect.renderer`."""
        return _Renderer(metadata, usage, hidden_reasoning=parameters.hidden_reasoning)

    def headers(self, metadata: ResponseMetadata) -> dict[str, str]:
        """See `Dialect.headers`. Google has no request id; this one leads to the ground truth."""
        return {"x-request-id": metadata.request_id, "server-timing": f"gfet4t7; dur={metadata.processing_us // 1000}"}

    def error_body(self, response: ErrorResponse) -> bytes:
        """See `Dialect.error_body`."""
        error = _error(response.status, response.message)
        if response.retry_after_us is not None:
            error["details"] = [{"@type": _RETRY_INFO, "retryDelay": f"{response.retry_after_us / 1e6:g}s"}]
        return to_json({"error": error})


class _Renderer:
    """Counts the tokens sent, because usage is cumulative; the constant part of the chunks is rendered once."""

    newline = b"\r\n"

    def __init__(self, metadata: ResponseMetadata, usage: Usage | None, *, hidden_reasoning: bool) -> None:
        self._about = {"modelVersion": metadata.model, "responseId": metadata.number}
        self._after = b"," + to_json(self._about)[1:]
        self._usage = usage
        self._hidden_reasoning = hidden_reasoning
        self._counted = dict.fromkeys(Channel, 0)
        self._tool: str | None = None
        self._arguments: list[str] = []
        self._renderers: EventRenderers = {
            **RAW_EVENTS,
            Kind.NULL: lambda _: self._chunk([]),
            Kind.EMPTY: lambda _: self._chunk([{"text": ""}]),
            Kind.TOKENS: self._tokens,
            Kind.CALL: self._call,
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.ERROR: lambda step: data_event({"error": _error(500, step.text)}),
        }

    def event(self, step: Step) -> bytes:
        self._counted[step.channel] += step.tokens
        render = self._renderers.get(step.kind)
        return render(step) if render else b""

    def body(self, script: Script) -> bytes:
        text = text_by_channel(script)
        thought, answer = "" if self._hidden_reasoning else text[Channel.REASONING], text[Channel.ANSWER]
        parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if thought else []
        parts += [{"text": answer}] if answer else []
        parts += _function_call(tool_name(script), text[Channel.TOOL])
        return to_json(self._response(parts, finish_reason(script), self._totals()))

    def _tokens(self, step: Step) -> bytes:
        if step.channel is Channel.TOOL:
            self._arguments.append(step.text)
            return b""
        if step.channel is Channel.REASONING and self._hidden_reasoning:
            return b""
        thought = b',"thought":true' if step.channel is Channel.REASONING else b""
        return b'data: {"candidates":[{"content":{"parts":[{"text":%b%b}],"role":"model"},"index":0}]%b%b' % (
            quoted(step.text),
            thought,
            self._stated(),
            self._after,
        )

    def _call(self, step: Step) -> bytes:
        self._tool = step.text
        return b""

    def _finish(self, step: Step) -> bytes:
        parts = _function_call(self._tool, "".join(self._arguments))
        return data_event(self._response(parts or [{"text": ""}], step.text, self._totals()))

    def _chunk(self, parts: list[dict[str, Any]]) -> bytes:
        return data_event(self._response(parts, None, self._so_far()))

    def _response(self, parts: list[dict[str, Any]], reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        content = {"parts": parts, "role": "model"} if parts else {"role": "model"}
        candidate: dict[str, Any] = {"content": content, "index": 0}
        if reason is not None:
            candidate["finishReason"] = _REASONS.get(reason, reason)
        return {"candidates": [candidate], **usage, **self._about}

    def _stated(self) -> bytes:
        usage = self._so_far()
        return b"," + to_json(usage)[1:-1] if usage else b""

    def _so_far(self) -> dict[str, Any]:
        thoughts = self._counted[Channel.REASONING]
        return self._metadata(sum(self._counted.values()) - thoughts, thoughts)

    def _totals(self) -> dict[str, Any]:
        if self._usage is None:
            return {}
        thoughts = self._usage.reasoning_tokens
        return self._metadata(self._usage.output_tokens - thoughts, thoughts)

    def _metadata(self, candidates: int, thoughts: int) -> dict[str, Any]:
        usage = self._usage
        if usage is None:
            return {}
        counts: dict[str, Any] = {"promptTokenCount": usage.prompt_tokens}
        if candidates:
            counts["candidatesTokenCount"] = candidates
        counts["totalTokenCount"] = usage.prompt_tokens + candidates + thoughts
        if usage.cached_tokens:
            counts["cachedContentTokenCount"] = usage.cached_tokens
        if thoughts:
            counts["thoughtsTokenCount"] = thoughts
        return {"usageMetadata": counts}


def _function_call(name: str | None, arguments: str) -> list[dict[str, Any]]:
    if name is None:
        return []
    return [{"functionCall": {"name": name, "args": arguments_in(arguments)}}]


def _effort(thinking: dict[str, Any]) -> str | None:
    budget, level = thinking.get("thinkingBudget"), thinking.get("thinkingLevel")
    if isinstance(budget, int) and budget >= 0:
        return next((effort for least, effort in _BUDGETS if budget >= least), None)
    return level.lower() if isinstance(level, str) else "medium" if thinking else None


def _error(status: int, message: str) -> dict[str, Any]:
    return {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}
