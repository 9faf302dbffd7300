"""Anthropic's messages: `POST /v1/messages`, streamed as typed events or not.

An answer is a list of content blocks. Usage comes in two parts: the prompt's with the start, the output's with the end.
"""

from datetime import UTC, datetime
from typing import Any

from isochrone_sim.dialects.base import (
    PLAIN_BEATS,
    Facts,
    Renderers,
    Voice,
    arguments_in,
    events,
    plain,
    quoted,
    reason_of,
    said_in,
    tool_of,
    typed_event,
)
from isochrone_sim.dialects.fields import model_name, parse_body, table, temperature, texts_of, token_limit
from isochrone_sim.errors import RequestRefused
from isochrone_sim.exchange.allowance import Allowance, Level
from isochrone_sim.exchange.refusal import Refusal, invalid
from isochrone_sim.exchange.request_parameters import Asked, count_prompt_tokens, find_nonce
from isochrone_sim.exchange.requests import Request
from isochrone_sim.exchange.script import Beat, Channel, Kind, Script, Usage

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
# A thinking budget, in tokens, and the least effort that comes to it.
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

    def read(self, request: Request) -> Asked:
        """See `Dialect.read`."""
        if not request.headers.get("anthropic-version"):
            raise RequestRefused(invalid("anthropic-version: header is required"))
        fields = parse_body(request.body)
        texts = texts_of(fields.get("messages"))
        thinking = table(fields.get("thinking"))
        limit = token_limit(fields, "max_tokens")
        if limit is None:
            raise RequestRefused(invalid("max_tokens: Field required", param="max_tokens"))
        return Asked(
            model=model_name(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=limit,
            temperature=temperature(fields),
            reasoning_effort=_effort(thinking, table(fields.get("output_config"))),
            budgeted=thinking.get("type") == "enabled",
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def voice(self, asked: Asked, facts: Facts, usage: Usage | None) -> Voice:
        """See `Dialect.voice`."""
        del asked  # usage comes to everybody
        return _Voice(facts, usage)

    def headers(self, facts: Facts) -> dict[str, str]:
        """See `Dialect.headers`."""
        allowance = _allowance_headers(facts.allowance, facts.created_at) if facts.allowance else {}
        return {"request-id": facts.request_id, **allowance}

    def refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect.refusal`."""
        usual = "invalid_request_error" if refusal.status < 500 else "api_error"  # noqa: PLR2004  # the server's fault
        return plain(_error(_ERROR_TYPES.get(refusal.status, usual), refusal.message))


class _Voice:
    """Remembers the content block that is open."""

    newline = b"\n"

    def __init__(self, facts: Facts, usage: Usage | None) -> None:
        self._message: dict[str, Any] = {
            "id": f"msg_{facts.number}",
            "type": "message",
            "role": "assistant",
            "model": facts.model,
        }
        self._usage = usage
        self._number = facts.number
        self._index = -1
        self._channel: Channel | None = None
        self._before = b""
        self._renderers: Renderers = {
            **PLAIN_BEATS,
            Kind.ROLE: lambda _: self._start(),
            Kind.NULL: lambda _: typed_event("ping"),
            Kind.EMPTY: self._tokens,
            Kind.TOKENS: self._tokens,
            Kind.CALL: lambda beat: self._opened(Channel.TOOL, beat.text),
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.ERROR: lambda beat: b"event: error\ndata: " + plain(_error("api_error", beat.text)),
        }

    def event(self, beat: Beat) -> bytes:
        render = self._renderers.get(beat.kind)
        return render(beat) if render else b""

    def whole(self, script: Script) -> bytes:
        said, tool = said_in(script), tool_of(script)
        texts = [{"type": "text", "text": said[Channel.ANSWER]}] if said[Channel.ANSWER] else []
        thoughts = [{"type": "thinking", "thinking": said[Channel.REASONING], "signature": _SIGNATURE}]
        calls = [{**self._tool_use(tool), "input": arguments_in(said[Channel.TOOL])}] if tool else []
        return plain(
            {
                **self._message,
                "content": [*(thoughts if said[Channel.REASONING] else []), *texts, *calls],
                "stop_reason": _REASONS.get(reason_of(script) or ""),
                "stop_sequence": None,
                **self._stated(self._usage.output_tokens if self._usage else 0),
            }
        )

    def _start(self) -> bytes:
        message = {**self._message, "content": [], "stop_reason": None, "stop_sequence": None, **self._stated(1)}
        return typed_event("message_start", message=message)

    def _tokens(self, beat: Beat) -> bytes:
        opening = self._opened(beat.channel)
        return events(opening, b"%b%b}}" % (self._before, quoted(beat.text)))

    def _opened(self, channel: Channel, tool: str = "") -> bytes:
        """What opens a block for the channel; nothing when it is open, or was the last before the end."""
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
        """What closes the block that is open."""
        if self._channel is None:
            return b""
        stop = typed_event("content_block_stop", index=self._index)
        if self._channel is not Channel.REASONING:
            return stop
        signature = {"type": "signature_delta", "signature": _SIGNATURE}
        return events(typed_event("content_block_delta", index=self._index, delta=signature), stop)

    def _finish(self, beat: Beat) -> bytes:
        opening = self._opened(Channel.ANSWER) if self._channel is None else b""
        reason = {"stop_reason": _REASONS.get(beat.text, beat.text), "stop_sequence": None}
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


def _allowance_headers(allowance: Allowance, at: int) -> dict[str, str]:
    levels: dict[str, Level] = {"requests": allowance.requests, "tokens": allowance.tokens}
    headers = {}
    for what, level in levels.items():
        # Whole seconds, and never too few of them.
        reset = datetime.fromtimestamp(-(-(at + level.reset_us) // 1_000_000), UTC)
        headers[f"anthropic-ratelimit-{what}-limit"] = str(level.limit)
        headers[f"anthropic-ratelimit-{what}-remaining"] = str(level.remaining)
        headers[f"anthropic-ratelimit-{what}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return headers
