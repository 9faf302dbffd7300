"""Google's Gemini: `POST /v1beta/models/MODEL:streamGenerateContent?alt=sse`, and `:generateContent` without a stream.

Every event is a complete response object with the new parts and the usage so far. The stream has no opening event, and
`finishReason` ends it. A function call is sent as a whole when it is complete.
"""

import json
import re
from typing import Any
from urllib.parse import unquote

from isochrone_sim.dialects import base
from isochrone_sim.errors import RequestRefused
from isochrone_sim.requests import ErrorResponse, Request, RequestParameters, invalid
from isochrone_sim.script import Channel, Kind, Script, Step, Usage

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


class _Renderer(base.Renderer):
    """Counts the tokens sent, because usage is cumulative; the constant part of the chunks is rendered once."""

    newline = b"\r\n"

    def __init__(self, parameters: RequestParameters, metadata: base.ResponseMetadata, usage: Usage | None) -> None:
        super().__init__(parameters, metadata, usage)
        self._about = {"modelVersion": metadata.model, "responseId": self.number}
        self._after = b"," + base.to_json(self._about)[1:]
        self._counted = dict.fromkeys(Channel, 0)
        self._tool: str | None = None
        self._arguments: list[str] = []
        self.renderers = {
            **base.RAW_EVENTS,
            Kind.NULL: lambda _: self._chunk([]),
            Kind.EMPTY: lambda _: self._chunk([{"text": ""}]),
            Kind.TOKENS: self._tokens,
            Kind.CALL: self._call,
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.ERROR: lambda step: base.data_event({"error": _error(500, step.text)}),
        }

    def event(self, step: Step) -> bytes:
        self._counted[step.channel] += step.tokens
        return super().event(step)

    def body(self, script: Script) -> bytes:
        text = script.texts
        thought = "" if self.parameters.hidden_reasoning else text[Channel.REASONING]
        parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if thought else []
        parts += [{"text": text[Channel.ANSWER]}] if text[Channel.ANSWER] else []
        parts += _function_call(script.tool, text[Channel.TOOL])
        return base.to_json(self._response(parts, script.finish_reason, self._totals()))

    def _tokens(self, step: Step) -> bytes:
        is_thought = step.channel is Channel.REASONING
        if step.channel is Channel.TOOL:
            self._arguments.append(step.text)
        if step.channel is Channel.TOOL or (is_thought and self.parameters.hidden_reasoning):
            return b""
        usage = self._so_far()
        return b'data: {"candidates":[{"content":{"parts":[{"text":%b%b}],"role":"model"},"index":0}]%b%b' % (
            base.quoted(step.text),
            b',"thought":true' if is_thought else b"",
            b"," + base.to_json(usage)[1:-1] if usage else b"",
            self._after,
        )

    def _call(self, step: Step) -> bytes:
        self._tool = step.text
        return b""

    def _finish(self, step: Step) -> bytes:
        parts = _function_call(self._tool, "".join(self._arguments))
        return base.data_event(self._response(parts or [{"text": ""}], step.text, self._totals()))

    def _chunk(self, parts: list[dict[str, Any]]) -> bytes:
        return base.data_event(self._response(parts, None, self._so_far()))

    def _response(self, parts: list[dict[str, Any]], reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        content = {"parts": parts, "role": "model"} if parts else {"role": "model"}
        candidate: dict[str, Any] = {"content": content, "index": 0}
        if reason is not None:
            candidate["finishReason"] = _REASONS.get(reason, reason)
        return {"candidates": [candidate], **usage, **self._about}

    def _so_far(self) -> dict[str, Any]:
        return self._stated(sum(self._counted.values()), self._counted[Channel.REASONING])

    def _totals(self) -> dict[str, Any]:
        return self._stated(self.usage.output_tokens, self.usage.reasoning_tokens) if self.usage else {}

    def _stated(self, output_tokens: int, thoughts: int) -> dict[str, Any]:
        usage = self.usage
        if usage is None:
            return {}
        counts = {
            "promptTokenCount": usage.prompt_tokens,
            "candidatesTokenCount": output_tokens - thoughts,
            "totalTokenCount": usage.prompt_tokens + output_tokens,
            "cachedContentTokenCount": usage.cached_tokens,
            "thoughtsTokenCount": thoughts,
        }
        required = ("promptTokenCount", "totalTokenCount")
        return {"usageMetadata": {name: count for name, count in counts.items() if count or name in required}}


class _Gemini(base.Dialect):
    """A stream without `alt=sse`, which would be one JSON list, is refused."""

    name, path = "gemini", r"/v1beta/models/([^:]+):(streamGenerateContent|generateContent)"
    limits = ("maxOutputTokens",)
    messages, content = "contents", "parts"
    retry_after = False
    renderer = _Renderer

    def key(self, request: Request) -> str | None:
        return request.headers.get("x-goog-api-key") or request.query.get("key")

    def fields(self, request: Request) -> dict[str, Any]:
        named = re.fullmatch(self.path, request.path)
        model, method = named.groups() if named else ("", "")
        is_stream = method == "streamGenerateContent"
        if is_stream and request.query.get("alt") != "sse":
            raise RequestRefused(invalid("Streaming requires alt=sse.", param="alt"))
        fields = super().fields(request)
        config = base.object_or_empty(fields.get("generationConfig"))
        return {**config, "contents": fields.get("contents"), "model": unquote(model), "stream": is_stream}

    def more(self, fields: dict[str, Any]) -> dict[str, Any]:
        thinking = base.object_or_empty(fields.get("thinkingConfig"))
        budget, level = thinking.get("thinkingBudget"), thinking.get("thinkingLevel")
        effort = level.lower() if isinstance(level, str) else "medium" if thinking else None
        if isinstance(budget, int) and budget >= 0:
            effort = base.effort_of_budget(budget, _BUDGETS)
        is_hidden = bool(thinking) and thinking.get("includeThoughts") is not True
        return {"reasoning_effort": effort, "hidden_reasoning": is_hidden}

    def headers(self, metadata: base.ResponseMetadata) -> dict[str, str]:
        """Google has no request id; this one leads to the ground truth."""
        return {"x-request-id": metadata.request_id, "server-timing": f"gfet4t7; dur={metadata.processing_us // 1000}"}

    def error_body(self, response: ErrorResponse) -> bytes:
        error = _error(response.status, response.message)
        if response.retry_after_us is not None:
            error["details"] = [{"@type": _RETRY_INFO, "retryDelay": f"{response.retry_after_us / 1e6:g}s"}]
        return base.to_json({"error": error})


DIALECT = _Gemini()


def _function_call(name: str | None, arguments: str) -> list[dict[str, Any]]:
    return [] if name is None else [{"functionCall": {"name": name, "args": json.loads(arguments or "{}")}}]


def _error(status: int, message: str) -> dict[str, Any]:
    return {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}
