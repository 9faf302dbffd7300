"""Cohere's chat, version 2: `POST /v2/chat`, streamed as typed events or not."""

from typing import Any

from isochrone_sim.dialects.base import (
    PLAIN_BEATS,
    Facts,
    Renderers,
    Voice,
    events,
    plain,
    quoted,
    reason_of,
    said_in,
    tool_of,
    typed_event,
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
from isochrone_sim.exchange.refusal import Refusal
from isochrone_sim.exchange.request_parameters import Asked, count_prompt_tokens, find_nonce
from isochrone_sim.exchange.requests import Request
from isochrone_sim.exchange.script import Beat, Channel, Kind, Script, Usage

_REASONS = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL"}
_ERROR_ID = "00000000-0000-4000-8000-000000000000"
# channel: (type of the delta, what stands around its text)
_DELTAS = {
    Channel.REASONING: ("content-delta", b'{"content":{"thinking":', b"}}}}"),
    Channel.ANSWER: ("content-delta", b'{"content":{"text":', b"}}}}"),
    Channel.TOOL: ("tool-call-delta", b'{"tool_calls":{"function":{"arguments":', b"}}}}}"),
}
_ENDS = {Channel.REASONING: "content-end", Channel.ANSWER: "content-end", Channel.TOOL: "tool-call-end"}


class Cohere:
    """See `Dialect`."""

    name = "cohere"
    retry_after = True

    def serves(self, path: str) -> bool:
        """See `Dialect.serves`."""
        return path == "/v2/chat"

    def key(self, request: Request) -> str | None:
        """See `Dialect.key`: a bearer token."""
        return bearer_token(request.headers)

    def read(self, request: Request) -> Asked:
        """See `Dialect.read`."""
        fields = parse_body(request.body)
        texts = texts_of(fields.get("messages"))
        thinking = table(fields.get("thinking")).get("type")
        return Asked(
            model=model_name(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=token_limit(fields, "max_tokens"),
            temperature=temperature(fields),
            reasoning_effort={"enabled": "medium", "disabled": "none"}.get(str(thinking)),
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def voice(self, asked: Asked, facts: Facts, usage: Usage | None) -> Voice:
        """See `Dialect.voice`."""
        del asked  # usage comes to everybody
        return _Voice(facts, usage)

    def headers(self, facts: Facts) -> dict[str, str]:
        """See `Dialect.headers`. Cohere's own id is the trace; the other one leads agents to the truth."""
        headers = {
            "x-request-id": facts.request_id,
            "x-debug-trace-id": facts.number,
            "x-envoy-upstream-service-time": str(facts.processing_us // 1000),
        }
        if facts.allowance:
            # Cohere states its limit per endpoint and for requests only.
            headers["x-trial-endpoint-call-limit"] = str(facts.allowance.requests.limit)
            headers["x-trial-endpoint-call-remaining"] = str(facts.allowance.requests.remaining)
        return headers

    def refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect.refusal`."""
        return plain({"id": _ERROR_ID, "message": refusal.message})


class _Voice:
    """Remembers the content or the call that is open."""

    newline = b"\n"

    def __init__(self, facts: Facts, usage: Usage | None) -> None:
        self._id = facts.number
        self._usage = {"usage": _usage(usage)} if usage else {}
        self._index = -1
        self._channel: Channel | None = None
        self._before = b""
        self._renderers: Renderers = {
            **PLAIN_BEATS,
            Kind.ROLE: lambda _: typed_event("message-start", id=self._id, delta={"message": _EMPTY_MESSAGE}),
            Kind.NULL: lambda _: self._opened(Channel.ANSWER),
            Kind.EMPTY: self._tokens,
            Kind.TOKENS: self._tokens,
            Kind.CALL: lambda beat: self._opened(Channel.TOOL, beat.text),
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.DONE: lambda _: b"data: [DONE]",
            Kind.ERROR: lambda beat: typed_event("message-end", delta={"finish_reason": "ERROR", "error": beat.text}),
        }

    def event(self, beat: Beat) -> bytes:
        render = self._renderers.get(beat.kind)
        return render(beat) if render else b""

    def whole(self, script: Script) -> bytes:
        said, tool = said_in(script), tool_of(script)
        contents = [{"type": "thinking", "thinking": said[Channel.REASONING]}] if said[Channel.REASONING] else []
        contents += [{"type": "text", "text": said[Channel.ANSWER]}] if said[Channel.ANSWER] else []
        calls = {"tool_calls": [self._call(tool, said[Channel.TOOL])]} if tool else {}
        reason = reason_of(script) or ""
        return plain(
            {
                "id": self._id,
                "message": {"role": "assistant", "content": contents, **calls},
                "finish_reason": _REASONS.get(reason, reason),
                **self._usage,
            }
        )

    def _tokens(self, beat: Beat) -> bytes:
        opening = self._opened(beat.channel)
        return events(opening, b"%b%b%b" % (self._before, quoted(beat.text), _DELTAS[beat.channel][2]))

    def _opened(self, channel: Channel, tool: str = "") -> bytes:
        """What opens a content or a call; nothing when it is open, or was the last before the end."""
        if channel is self._channel:
            return b""
        closing = self._closed()
        self._channel = channel
        self._index += 1
        kind, opening, _ = _DELTAS[channel]
        name = kind.encode()
        self._before = (
            b'event: %b\ndata: {"type":"%b","index":%d,"delta":{"message":' % (name, name, self._index) + opening
        )
        contents: dict[Channel, dict[str, Any]] = {
            Channel.REASONING: {"content": {"type": "thinking", "thinking": ""}},
            Channel.ANSWER: {"content": {"type": "text", "text": ""}},
            Channel.TOOL: {"tool_calls": self._call(tool, "")},
        }
        started = typed_event(kind.replace("delta", "start"), index=self._index, delta={"message": contents[channel]})
        return events(closing, started)

    def _closed(self) -> bytes:
        """What closes that which is open."""
        return typed_event(_ENDS[self._channel], index=self._index) if self._channel else b""

    def _finish(self, beat: Beat) -> bytes:
        opening = self._opened(Channel.ANSWER) if self._channel is None else b""
        delta = {"finish_reason": _REASONS.get(beat.text, beat.text), **self._usage}
        return events(opening, self._closed(), typed_event("message-end", id=self._id, delta=delta))

    def _call(self, name: str, arguments: str) -> dict[str, Any]:
        return {"id": f"{name}_{self._id}", "type": "function", "function": {"name": name, "arguments": arguments}}


_EMPTY_MESSAGE = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "billed_units": {"input_tokens": usage.prompt_tokens, "output_tokens": usage.output_tokens},
        "tokens": {"input_tokens": usage.prompt_tokens, "output_tokens": usage.output_tokens},
        "cached_tokens": usage.cached_tokens,
    }
