"""OpenAI's responses: `POST /v1/responses`, streamed as typed events or not.

An answer is a list of items. Reasoning is an item of which only a summary is sent, and only on request.
"""

from typing import Any

from isochrone_sim.dialects import base
from isochrone_sim.dialects.openai_chat import OpenAI
from isochrone_sim.requests import Request, RequestParameters
from isochrone_sim.script import Channel, Kind, Script, Step, Usage

# channel: (type of the delta, position of the text in its item, prefix of the id)
_DELTAS: dict[Channel, tuple[str, dict[str, int], str]] = {
    Channel.REASONING: ("response.reasoning_summary_text.delta", {"summary_index": 0}, "rs"),
    Channel.ANSWER: ("response.output_text.delta", {"content_index": 0}, "msg"),
    Channel.TOOL: ("response.function_call_arguments.delta", {}, "fc"),
}


class _Renderer(base.ItemRenderer):
    def __init__(self, parameters: RequestParameters, metadata: base.ResponseMetadata, usage: Usage | None) -> None:
        super().__init__(parameters, metadata, usage)
        self._response: dict[str, Any] = {
            "id": f"resp_{self.number}",
            "object": "response",
            "created_at": metadata.created_at // 1_000_000,
            "model": metadata.model,
        }
        self._usage: dict[str, Any] = {}
        if usage:
            self._usage["usage"] = {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
                "total_tokens": usage.prompt_tokens + usage.output_tokens,
            }
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        self._tool = ""
        self._texts: list[str] = []
        self.renderers = {
            **self.renderers,
            Kind.ROLE: lambda _: base.events(*map(self._progress, ("response.created", "response.in_progress"))),
            Kind.ERROR: lambda step: self._typed("error", code="server_error", message=step.text, param=None),
        }

    def body(self, script: Script) -> bytes:
        text = script.texts
        self._tool = script.tool or ""
        for number, channel in enumerate(c for c in Channel if text[c]):
            if not (self.parameters.hidden_reasoning and channel is Channel.REASONING):
                self._items.append(self._item(channel, number, text[channel], status="completed"))
        return base.to_json(self._ended(script.finish_reason or ""))

    def delta(self, step: Step) -> bytes:
        if self.parameters.hidden_reasoning and step.channel is Channel.REASONING:
            return b""
        opening = self.opened(step.channel)
        if step.tokens:
            self._texts.append(step.text)
        delta = b"%b%d,%b%b}" % (self.before, self._sequence, b'"delta":', base.quoted(step.text))
        self._sequence += 1
        return base.events(opening, delta)

    def opening(self, channel: Channel, tool: str) -> bytes:
        self._texts, self._tool = [], tool or self._tool
        place, kind = self._place(channel), _DELTAS[channel][0]
        fields = base.to_json({"type": kind, **place})[:-1]
        self.before = b"event: %b\ndata: %b," % (kind.encode(), fields) + b'"sequence_number":'
        item = self._item(channel, self.index, None, status="in_progress")
        added = self._typed("response.output_item.added", output_index=self.index, item=item)
        return base.events(added, self._part("added", channel, place, ""))

    def closing(self, channel: Channel) -> bytes:
        text, place = "".join(self._texts), self._place(channel)
        item = self._item(channel, self.index, text, status="completed")
        self._items.append(item)
        field = "arguments" if channel is Channel.TOOL else "text"
        return base.events(
            self._typed(_DELTAS[channel][0].removesuffix("delta") + "done", **place, **{field: text}),
            self._part("done", channel, place, text),
            self._typed("response.output_item.done", output_index=self.index, item=item),
        )

    def _part(self, what: str, channel: Channel, place: dict[str, object], text: str) -> bytes:
        if channel is Channel.TOOL:
            return b""
        name = "content_part" if channel is Channel.ANSWER else "reasoning_summary_part"
        return self._typed(f"response.{name}.{what}", **place, part=_part(channel, text))

    def ending(self, reason: str) -> bytes:
        ended = self._ended(reason)
        return self._typed(f"response.{ended['status']}", response=ended)

    def _progress(self, kind: str) -> bytes:
        return self._typed(kind, response={**self._response, "status": "in_progress", "output": [], "usage": None})

    def _ended(self, reason: str) -> dict[str, Any]:
        cut = reason == "length"
        return {
            **self._response,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "output": self._items,
            **self._usage,
        }

    def _item(self, channel: Channel, number: int, text: str | None, *, status: str) -> dict[str, Any]:
        """Return an item of the answer; `text` is `None` for a new item."""
        item: dict[str, Any] = {"id": f"{_DELTAS[channel][2]}_{self.number}_{number}"}
        if channel is Channel.TOOL:
            call = {"call_id": f"call_{self.number}", "name": self._tool, "arguments": text or ""}
            return item | {"type": "function_call", "status": status, **call}
        parts = [] if text is None else [_part(channel, text)]
        if channel is Channel.REASONING:
            return item | {"type": "reasoning", "summary": parts}
        return item | {"type": "message", "status": status, "role": "assistant", "content": parts}

    def _place(self, channel: Channel) -> dict[str, object]:
        _, place, prefix = _DELTAS[channel]
        return {"item_id": f"{prefix}_{self.number}_{self.index}", "output_index": self.index, **place}

    def _typed(self, kind: str, **fields: object) -> bytes:
        self._sequence += 1
        return base.typed_event(kind, sequence_number=self._sequence - 1, **fields)


class _OpenAIResponses(OpenAI):
    name, path = "openai-responses", "/v1/responses"
    limits = ("max_output_tokens",)
    messages = "input"
    renderer = _Renderer

    def fields(self, request: Request) -> dict[str, Any]:
        fields = super().fields(request)
        text = fields.get("input")
        return {**fields, "input": [{"content": text}]} if isinstance(text, str) else fields

    def more(self, fields: dict[str, Any]) -> dict[str, Any]:
        reasoning = base.object_or_empty(fields.get("reasoning"))
        effort = reasoning.get("effort")
        is_asked = isinstance(effort, str)
        return {
            "reasoning_effort": effort if is_asked else None,
            "hidden_reasoning": is_asked and not reasoning.get("summary"),
        }


DIALECT = _OpenAIResponses()


def _part(channel: Channel, text: str) -> dict[str, Any]:
    if channel is Channel.REASONING:
        return {"type": "summary_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
