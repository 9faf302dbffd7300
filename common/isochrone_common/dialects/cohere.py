"""Cohere's Chat API, version 2: typed events, with text and thinking in deltas and usage in the last one."""

from typing import Any

from isochrone_common.dialects.base import Dialect, Quirks, answer, call_text, count, fields_of, given, text_of
from isochrone_common.dialects.failures import finish
from isochrone_common.dialects.signals import Reasoning, Signal, Usage
from isochrone_wire.model import Target
from isochrone_wire.workloads import COHERE_THINKING

_METADATA = (
    "message-start",
    "content-start",
    "content-end",
    "tool-call-end",
    "citation-start",
    "citation-end",
    "debug",
)


class Cohere(Dialect):
    """`POST {base_url}/chat` with `stream: true`."""

    name = "cohere"
    path = "chat"

    def body(self, target: Target, prompt: str, quirks: Quirks) -> dict[str, Any]:  # noqa: ARG002  # see Dialect
        """See `Dialect.body`."""
        workload, effort = target.workload, target.workload.reasoning_effort
        return {
            "model": target.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": workload.max_output_tokens,
            "stream": True,
            **given(temperature=workload.temperature),
            **({} if effort is None else {"thinking": {"type": COHERE_THINKING.get(effort, effort)}}),
        }

    def read(self, message: dict[str, Any]) -> list[Signal] | None:
        """See `Dialect.read`."""
        kind, delta = message.get("type"), message.get("delta") or {}
        if kind in ("content-delta", "tool-plan-delta", "tool-call-start", "tool-call-delta"):
            return self._content(delta.get("message") or {})
        if kind == "message-end":
            return self._end(delta)
        return [] if kind in _METADATA else None

    @staticmethod
    def _content(message: dict[str, Any]) -> list[Signal]:
        content, calls = message.get("content"), message.get("tool_calls") or {}
        thinking = fields_of(content).get("thinking")
        reasoning = text_of(thinking or message.get("tool_plan"))
        text = ("" if thinking else text_of(content)) or call_text(calls.get("function"))
        return [*([Reasoning(len(reasoning))] if reasoning else []), *answer(text)]

    @staticmethod
    def _end(delta: dict[str, Any]) -> list[Signal]:
        reason = str(delta.get("finish_reason") or "message-end")
        usage = fields_of(delta.get("usage"))
        tokens = fields_of(usage.get("tokens") or usage.get("billed_units"))
        counts = Usage(
            prompt_tokens=count(tokens.get("input_tokens")),
            output_tokens=count(tokens.get("output_tokens")),
            cached_tokens=count(usage.get("cached_tokens")),
        )
        return [counts, *finish(reason, final=True, error=delta.get("error"))]
