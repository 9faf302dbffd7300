"""OpenAI's chat completions: `POST /v1/chat/completions`, streamed or not."""

from collections.abc import Mapping
from typing import Any

from isochrone_sim.dialects import base
from isochrone_sim.requests import ErrorResponse, RequestParameters, format_duration
from isochrone_sim.script import Channel, Kind, Script, Step, Usage
from isochrone_sim.world import Model

# 2026-05-20, the day of the published figures.
_RELEASED_AT_S = 1_779_235_200
_ERROR_TYPES = {401: "invalid_request_error", 403: "request_forbidden", 429: "requests", 500: "server_error"}
_TOOL_CALL_ID = "call_sim_0"
_DELTAS = {
    Channel.ANSWER: (b'{"content":', b"}"),
    Channel.REASONING: (b'{"reasoning_content":', b"}"),
    Channel.TOOL: (b'{"tool_calls":[{"index":0,"function":{"arguments":', b"}}]}"),
}


class _Renderer(base.Renderer):
    """Renders the constant part of the chunks once."""

    def __init__(self, parameters: RequestParameters, metadata: base.ResponseMetadata, usage: Usage | None) -> None:
        super().__init__(parameters, metadata, usage)
        self._usage = _usage(usage) if usage else None
        self._frame: dict[str, Any] = {
            "id": f"chatcmpl-{self.number}",
            "object": "chat.completion.chunk",
            "created": metadata.created_at // 1_000_000,
            "model": metadata.model,
            "system_fingerprint": "fp_isochrone_sim",
        }
        self._null_usage: dict[str, Any] = {"usage": None} if parameters.include_usage else {}
        blank = self._chunk({"content": "\0"})
        self._before, self._after = blank.split(b'{"content":"\\u0000"}')
        self.renderers = {
            **base.RAW_EVENTS,
            Kind.ROLE: lambda _: self._chunk({"role": "assistant", "content": ""}),
            Kind.NULL: lambda _: self._chunk({"content": None}),
            Kind.EMPTY: lambda _: self._chunk({"content": ""}),
            Kind.TOKENS: self._tokens,
            Kind.CALL: lambda step: self._chunk({"tool_calls": [{"index": 0, **_call(step.text, "")}]}),
            Kind.FINISH: lambda step: self._chunk({}, reason=step.text),
            Kind.FINISH_WITH_USAGE: lambda step: self._chunk({}, reason=step.text, usage=self._usage),
            Kind.USAGE: lambda _: base.data_event({**self._frame, "choices": [], "usage": self._usage}),
            Kind.DONE: lambda _: b"data: [DONE]",
            Kind.ERROR: lambda step: base.data_event(
                {"error": {"message": step.text, "type": "server_error", "code": None}}
            ),
        }

    def body(self, script: Script) -> bytes:
        text = script.texts
        message: dict[str, Any] = {"role": "assistant", "content": text[Channel.ANSWER] or None}
        if text[Channel.REASONING]:
            message["reasoning_content"] = text[Channel.REASONING]
        if script.tool:
            message["tool_calls"] = [_call(script.tool, text[Channel.TOOL])]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": script.finish_reason}
        usage = {"usage": self._usage} if self._usage else {}
        return base.to_json({**self._frame, "object": "chat.completion", "choices": [choice], **usage})

    def _tokens(self, step: Step) -> bytes:
        opening, closing = _DELTAS[step.channel]
        return b"".join((self._before, opening, base.quoted(step.text), closing, self._after))

    def _chunk(self, delta: Mapping[str, Any], *, reason: str | None = None, usage: object = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        counted = {"usage": usage} if usage else self._null_usage
        return base.data_event({**self._frame, "choices": [choice], **counted})


class OpenAI(base.Dialect):
    """The headers and errors of all of OpenAI's dialects."""

    def headers(self, metadata: base.ResponseMetadata) -> dict[str, str]:
        """See `Dialect.headers`."""
        return {
            "x-request-id": metadata.request_id,
            "openai-processing-ms": str(metadata.processing_us // 1000),
            **base.limit_headers(metadata.rate_limit, "x-ratelimit-{field}-{what}", format_duration),
        }

    def error_body(self, response: ErrorResponse) -> bytes:
        """See `Dialect.error_body`."""
        usual = "invalid_request_error" if response.status < 500 else "server_error"  # noqa: PLR2004  # the server's fault
        kind = _ERROR_TYPES.get(response.status, usual)
        error = {"message": response.message, "type": kind, "param": response.param, "code": response.code}
        return base.to_json({"error": error})


class _OpenAIChat(OpenAI):
    name, path = "openai-chat", "/v1/chat/completions"
    limits = ("max_completion_tokens", "max_tokens")
    renderer = _Renderer

    def more(self, fields: dict[str, Any]) -> dict[str, Any]:
        effort = fields.get("reasoning_effort")
        return {
            "include_usage": base.object_or_empty(fields.get("stream_options")).get("include_usage") is True,
            "reasoning_effort": effort if isinstance(effort, str) else None,
        }


DIALECT = _OpenAIChat()


def model_list(models: list[Model]) -> bytes:
    """Return the body that lists the models."""
    rows = [{"id": m.id, "object": "model", "created": _RELEASED_AT_S, "owned_by": m.provider} for m in models]
    return base.to_json({"object": "list", "data": rows})


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": _TOOL_CALL_ID, "type": "function", "function": {"name": name, "arguments": arguments}}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
