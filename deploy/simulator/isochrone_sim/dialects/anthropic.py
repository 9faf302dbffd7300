"""Anthropic's messages: `POST /v1/messages`, streamed as typed events or not.

An answer is a list of content blocks. Usage has two parts: that of the prompt at the start, that of the output at the
end.
"""

import json
from datetime import UTC, datetime
from typing import Any

from isochrone_sim.dialects import base
from isochrone_sim.errors import RequestRefused
from isochrone_sim.requests import ErrorResponse, Request, RequestParameters, invalid
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


class _Renderer(base.ItemRenderer):
    """Items are content blocks."""

    def __init__(self, parameters: RequestParameters, metadata: base.ResponseMetadata, usage: Usage | None) -> None:
        super().__init__(parameters, metadata, usage)
        self._message: dict[str, Any] = {
            "id": f"msg_{self.number}",
            "type": "message",
            "role": "assistant",
            "model": metadata.model,
        }
        self.renderers = {
            **self.renderers,
            Kind.ROLE: lambda _: self._start(),
            Kind.NULL: lambda _: base.typed_event("ping"),
            Kind.ERROR: lambda step: b"event: error\ndata: " + base.to_json(_error("api_error", step.text)),
        }

    def body(self, script: Script) -> bytes:
        text, tool = script.texts, script.tool
        texts = [{"type": "text", "text": text[Channel.ANSWER]}] if text[Channel.ANSWER] else []
        thoughts = [{"type": "thinking", "thinking": text[Channel.REASONING], "signature": _SIGNATURE}]
        calls = [{**self._tool_use(tool), "input": json.loads(text[Channel.TOOL] or "{}")}] if tool else []
        return base.to_json(
            {
                **self._message,
                "content": [*(thoughts if text[Channel.REASONING] else []), *texts, *calls],
                "stop_reason": _REASONS.get(script.finish_reason or ""),
                "stop_sequence": None,
                **self._stated(self.usage.output_tokens if self.usage else 0),
            }
        )

    def _start(self) -> bytes:
        message = {**self._message, "content": [], "stop_reason": None, "stop_sequence": None, **self._stated(1)}
        return base.typed_event("message_start", message=message)

    def delta(self, step: Step) -> bytes:
        opening = self.opened(step.channel)
        return base.events(opening, b"%b%b}}" % (self.before, base.quoted(step.text)))

    def opening(self, channel: Channel, tool: str) -> bytes:
        kind, field = _DELTAS[channel]
        self.before = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
            % (self.index, kind.encode(), field.encode())
        )
        blocks: dict[Channel, dict[str, Any]] = {
            Channel.REASONING: {"type": "thinking", "thinking": "", "signature": ""},
            Channel.ANSWER: {"type": "text", "text": ""},
            Channel.TOOL: self._tool_use(tool),
        }
        opening = base.typed_event("content_block_start", index=self.index, content_block=blocks[channel])
        return base.events(opening, b"" if self.index else base.typed_event("ping"))

    def closing(self, channel: Channel) -> bytes:
        stop = base.typed_event("content_block_stop", index=self.index)
        if channel is not Channel.REASONING:
            return stop
        signature = {"type": "signature_delta", "signature": _SIGNATURE}
        return base.events(base.typed_event("content_block_delta", index=self.index, delta=signature), stop)

    def ending(self, reason: str) -> bytes:
        delta = {"stop_reason": _REASONS.get(reason, reason), "stop_sequence": None}
        stated = self._stated(self.usage.output_tokens if self.usage else 0)
        if self.usage and self.usage.reasoning_tokens:
            stated["usage"]["output_tokens_details"] = {"thinking_tokens": self.usage.reasoning_tokens}
        return base.events(base.typed_event("message_delta", delta=delta, **stated), base.typed_event("message_stop"))

    def _tool_use(self, name: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{self.number}", "name": name, "input": {}}

    def _stated(self, output_tokens: int) -> dict[str, Any]:
        usage = self.usage
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


class _Anthropic(base.Dialect):
    """Usage is always reported."""

    name, path = "anthropic", "/v1/messages"
    renderer = _Renderer

    def key(self, request: Request) -> str | None:
        return request.headers.get("x-api-key") or None

    def fields(self, request: Request) -> dict[str, Any]:
        if not request.headers.get("anthropic-version"):
            raise RequestRefused(invalid("anthropic-version: header is required"))
        fields = super().fields(request)
        if fields.get("max_tokens") is None:
            raise RequestRefused(invalid("max_tokens: Field required", param="max_tokens"))
        return fields

    def more(self, fields: dict[str, Any]) -> dict[str, Any]:
        thinking = base.object_or_empty(fields.get("thinking"))
        kind, effort = thinking.get("type"), base.object_or_empty(fields.get("output_config")).get("effort")
        effort = effort if isinstance(effort, str) else "medium"
        budget = thinking.get("budget_tokens")
        if kind == "enabled" and isinstance(budget, int):
            effort = base.effort_of_budget(budget, _BUDGETS)
        is_thinking = kind in ("enabled", "adaptive")
        return {"reasoning_effort": effort if is_thinking else None, "has_thinking_budget": kind == "enabled"}

    def headers(self, metadata: base.ResponseMetadata) -> dict[str, str]:
        def reset(us: int) -> str:
            # Whole seconds, rounded up.
            at = datetime.fromtimestamp(-(-(metadata.created_at + us) // 1_000_000), UTC)
            return at.strftime("%Y-%m-%dT%H:%M:%SZ")

        limits = base.limit_headers(metadata.rate_limit, "anthropic-ratelimit-{what}-{field}", reset)
        return {"request-id": metadata.request_id, **limits}

    def error_body(self, response: ErrorResponse) -> bytes:
        usual = "invalid_request_error" if response.status < 500 else "api_error"  # noqa: PLR2004  # the server's fault
        return base.to_json(_error(_ERROR_TYPES.get(response.status, usual), response.message))


DIALECT = _Anthropic()


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}
