"""OpenAI's chat completions: `POST /v1/chat/completions`, streamed or not."""

from collections.abc import Mapping
from typing import Any

from isochrone_sim.dialects.base import (
    RAW_EVENTS,
    EventRenderers,
    Renderer,
    ResponseMetadata,
    bearer_token,
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
from isochrone_sim.requests import (
    ErrorResponse,
    RateLimitStatus,
    Request,
    RequestParameters,
    count_prompt_tokens,
    find_nonce,
    format_duration,
)
from isochrone_sim.script import Channel, Kind, Script, Step, Usage
from isochrone_sim.world import Model

# 2026-05-20, the day of the published figures.
_RELEASED_AT_S = 1_779_235_200
_ERROR_TYPES = {401: "invalid_request_error", 403: "request_forbidden", 429: "requests", 500: "server_error"}
_TOOL_CALL_ID = "call_sim_0"


class OpenAIChat:
    """See `Dialect`."""

    name = "openai-chat"
    retry_after = True

    def serves(self, path: str) -> bool:
        """See `Dialect.serves`."""
        return path == "/v1/chat/completions"

    def key(self, request: Request) -> str | None:
        """See `Dialect.key`: a bearer token."""
        return bearer_token(request.headers)

    def read(self, request: Request) -> RequestParameters:
        """See `Dialect.read`."""
        fields = parse_body(request.body)
        texts = message_texts(fields.get("messages"))
        effort = fields.get("reasoning_effort")
        return RequestParameters(
            model=model_name(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=token_limit(fields, "max_completion_tokens", "max_tokens"),
            temperature=temperature(fields),
            include_usage=object_or_empty(fields.get("stream_options")).get("include_usage") is True,
            reasoning_effort=effort if isinstance(effort, str) else None,
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def renderer(self, parameters: RequestParameters, metadata: ResponseMetadata, usage: Usage | None) -> Renderer:
        """See `Dialect.renderer`."""
        return _Renderer(metadata, usage, null_usage=parameters.include_usage)

    def headers(self, metadata: ResponseMetadata) -> dict[str, str]:
        """See `Dialect.headers`."""
        return openai_headers(metadata)

    def error_body(self, response: ErrorResponse) -> bytes:
        """See `Dialect.error_body`."""
        return openai_error(response)


def openai_headers(metadata: ResponseMetadata) -> dict[str, str]:
    """Return OpenAI's own headers, for all of its dialects."""
    return {
        "x-request-id": metadata.request_id,
        "openai-processing-ms": str(metadata.processing_us // 1000),
        **(_rate_limit_headers(metadata.rate_limit) if metadata.rate_limit else {}),
    }


def model_list(models: list[Model]) -> bytes:
    """Return the body that lists the models."""
    rows = [{"id": m.id, "object": "model", "created": _RELEASED_AT_S, "owned_by": m.provider} for m in models]
    return to_json({"object": "list", "data": rows})


def openai_error(response: ErrorResponse) -> bytes:
    """Return the body of an error response, the same for all of OpenAI's APIs."""
    usual = "invalid_request_error" if response.status < 500 else "server_error"  # noqa: PLR2004  # the server's fault
    error = {
        "message": response.message,
        "type": _ERROR_TYPES.get(response.status, usual),
        "param": response.param,
        "code": response.code,
    }
    return to_json({"error": error})


def _rate_limit_headers(rate_limit: RateLimitStatus) -> dict[str, str]:
    """Return the rate limit headers, the same for all of OpenAI's APIs."""
    levels = {"requests": rate_limit.requests, "tokens": rate_limit.tokens}
    headers = {}
    for what, level in levels.items():
        headers[f"x-ratelimit-limit-{what}"] = str(level.limit)
        headers[f"x-ratelimit-remaining-{what}"] = str(level.remaining)
        headers[f"x-ratelimit-reset-{what}"] = format_duration(level.reset_us)
    return headers


class _Renderer:
    """Renders the constant part of the chunks once."""

    newline = b"\n"

    def __init__(self, metadata: ResponseMetadata, usage: Usage | None, *, null_usage: bool) -> None:
        self._usage = _usage(usage) if usage else None
        self._frame: dict[str, Any] = {
            "id": f"chatcmpl-{metadata.number}",
            "object": "chat.completion.chunk",
            "created": metadata.created_at // 1_000_000,
            "model": metadata.model,
            "system_fingerprint": "fp_isochrone_sim",
        }
        self._null_usage: dict[str, Any] = {"usage": None} if null_usage else {}
        blank = self._chunk({"content": "\0"})
        self._before, self._after = blank.split(b'{"content":"\\u0000"}')
        self._renderers: EventRenderers = {
            **RAW_EVENTS,
            Kind.ROLE: lambda _: self._chunk({"role": "assistant", "content": ""}),
            Kind.NULL: lambda _: self._chunk({"content": None}),
            Kind.EMPTY: lambda _: self._chunk({"content": ""}),
            Kind.TOKENS: self._tokens,
            Kind.CALL: self._call,
            Kind.FINISH: lambda step: self._chunk({}, reason=step.text),
            Kind.FINISH_WITH_USAGE: lambda step: self._chunk({}, reason=step.text, usage=self._usage),
            Kind.USAGE: lambda _: data_event({**self._frame, "choices": [], "usage": self._usage}),
            Kind.DONE: lambda _: b"data: [DONE]",
            Kind.ERROR: lambda step: data_event(
                {"error": {"message": step.text, "type": "server_error", "code": None}}
            ),
        }

    def event(self, step: Step) -> bytes:
        return self._renderers[step.kind](step)

    def body(self, script: Script) -> bytes:
        choice = {"index": 0, "message": _message(script), "logprobs": None, "finish_reason": finish_reason(script)}
        usage = {"usage": self._usage} if self._usage else {}
        return to_json({**self._frame, "object": "chat.completion", "choices": [choice], **usage})

    def _tokens(self, step: Step) -> bytes:
        opening, closing = _DELTAS[step.channel]
        return b"".join((self._before, opening, quoted(step.text), closing, self._after))

    def _call(self, step: Step) -> bytes:
        function = {"name": step.text, "arguments": ""}
        call = {"index": 0, "id": _TOOL_CALL_ID, "type": "function", "function": function}
        return self._chunk({"tool_calls": [call]})

    def _chunk(self, delta: Mapping[str, Any], *, reason: str | None = None, usage: object = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        counted = {"usage": usage} if usage else self._null_usage
        return data_event({**self._frame, "choices": [choice], **counted})


_DELTAS = {
    Channel.ANSWER: (b'{"content":', b"}"),
    Channel.REASONING: (b'{"reasoning_content":', b"}"),
    Channel.TOOL: (b'{"tool_calls":[{"index":0,"function":{"arguments":', b"}}]}"),
}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _message(script: Script) -> dict[str, Any]:
    text, tool = text_by_channel(script), tool_name(script)
    message: dict[str, Any] = {"role": "assistant", "content": text[Channel.ANSWER] or None}
    if text[Channel.REASONING]:
        message["reasoning_content"] = text[Channel.REASONING]
    if tool:
        function = {"name": tool, "arguments": text[Channel.TOOL]}
        message["tool_calls"] = [{"id": _TOOL_CALL_ID, "type": "function", "function": function}]
    return message
