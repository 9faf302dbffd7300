"""OpenAI's responses: `POST /v1/responses`, streamed as typed events or not.

An answer is a list of items. Reasoning is an item of which only a summary is told, and only to those who ask for one.
"""

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
from isochrone_sim.dialects.openai_chat import openai_error, openai_headers
from isochrone_sim.exchange.refusal import Refusal
from isochrone_sim.exchange.request_parameters import Asked, count_prompt_tokens, find_nonce
from isochrone_sim.exchange.requests import Request
from isochrone_sim.exchange.script import Beat, Channel, Kind, Script, Usage

_DELTAS = {
    Channel.REASONING: "response.reasoning_summary_text.delta",
    Channel.ANSWER: "response.output_text.delta",
    Channel.TOOL: "response.function_call_arguments.delta",
}
# Where in its item a piece of text belongs.
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

    def read(self, request: Request) -> Asked:
        """See `Dialect.read`."""
        fields = parse_body(request.body)
        asked_for = fields.get("input")
        texts = [asked_for] if isinstance(asked_for, str) else texts_of(asked_for, param="input")
        reasoning = table(fields.get("reasoning"))
        effort = reasoning.get("effort")
        return Asked(
            model=model_name(fields.get("model")),
            stream=fields.get("stream") is True,
            max_tokens=token_limit(fields, "max_output_tokens"),
            temperature=temperature(fields),
            reasoning_effort=effort if isinstance(effort, str) else None,
            silent=isinstance(effort, str) and not reasoning.get("summary"),
            prompt_tokens=count_prompt_tokens(texts),
            nonce=find_nonce(texts),
        )

    def voice(self, asked: Asked, facts: Facts, usage: Usage | None) -> Voice:
        """See `Dialect.voice`."""
        return _Voice(facts, usage, silent=asked.silent)

    def headers(self, facts: Facts) -> dict[str, str]:
        """See `Dialect.headers`."""
        return openai_headers(facts)

    def refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect.refusal`."""
        return openai_error(refusal)


class _Voice:
    """Counts its events, and remembers the item that is open."""

    newline = b"\n"

    def __init__(self, facts: Facts, usage: Usage | None, *, silent: bool) -> None:
        self._number = facts.number
        self._response: dict[str, Any] = {
            "id": f"resp_{facts.number}",
            "object": "response",
            "created_at": facts.created_at // 1_000_000,
            "model": facts.model,
        }
        self._usage = {"usage": _usage(usage)} if usage else {}
        self._silent = silent
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        self._channel: Channel | None = None
        self._tool = ""
        self._said: list[str] = []
        self._before = b""
        self._renderers: Renderers = {
            **PLAIN_BEATS,
            Kind.ROLE: lambda _: events(*map(self._progress, ("response.created", "response.in_progress"))),
            Kind.NULL: lambda _: self._opened(Channel.ANSWER),
            Kind.EMPTY: self._tokens,
            Kind.TOKENS: self._tokens,
            Kind.CALL: self._call,
            Kind.FINISH: self._finish,
            Kind.FINISH_WITH_USAGE: self._finish,
            Kind.ERROR: lambda beat: self._typed("error", code="server_error", message=beat.text, param=None),
        }

    def event(self, beat: Beat) -> bytes:
        render = self._renderers.get(beat.kind)
        return render(beat) if render else b""

    def whole(self, script: Script) -> bytes:
        said = said_in(script)
        self._tool = tool_of(script) or ""
        for number, channel in enumerate(c for c in Channel if said[c]):
            if not (self._silent and channel is Channel.REASONING):
                self._items.append(self._item(channel, number, said[channel], status="completed"))
        return plain(self._ended(reason_of(script) or ""))

    def _tokens(self, beat: Beat) -> bytes:
        if self._silent and beat.channel is Channel.REASONING:
            return b""
        opening = self._opened(beat.channel)
        if beat.tokens:
            self._said.append(beat.text)
        delta = b"%b%d,%b%b}" % (self._before, self._sequence, b'"delta":', quoted(beat.text))
        self._sequence += 1
        return events(opening, delta)

    def _call(self, beat: Beat) -> bytes:
        self._tool = beat.text
        return self._opened(Channel.TOOL)

    def _opened(self, channel: Channel) -> bytes:
        """What opens an item for the channel; nothing when it is open, or was the last before the end."""
        if channel is self._channel:
            return b""
        closing = self._closed()
        self._channel, self._said = channel, []
        place = self._place(channel)
        fields = plain({"type": _DELTAS[channel], **place})[:-1]
        self._before = b"event: %b\ndata: %b," % (_DELTAS[channel].encode(), fields) + b'"sequence_number":'
        item = self._item(channel, len(self._items), None, status="in_progress")
        added = self._typed("response.output_item.added", output_index=len(self._items), item=item)
        return events(closing, added, self._part("added", channel, place, ""))

    def _closed(self) -> bytes:
        """What closes the item that is open."""
        channel = self._channel
        if channel is None:
            return b""
        text, place, number = "".join(self._said), self._place(channel), len(self._items)
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

    def _finish(self, beat: Beat) -> bytes:
        opening = self._opened(Channel.ANSWER) if self._channel is None else b""
        closing = self._closed()
        ended = self._ended(beat.text)
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
        """An item of the answer; its text is `None` when it has just begun."""
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
