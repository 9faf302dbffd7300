"""OpenAI's responses: `POST /v1/responses`, streamed as typed events or not.

An answer is a list of items. Reasoning is an item of which only a summary is sent, and only on request.
"""

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
from isochrone_sim.dialects.openai_chat import openai_error, openai_headers
from isochrone_sim.requests import ErrorResponse, Request, RequestParameters, count_prompt_tokens, find_nonce
from isochrone_sim.script import Channel, Kind, Script, Step, Usage

_DELTAS = {
    Channel.REASONING: "response.reasoning_summary_text.delta",
    Channel.ANSWER: "response.output_text.delta",
    Channel.TOOL: "response.function_call_arguments.delta",
}
# The position of a piece of text in its item.
_PLACES: dict[Channel, dict[str, int]] = {
    Channel.REASONING: {"summary_index": 0},
    Channel.ANSWER: {"content_index": 0},
    Channel.TOOL: {},
}
_PREFIXES = {Channel.REASONING: "rs", Channel.ANSWER: "msg", Channel.TOOL: "fc"}


class OpenAIResponses:
    """See `Dialect`."""

    name = "openai-responses"
    retry_after = True

    def serves(self, path: str) -> bool:
        """See `Dialect.serves`."""
        return path == "/v1/responses"

    def key(self, request: Request) -> str | None:
        """See `Dialect.key`: a bearer token."""
        return bearer_token(request.headers)

    def read(self, request: Request) -> RequestParameters:
        """See `Dialect.read`."""
        fields = parse_body(request.body)
        asked_for = fields.get("input")
        texts = [asked_for] if isinstance(asked_for, str) else message_texts(asked_for, param="input")
        reasoning = object_or_empty(fields.get("reasoning"))
        effort = reasoning.get("effort")
        return RequestParameters(
            model=model_name(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=token_limit(fields, "max_output_tokens"),
            temperature=temperature(fields),
            reasoning_effort=effort if isinstance(effort, str) else None,
            hidden_reasoning=isinstance(effort, str) and not reasoning.get("summary"),
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def renderer(self, parameters: RequestParameters, metadata: ResponseMetadata, usage: Usage | None) -> Renderer:
        """See `Dialect.renderer`."""
        return _Renderer(metadata, usage, hidden_reasoning=parameters.hidden_reasoning)

    def headers(self, metadata: ResponseMetadata) -> dict[str, str]:
        """See `Dialect.headers`."""
        return openai_headers(metadata)

    def error_body(self, response: ErrorResponse) -> bytes:
        """See `Dialect.error_body`."""
        return openai_error(response)


class _Renderer:
    """Counts its events and tracks the open item."""

    newline = b"\n"

    def __init__(self, metadata: ResponseMetadata, usage: Usage | None, *, hidden_reasoning: bool) -> None:
        self._number = metadata.number
        self._response: dict[str, Any] = {
            "id": f"resp_{metadata.number}",
            "object": "response",
            "created_at": metadata.created_at // 1_000_000,
            "model": metadata.model,
        }
        self._usage = {"usage": _usage(usage)} if usage else {}
        self._hidden_reasoning = hidden_reasoning
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        self._channel: Channel | None = None
        self._tool = ""
        self._texts: list[str] = []
        self._before = b""
        self._renderers: EventRenderers = {
            **RAW_EVENTS,
            Kind.ROLE: lambda _: events(*map(self._progress, ("response.created", "response.in_progress"))),
            Kind.NULL: lambda _: self._opened(Channel.ANSWER),
            Kind.EMPTY: self._tokens,
            Kind.TOKENS: self._tokens,
            Kind.CALL: self._call,
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.ERROR: lambda step: self._typed("error", code="server_error", message=step.text, param=None),
        }

    def event(self, step: Step) -> bytes:
        render = self._renderers.get(step.kind)
        return render(step) if render else b""

    def body(self, script: Script) -> bytes:
        text = text_by_channel(script)
        self._tool = tool_name(script) or ""
        for number, channel in enumerate(c for c in Channel if text[c]):
            if not (self._hidden_reasoning and channel is Channel.REASONING):
                self._items.append(self._item(channel, number, text[channel], status="completed"))
        return to_json(self._ended(finish_reason(script) or ""))

    def _tokens(self, step: Step) -> bytes:
        if self._hidden_reasoning and step.channel is Channel.REASONING:
            return b""
        opening = self._opened(step.channel)
        if step.tokens:
            self._texts.append(step.text)
        delta = b"%b%d,%b%b}" % (self._before, self._sequence, b'"delta":', quoted(step.text))
        self._sequence += 1
        return events(opening, delta)

    def _call(self, step: Step) -> bytes:
        self._tool = step.text
        return self._opened(Channel.TOOL)

    def _opened(self, channel: Channel) -> bytes:
        """Return the events that open an item for the channel; empty if it is already open."""
        if channel is self._channel:
            return b""
        closing = self._closed()
        self._channel, self._texts = channel, []
        place = self._place(channel)
        fields = to_json({"type": _DELTAS[channel], **place})[:-1]
        self._before = b"event: %b\ndata: %b," % (_DELTAS[channel].encode(), fields) + b'"sequence_number":'
        item = self._item(channel, len(self._items), None, status="in_progress")
        added = self._typed("response.output_item.added", output_index=len(self._items), item=item)
        return events(closing, added, self._part("added", channel, place, ""))

    def _closed(self) -> bytes:
        """Return the events that close the open item."""
        channel = self._channel
        if channel is None:
            return b""
        text, place, number = "".join(self._texts), self._place(channel), len(self._items)
        item = self._item(channel, number, text, status="completed")
        self._items.append(item)
        field = "arguments" if channel is Channel.TOOL else "text"
        return events(
            self._typed(_DELTAS[channel].removesuffix("delta") + "done", **place, **{field: text}),
            self._part("done", channel, place, text),
            self._typed("response.output_item.done", output_index=number, item=item),
        )

    def _part(self, what: str, channel: Channel, place: dict[str, object], text: str) -> bytes:
        if channel is Channel.TOOL:
            return b""
        name = "content_part" if channel is Channel.ANSWER else "reasoning_summary_part"
        return self._typed(f"response.{name}.{what}", **place, part=_part(channel, text))

    def _finish(self, step: Step) -> bytes:
        opening = self._opened(Channel.ANSWER) if self._channel is None else b""
        closing = self._closed()
        ended = self._ended(step.text)
        return events(opening, closing, self._typed(f"response.{ended['status']}", response=ended))

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
        item: dict[str, Any] = {"id": f"{_PREFIXES[channel]}_{self._number}_{number}"}
        if channel is Channel.TOOL:
            call = {"call_id": f"call_{self._number}", "name": self._tool, "arguments": text or ""}
            return item | {"type": "function_call", "status": status, **call}
        parts = [] if text is None else [_part(channel, text)]
        if channel is Channel.REASONING:
            return item | {"type": "reasoning", "summary": parts}
        return item | {"type": "message", "status": status, "role": "assistant", "content": parts}

    def _place(self, channel: Channel) -> dict[str, object]:
        number = len(self._items)
        return {
            "item_id": f"{_PREFIXES[channel]}_{self._number}_{number}",
            "output_index": number,
            **_PLACES[channel],
        }

    def _typed(self, kind: str, **fields: object) -> bytes:
        self._sequence += 1
        return typed_event(kind, sequence_number=self._sequence - 1, **fields)


def _part(channel: Channel, text: str) -> dict[str, Any]:
    if channel is Channel.REASONING:
        return {"type": "summary_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
