"""Cohere's chat, version 2: `POST /v2/chat`, streamed as typed events or not."""

from typing import Any

from isochrone_sim.dialects.base import (
    RAW_EVENTS,
    EventRenderers,
    Renderer,
    ResponseMetadata,
    bearer_token,
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
from isochrone_sim.requests import ErrorResponse, Request, RequestParameters, count_prompt_tokens, find_nonce
from isochrone_sim.script import Channel, Kind, Script, Step, Usage

_REASONS = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL"}
_ERROR_ID = "00000000-0000-4000-8000-000000000000"
# channel: (type of the delta, the JSON before and after its text)
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

    def read(self, request: Request) -> RequestParameters:
        """See `Dialect.read`."""
        fields = parse_body(request.body)
        texts = message_texts(fields.get("messages"))
        thinking = object_or_empty(fields.get("thinking")).get("type")
        return RequestParameters(
            model=model_name(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=token_limit(fields, "max_tokens"),
            temperature=temperature(fields),
            reasoning_effort={"enabled": "medium", "disabled": "none"}.get(str(thinking)),
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def renderer(self, parameters: RequestParameters, metadata: ResponseMetadata, usage: Usage | None) -> Renderer:
        """See `Dialect.renderer`."""
        del parameters  # usage is always reported
        return _Renderer(metadata, usage)

    def headers(self, metadata: ResponseMetadata) -> dict[str, str]:
        """See `Dialect.headers`. Cohere's own id is the trace id; agents find the ground truth by the other one."""
        headers = {
            "x-request-id": metadata.request_id,
            "x-debug-trace-id": metadata.number,
            "x-envoy-upstream-service-time": str(metadata.processing_us // 1000),
        }
        if metadata.rate_limit:
            # Cohere reports limits per endpoint and for requests only.
            headers["x-trial-endpoint-call-limit"] = str(metadata.rate_limit.requests.limit)
            headers["x-trial-endpoint-call-remaining"] = str(metadata.rate_limit.requests.remaining)
        return headers

    def error_body(self, response: ErrorResponse) -> bytes:
        """See `Dialect.error_body`."""
        return to_json({"id": _ERROR_ID, "message": response.message})


class _Renderer:
    """Tracks the open content or call."""

    newline = b"\n"

    def __init__(self, metadata: ResponseMetadata, usage: Usage | None) -> None:
        self._id = metadata.number
        self._usage = {"usage": _usage(usage)} if usage else {}
        self._index = -1
        self._channel: Channel | None = None
        self._before = b""
        self._renderers: EventRenderers = {
            **RAW_EVENTS,
            Kind.ROLE: lambda _: typed_event("message-start", id=self._id, delta={"message": _EMPTY_MESSAGE}),
            Kind.NULL: lambda _: self._opened(Channel.ANSWER),
            Kind.EMPTY: self._tokens,
            Kind.TOKENS: self._tokens,
            Kind.CALL: lambda step: self._opened(Channel.TOOL, step.text),
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.DONE: lambda _: b"data: [DONE]",
            Kind.ERROR: lambda step: typed_event("message-end", delta={"finish_reason": "ERROR", "error": step.text}),
        }

    def event(self, step: Step) -> bytes:
        render = self._renderers.get(step.kind)
        return render(step) if render else b""

    def body(self, script: Script) -> bytes:
        text, tool = text_by_channel(script), tool_name(script)
        contents = [{"type": "thinking", "thinking": text[Channel.REASONING]}] if text[Channel.REASONING] else []
        contents += [{"type": "text", "text": text[Channel.ANSWER]}] if text[Channel.ANSWER] else []
        calls = {"tool_calls": [self._call(tool, text[Channel.TOOL])]} if tool else {}
        reason = finish_reason(script) or ""
        return to_json(
            {
                "id": self._id,
                "message": {"role": "assistant", "content": contents, **calls},
                "finish_reason": _REASONS.get(reason, reason),
                **self._usage,
            }
        )

    def _tokens(self, step: Step) -> bytes:
        opening = self._opened(step.channel)
        return events(opening, b"%b%b%b" % (self._before, quoted(step.text), _DELTAS[step.channel][2]))

    def _opened(self, channel: Channel, tool: str = "") -> bytes:
        """Return the events that open a content or a call; empty if it is already open."""
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
        """Return the event that closes the open content or call."""
        return typed_event(_ENDS[self._channel], index=self._index) if self._channel else b""

    def _finish(self, step: Step) -> bytes:
        opening = self._opened(Channel.ANSWER) if self._channel is None else b""
        delta = {"finish_reason": _REASONS.get(step.text, step.text), **self._usage}
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
