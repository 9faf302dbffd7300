"""OpenAI's chat completions: `POST /v1/chat/completions`, streamed or not."""

from collections.abc import Mapping
from typing import Any

from isochrone_sim.dialects.base import (
    PLAIN_BEATS,
    Facts,
    Renderers,
    Voice,
    data_event,
    plain,
    quoted,
    reason_of,
    said_in,
    tool_of,
)
from isochrone_sim.dialects.fields import (
    bearer_token,
    model_name,
    parse_body,
    table,
    temperature,
    texts_of,
    token_limit,
)
from isochrone_sim.exchange.allowance import Allowance, format_duration
from isochrone_sim.exchange.refusal import Refusal
from isochrone_sim.exchange.request_parameters import Asked, count_prompt_tokens, find_nonce
from isochrone_sim.exchange.requests import Request
from isochrone_sim.exchange.script import Beat, Channel, Kind, Script, Usage
from isochrone_sim.world.world import Model

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

    def read(self, request: Request) -> Asked:
        """See `Dialect.read`."""
        fields = parse_body(request.body)
        texts = texts_of(fields.get("messages"))
        effort = fields.get("reasoning_effort")
        return Asked(
            model=model_name(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=token_limit(fields, "max_completion_tokens", "max_tokens"),
            temperature=temperature(fields),
            include_usage=table(fields.get("stream_options")).get("include_usage") is True,
            reasoning_effort=effort if isinstance(effort, str) else None,
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def voice(self, asked: Asked, facts: Facts, usage: Usage | None) -> Voice:
        """See `Dialect.voice`."""
        return _Voice(facts, usage, null_usage=asked.include_usage)

    def headers(self, facts: Facts) -> dict[str, str]:
        """See `Dialect.headers`."""
        return openai_headers(facts)

    def refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect.refusal`."""
        return openai_error(refusal)


def openai_headers(facts: Facts) -> dict[str, str]:
    """The headers of OpenAI's own, in whichever of its dialects."""
    return {
        "x-request-id": facts.request_id,
        "openai-processing-ms": str(facts.processing_us // 1000),
        **(_allowance_headers(facts.allowance) if facts.allowance else {}),
    }


def catalogue(models: list[Model]) -> bytes:
    """The body that lists the models."""
    rows = [{"id": m.id, "object": "model", "created": _RELEASED_AT_S, "owned_by": m.provider} for m in models]
    return plain({"object": "list", "data": rows})


def openai_error(refusal: Refusal) -> bytes:
    """The body of an error response, as all of OpenAI's APIs have it."""
    usual = "invalid_request_error" if refusal.status < 500 else "server_error"  # noqa: PLR2004  # the server's fault
    error = {
        "message": refusal.message,
        "type": _ERROR_TYPES.get(refusal.status, usual),
        "param": refusal.param,
        "code": refusal.code,
    }
    return plain({"error": error})


def _allowance_headers(allowance: Allowance) -> dict[str, str]:
    """What is left, as all of OpenAI's APIs say it."""
    levels = {"requests": allowance.requests, "tokens": allowance.tokens}
    headers = {}
    for what, level in levels.items():
        headers[f"x-ratelimit-limit-{what}"] = str(level.limit)
        headers[f"x-ratelimit-remaining-{what}"] = str(level.remaining)
        headers[f"x-ratelimit-reset-{what}"] = format_duration(level.reset_us)
    return headers


class _Voice:
    """What is the same in every chunk of a response is rendered once."""

    newline = b"\n"

    def __init__(self, facts: Facts, usage: Usage | None, *, null_usage: bool) -> None:
        self._usage = _usage(usage) if usage else None
        self._frame: dict[str, Any] = {
            "id": f"chatcmpl-{facts.number}",
            "object": "chat.completion.chunk",
            "created": facts.created_at // 1_000_000,
            "model": facts.model,
            "system_fingerprint": "fp_isochrone_sim",
        }
        self._null_usage: dict[str, Any] = {"usage": None} if null_usage else {}
        blank = self._chunk({"content": "\0"})
        self._before, self._after = blank.split(b'{"content":"\\u0000"}')
        self._renderers: Renderers = {
            **PLAIN_BEATS,
            Kind.ROLE: lambda _: self._chunk({"role": "assistant", "content": ""}),
            Kind.NULL: lambda _: self._chunk({"content": None}),
            Kind.EMPTY: lambda _: self._chunk({"content": ""}),
            Kind.TOKENS: self._tokens,
            Kind.CALL: self._call,
            Kind.FINISH: lambda beat: self._chunk({}, reason=beat.text),
            Kind.FINISH_WITH_USAGE: lambda beat: self._chunk({}, reason=beat.text, usage=self._usage),
            Kind.USAGE: lambda _: data_event({**self._frame, "choices": [], "usage": self._usage}),
            Kind.DONE: lambda _: b"data: [DONE]",
            Kind.ERROR: lambda beat: data_event(
                {"error": {"message": beat.text, "type": "server_error", "code": None}}
            ),
        }

    def event(self, beat: Beat) -> bytes:
        return self._renderers[beat.kind](beat)

    def whole(self, script: Script) -> bytes:
        choice = {"index": 0, "message": _message(script), "logprobs": None, "finish_reason": reason_of(script)}
        usage = {"usage": self._usage} if self._usage else {}
        return plain({**self._frame, "object": "chat.completion", "choices": [choice], **usage})

    def _tokens(self, beat: Beat) -> bytes:
        opening, closing = _DELTAS[beat.channel]
        return b"".join((self._before, opening, quoted(beat.text), closing, self._after))

    def _call(self, beat: Beat) -> bytes:
        function = {"name": beat.text, "arguments": ""}
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
    said, tool = said_in(script), tool_of(script)
    message: dict[str, Any] = {"role": "assistant", "content": said[Channel.ANSWER] or None}
    if said[Channel.REASONING]:
        message["reasoning_content"] = said[Channel.REASONING]
    if tool:
        function = {"name": tool, "arguments": said[Channel.TOOL]}
        message["tool_calls"] = [{"id": _TOOL_CALL_ID, "type": "function", "function": function}]
    return message
