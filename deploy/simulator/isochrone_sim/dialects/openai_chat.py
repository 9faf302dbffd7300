"""OpenAI's chat completions: `POST /v1/chat/completions`, streamed or not."""

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from typing import Any

from isochrone_sim.allowance import Allowance, format_duration
from isochrone_sim.asked import Asked, count_prompt_tokens, find_nonce
from isochrone_sim.dialects.base import Facts, Voice, encode, parse_body, plain
from isochrone_sim.errors import RequestRefused
from isochrone_sim.refusal import Refusal, invalid
from isochrone_sim.script import Beat, Channel, Kind, Script, Usage
from isochrone_sim.world import Model

# 2026-05-20, the day of the published figures.
_RELEASED_AT_S = 1_779_235_200
_ERROR_TYPES = {401: "invalid_request_error", 403: "request_forbidden", 429: "requests", 500: "server_error"}
_TOOL_CALL_ID = "call_sim_0"


class OpenAIChat:
    """See `Dialect`."""

    name = "openai-chat"

    def serves(self, path: str) -> bool:
        """See `Dialect.serves`."""
        return path == "/v1/chat/completions"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """See `Dialect.key`: a bearer token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" and token.strip() else None

    def read(self, path: str, body: bytes) -> Asked:  # noqa: ARG002  # other dialects have the model in the path
        """See `Dialect.read`."""
        fields = parse_body(body)
        texts = _texts(fields.get("messages"))
        options = fields.get("stream_options")
        effort = fields.get("reasoning_effort")
        return Asked(
            model=_model(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=_max_tokens(fields),
            include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            reasoning_effort=effort if isinstance(effort, str) else None,
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def voice(self, asked: Asked, facts: Facts, usage: Usage) -> Voice:
        """See `Dialect.voice`."""
        return _Voice(facts, usage, null_usage=asked.include_usage)

    def headers(self, facts: Facts) -> dict[str, str]:
        """See `Dialect.headers`."""
        return {
            "x-request-id": facts.request_id,
            "openai-processing-ms": str(facts.processing_us // 1000),
            **(_allowance_headers(facts.allowance) if facts.allowance else {}),
        }

    def refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect.refusal`."""
        usual = "invalid_request_error" if refusal.status < 500 else "server_error"  # noqa: PLR2004  # the server's fault
        error = {
            "message": refusal.message,
            "type": _ERROR_TYPES.get(refusal.status, usual),
            "param": refusal.param,
            "code": refusal.code,
        }
        return plain({"error": error})

    def catalogue(self, models: list[Model]) -> bytes:
        """See `Dialect.catalogue`."""
        rows = [{"id": m.id, "object": "model", "created": _RELEASED_AT_S, "owned_by": m.provider} for m in models]
        return plain({"object": "list", "data": rows})


class _Voice:
    """What is the same in every chunk of a response is rendered once."""

    def __init__(self, facts: Facts, usage: Usage, *, null_usage: bool) -> None:
        self._usage = _usage(usage)
        self._frame: dict[str, Any] = {
            "id": f"chatcmpl-{facts.request_id.removeprefix('req_')}",
            "object": "chat.completion.chunk",
            "created": facts.created_at // 1_000_000,
            "model": facts.model,
            "system_fingerprint": "fp_isochrone_sim",
        }
        self._null_usage: dict[str, Any] = {"usage": None} if null_usage else {}
        blank = self._chunk({"content": "\0"})
        self._before, self._after = blank.split(b'{"content":"\\u0000"}')
        self._renderers: dict[Kind, Callable[[Beat], bytes]] = {
            Kind.ROLE: lambda _: self._chunk({"role": "assistant", "content": ""}),
            Kind.NULL: lambda _: self._chunk({"content": None}),
            Kind.EMPTY: lambda _: self._chunk({"content": ""}),
            Kind.TOKENS: self._tokens,
            Kind.CALL: self._call,
            Kind.FINISH: lambda beat: self._chunk({}, reason=beat.text),
            Kind.FINISH_WITH_USAGE: lambda beat: self._chunk({}, reason=beat.text, usage=self._usage),
            Kind.USAGE: lambda _: _data({**self._frame, "choices": [], "usage": self._usage}),
            Kind.DONE: lambda _: b"data: [DONE]",
            Kind.ERROR: lambda beat: _data({"error": {"message": beat.text, "type": "server_error", "code": None}}),
            Kind.COMMENT: lambda beat: b": " + encode(beat.text),
            Kind.RAW: lambda beat: b"data: " + encode(beat.text),
        }

    def event(self, beat: Beat) -> bytes:
        return self._renderers[beat.kind](beat)

    def whole(self, script: Script) -> bytes:
        finish = script.of_kind(Kind.FINISH, Kind.FINISH_WITH_USAGE)
        choice = {
            "index": 0,
            "message": _message(script),
            "logprobs": None,
            "finish_reason": finish[0].text if finish else None,
        }
        return plain({**self._frame, "object": "chat.completion", "choices": [choice], "usage": self._usage})

    def _tokens(self, beat: Beat) -> bytes:
        opening, closing = _DELTAS[beat.channel]
        return b"".join((self._before, opening, encode(encode_basestring(beat.text)), closing, self._after))

    def _call(self, beat: Beat) -> bytes:
        function = {"name": beat.text, "arguments": ""}
        call = {"index": 0, "id": _TOOL_CALL_ID, "type": "function", "function": function}
        return self._chunk({"tool_calls": [call]})

    def _chunk(self, delta: Mapping[str, Any], *, reason: str | None = None, usage: object = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        counted = {"usage": usage} if usage else self._null_usage
        return _data({**self._frame, "choices": [choice], **counted})


_DELTAS = {
    Channel.ANSWER: (b'{"content":', b"}"),
    Channel.REASONING: (b'{"reasoning_content":', b"}"),
    Channel.TOOL: (b'{"tool_calls":[{"index":0,"function":{"arguments":', b"}}]}"),
}


def _data(value: object) -> bytes:
    return b"data: " + plain(value)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _message(script: Script) -> dict[str, Any]:
    said = {c: "".join(b.text for b in script.of_kind(Kind.TOKENS) if b.channel is c) for c in Channel}
    message: dict[str, Any] = {"role": "assistant", "content": said[Channel.ANSWER] or None}
    if said[Channel.REASONING]:
        message["reasoning_content"] = said[Channel.REASONING]
    if calls := script.of_kind(Kind.CALL):
        function = {"name": calls[0].text, "arguments": said[Channel.TOOL]}
        message["tool_calls"] = [{"id": _TOOL_CALL_ID, "type": "function", "function": function}]
    return message


def _allowance_headers(allowance: Allowance) -> dict[str, str]:
    levels = {"requests": allowance.requests, "tokens": allowance.tokens}
    headers = {}
    for what, level in levels.items():
        headers[f"x-ratelimit-limit-{what}"] = str(level.limit)
        headers[f"x-ratelimit-remaining-{what}"] = str(level.remaining)
        headers[f"x-ratelimit-reset-{what}"] = format_duration(level.reset_us)
    return headers


def _model(value: object) -> str:
    if isinstance(value, str) and value:
        # A name is quoted in answers, so it has to be text that can be written.
        return value.encode("utf-8", "replace").decode()
    raise RequestRefused(invalid("you must provide a model parameter", param="model"))


def _max_tokens(fields: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        raise RequestRefused(invalid(f"{name} must be a whole number of at least 1", param=name))
    return None


def _texts(messages: object) -> list[str]:
    """The text of every message. Raises `RequestRefused` when there are none."""
    if not isinstance(messages, list) or not messages:
        raise RequestRefused(invalid("messages must be a list with at least one message", param="messages"))
    return [_text(message.get("content") if isinstance(message, dict) else None) for message in messages]


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
