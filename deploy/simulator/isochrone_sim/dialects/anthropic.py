"""Anthropic's messages: `POST /v1/messages`, streamed as typed events or not.

An answer is a list of content blocks. Usage has two parts: that of the prompt at the start, that of the output at the
end.
"""

from datetime import UTC, datetime
from typing import Any

from isochrone_sim.dialects.base import (
    RAW_EVENTS,
    EventRenderers,
    Renderer,
    ResponseMetadata,
    arguments_in,
    events,
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
    typed_event,
)
from isochrone_sim.errors import RequestRefused
from isochrone_sim.requests import (
    BucketStatus,
    ErrorResponse,
    RateLimitStatus,
    Request,
    RequestParameters,
    count_prompt_tokens,
    find_nonce,
    invalid,
)
from isochrone_sim.script import Channel, Kind, Script, Step, Usage

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
# channel: (type of the delta, field of its text)
_DELTAS = {
    Channel.REASONING: ("thinking_delta", "thinking"),
    Channel.ANSWER: ("text_delta", "text"),
    Channel.TOOL: ("input_json_delta", "partial_json"),
}
_SIGNATURE = "RXF1YWxseSB0cnVl"
# The minimum thinking budget in tokens for each effort.
_BUDGETS = ((16_384, "high"), (4096, "medium"), (0, "low"))


class Anthropic:
    """See `Dialect`."""

    name = "anthropic"
    retry_after = True

    def serves(self, path: str) -> bool:
        """See `Dialect.serves`."""
        return path == "/v1/messages"

    def key(self, request: Request) -> str | None:
        """See `Dialect.key`: the header `x-api-key`."""
        return request.headers.get("x-api-key") or None

    def read(self, request: Request) -> RequestParameters:
        """See `Dialect.read`."""
        if not request.headers.get("anthropic-version"):
            raise RequestRefused(invalid("anthropic-version: header is required"))
        fields = parse_body(request.body)
        texts = message_texts(fields.get("messages"))
        thinking = object_or_empty(fields.get("thinking"))
        limit = token_limit(fields, "max_tokens")
        if limit is None:
            raise RequestRefused(invalid("max_tokens: Field required", param="max_tokens"))
        return RequestParameters(
            model=model_name(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=limit,
            temperature=temperature(fields),
            reasoning_effort=_effort(thinking, object_or_empty(fields.get("output_config"))),
            has_thinking_budget=thinking.get("type") == "enabled",
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def renderer(self, parameters: RequestParameters, metadata: ResponseMetadata, usage: Usage | None) -> Renderer:
        """See `Dialect.renderer`."""
        del parameters  # usage is always reported
        return _Renderer(metadata, usage)

    def headers(self, metadata: ResponseMetadata) -> dict[str, str]:
        """See `Dialect.headers`."""
        rate_limit = _rate_limit_headers(metadata.rate_limit, metadata.created_at) if metadata.rate_limit else {}
        return {"request-id": metadata.request_id, **rate_limit}

    def error_body(self, response: ErrorResponse) -> bytes:
        """See `Dialect.error_body`."""
        usual = "invalid_request_error" if response.status < 500 else "api_error"  # noqa: PLR2004  # the server's fault
        return to_json(_error(_ERROR_TYPES.get(response.status, usual), response.message))


class _Renderer:
    """Tracks the open content block."""

    newline = b"\n"

    def __init__(self, metadata: ResponseMetadata, usage: Usage | None) -> None:
        self._message: dict[str, Any] = {
            "id": f"msg_{metadata.number}",
            "type": "message",
            "role": "assistant",
            "model": metadata.model,
        }
        self._usage = usage
        self._number = metadata.number
        self._index = -1
        self._channel: Channel | None = None
        self._before = b""
        self._renderers: EventRenderers = {
            **RAW_EVENTS,
            Kind.ROLE: lambda _: self._start(),
            Kind.NULL: lambda _: typed_event("ping"),
            Kind.EMPTY: self._tokens,
            Kind.TOKENS: self._tokens,
            Kind.CALL: lambda step: self._opened(Channel.TOOL, step.text),
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.ERROR: lambda step: b"event: error\ndata: " + to_json(_error("api_error", step.text)),
        }

    def event(self, step: Step) -> bytes:
        render = self._renderers.get(step.kind)
        return render(step) if render else b""

    def body(self, script: Script) -> bytes:
        text, tool = text_by_channel(script), tool_name(script)
        texts = [{"type": "text", "text": text[Channel.ANSWER]}] if text[Channel.ANSWER] else []
        thoughts = [{"type": "thinking", "thinking": text[Channel.REASONING], "signature": _SIGNATURE}]
        calls = [{**self._tool_use(tool), "input": arguments_in(text[Channel.TOOL])}] if tool else []
        return to_json(
            {
                **self._message,
                "content": [*(thoughts if text[Channel.REASONING] else []), *texts, *calls],
                "stop_reason": _REASONS.get(finish_reason(script) or ""),
                "stop_sequence": None,
                **self._stated(self._usage.output_tokens if self._usage else 0),
            }
        )

    def _start(self) -> bytes:
        message = {**self._message, "content": [], "stop_reason": None, "stop_sequence": None, **self._stated(1)}
        return typed_event("message_start", message=message)

    def _tokens(self, step: Step) -> bytes:
        opening = self._opened(step.channel)
        return events(opening, b"%b%b}}" % (self._before, quoted(step.text)))

    def _opened(self, channel: Channel, tool: str = "") -> bytes:
        """Return the events that open a block for the channel; empty if it is already open."""
        if channel is self._channel:
            return b""
        closing, first = self._closed(), self._channel is None
        self._channel = channel
        self._index += 1
        kind, field = _DELTAS[channel]
        self._before = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
            % (self._index, kind.encode(), field.encode())
        )
        blocks: dict[Channel, dict[str, Any]] = {
            Channel.REASONING: {"type": "thinking", "thinking": "", "signature": ""},
            Channel.ANSWER: {"type": "text", "text": ""},
            Channel.TOOL: self._tool_use(tool),
        }
        opening = typed_event("content_block_start", index=self._index, content_block=blocks[channel])
        return events(closing, opening, typed_event("ping") if first else b"")

    def _closed(self) -> bytes:
        """Return the events that close the open block."""
        if self._channel is None:
            return b""
        stop = typed_event("content_block_stop", index=self._index)
        if self._channel is not Channel.REASONING:
            return stop
        signature = {"type": "signature_delta", "signature": _SIGNATURE}
        return events(typed_event("content_block_delta", index=self._index, delta=signature), stop)

    def _finish(self, step: Step) -> bytes:
        opening = self._opened(Channel.ANSWER) if self._channel is None else b""
        reason = {"stop_reason": _REASONS.get(step.text, step.text), "stop_sequence": None}
        stated = self._stated(self._usage.output_tokens if self._usage else 0)
        if self._usage and self._usage.reasoning_tokens:
            stated["usage"]["output_tokens_details"] = {"thinking_tokens": self._usage.reasoning_tokens}
        delta = typed_event("message_delta", delta=reason, **stated)
        return events(opening, self._closed(), delta, typed_event("message_stop"))

    def _tool_use(self, name: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{self._number}", "name": name, "input": {}}

    def _stated(self, output_tokens: int) -> dict[str, Any]:
        usage = self._usage
        if usage is None:
            return {}
        return {
            "usage": {
                "input_tokens": usage.prompt_tokens - usage.cached_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": usage.cached_tokens,
                "output_tokens": output_tokens,
            }
        }


def _effort(thinking: dict[str, Any], output: dict[str, Any]) -> str | None:
    kind, budget, effort = thinking.get("type"), thinking.get("budget_tokens"), output.get("effort")
    if kind == "enabled" and isinstance(budget, int):
        return next((effort for least, effort in _BUDGETS if budget >= least), None)
    if kind not in ("enabled", "adaptive"):
        return None
    return effort if isinstance(effort, str) else "medium"


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _rate_limit_headers(rate_limit: RateLimitStatus, at: int) -> dict[str, str]:
    levels: dict[str, BucketStatus] = {"requests": rate_limit.requests, "tokens": rate_limit.tokens}
    headers = {}
    for what, level in levels.items():
        # Whole seconds, rounded up.
        reset = datetime.fromtimestamp(-(-(at + level.reset_us) // 1_000_000), UTC)
        headers[f"anthropic-ratelimit-{what}-limit"] = str(level.limit)
        headers[f"anthropic-ratelimit-{what}-remaining"] = str(level.remaining)
        headers[f"anthropic-ratelimit-{what}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return headers
