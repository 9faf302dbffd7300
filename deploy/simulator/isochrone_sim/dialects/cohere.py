"""Cohere's chat, version 2: `POST /v2/chat`, streamed as typed events or not."""

from typing import Any

from isochrone_sim.dialects import base
from isochrone_sim.requests import ErrorResponse, RequestParameters
from isochrone_sim.script import Channel, Kind, Script, Step, Usage

_REASONS = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL"}
_ERROR_ID = "00000000-0000-4000-8000-000000000000"
# channel: (type of the delta, the JSON before and after its text)
_DELTAS = {
    Channel.REASONING: ("content-delta", b'{"content":{"thinking":', b"}}}}"),
    Channel.ANSWER: ("content-delta", b'{"content":{"text":', b"}}}}"),
    Channel.TOOL: ("tool-call-delta", b'{"tool_calls":{"function":{"arguments":', b"}}}}}"),
}
_EMPTY_MESSAGE = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}


class _Renderer(base.ItemRenderer):
    """Items are contents and calls."""

    def __init__(self, parameters: RequestParameters, metadata: base.ResponseMetadata, usage: Usage | None) -> None:
        super().__init__(parameters, metadata, usage)
        self._usage: dict[str, Any] = {}
        if usage:
            counts = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.output_tokens}
            stated = {"billed_units": counts, "tokens": counts, "cached_tokens": usage.cached_tokens}
            self._usage = {"usage": stated}
        self.renderers = {
            **self.renderers,
            Kind.ROLE: lambda _: base.typed_event("message-start", id=self.number, delta={"message": _EMPTY_MESSAGE}),
            Kind.DONE: lambda _: b"data: [DONE]",
            Kind.ERROR: lambda step: base.typed_event(
                "message-end", delta={"finish_reason": "ERROR", "error": step.text}
            ),
        }

    def body(self, script: Script) -> bytes:
        text, reason = script.texts, script.finish_reason or ""
        contents = [{"type": "thinking", "thinking": text[Channel.REASONING]}] if text[Channel.REASONING] else []
        contents += [{"type": "text", "text": text[Channel.ANSWER]}] if text[Channel.ANSWER] else []
        calls = {"tool_calls": [self._call(script.tool, text[Channel.TOOL])]} if script.tool else {}
        return base.to_json(
            {
                "id": self.number,
                "message": {"role": "assistant", "content": contents, **calls},
                "finish_reason": _REASONS.get(reason, reason),
                **self._usage,
            }
        )

    def delta(self, step: Step) -> bytes:
        opening = self.opened(step.channel)
        return base.events(opening, b"%b%b%b" % (self.before, base.quoted(step.text), _DELTAS[step.channel][2]))

    def opening(self, channel: Channel, tool: str) -> bytes:
        kind, opening, _ = _DELTAS[channel]
        name = kind.encode()
        self.before = (
            b'event: %b\ndata: {"type":"%b","index":%d,"delta":{"message":' % (name, name, self.index) + opening
        )
        contents: dict[Channel, dict[str, Any]] = {
            Channel.REASONING: {"content": {"type": "thinking", "thinking": ""}},
            Channel.ANSWER: {"content": {"type": "text", "text": ""}},
            Channel.TOOL: {"tool_calls": self._call(tool, "")},
        }
        return base.typed_event(kind.replace("delta", "start"), index=self.index, delta={"message": contents[channel]})

    def closing(self, channel: Channel) -> bytes:
        return base.typed_event(_DELTAS[channel][0].replace("delta", "end"), index=self.index)

    def ending(self, reason: str) -> bytes:
        delta = {"finish_reason": _REASONS.get(reason, reason), **self._usage}
        return base.typed_event("message-end", id=self.number, delta=delta)

    def _call(self, name: str, arguments: str) -> dict[str, Any]:
        return {"id": f"{name}_{self.number}", "type": "function", "function": {"name": name, "arguments": arguments}}


class _Cohere(base.Dialect):
    """Usage is always reported."""

    name, path = "cohere", "/v2/chat"
    renderer = _Renderer

    def more(self, fields: dict[str, Any]) -> dict[str, Any]:
        thinking = base.object_or_empty(fields.get("thinking")).get("type")
        return {"reasoning_effort": {"enabled": "medium", "disabled": "none"}.get(str(thinking))}

    def headers(self, metadata: base.ResponseMetadata) -> dict[str, str]:
        """Cohere's own id is the trace id; agents find the ground truth by the other one."""
        headers = {
            "x-request-id": metadata.request_id,
            "x-debug-trace-id": metadata.request_id.removeprefix("req_"),
            "x-envoy-upstream-service-time": str(metadata.processing_us // 1000),
        }
        if metadata.rate_limit:
            # Cohere reports limits per endpoint and for requests only.
            headers["x-trial-endpoint-call-limit"] = str(metadata.rate_limit.requests.limit)
            headers["x-trial-endpoint-call-remaining"] = str(metadata.rate_limit.requests.remaining)
        return headers

    def error_body(self, response: ErrorResponse) -> bytes:
        return base.to_json({"id": _ERROR_ID, "message": response.message})


DIALECT = _Cohere()
