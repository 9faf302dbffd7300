"""Cohere's Chat API, version 2: typed events, with text and thinking in deltas and usage in the last one."""

from typing import Any

from isochrone_common.dialects.base import Dialect, Quirks, count, given, in_band_failure, parse_json
from isochrone_common.dialects.signals import Answer, Finished, Reasoning, Signal, Usage
from isochrone_common.sse import Event
from isochrone_wire.model import Target
from isochrone_wire.workloads import COHERE_THINKING

_DONE = b"[DONE]"
_FAILED = ("ERROR", "ERROR_TOXIC", "ERROR_LIMIT", "TIMEOUT")


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

    def interpret(self, event: Event) -> list[Signal]:
        """See `Dialect.interpret`."""
        if event.data == _DONE:
            return []
        message = parse_json(event.data)
        kind, delta = message.get("type"), message.get("delta") or {}
        if kind in ("content-delta", "tool-plan-delta", "tool-call-start", "tool-call-delta"):
            return self._content(delta.get("message") or {})
        if kind == "message-end":
            return self._end(delta)
        # An error event has no type: `{"message": …, "id": …}` or `{"error": …}`.
        if kind is None and (message.get("message") or message.get("error")):
            return [in_band_failure(message.get("error") or message)]
        return []

    @staticmethod
    def _content(message: dict[str, Any]) -> list[Signal]:
        content, calls = message.get("content") or {}, message.get("tool_calls") or {}
        reasoning = content.get("thinking") or message.get("tool_plan") or ""
        call = calls.get("function") or {}
        text = content.get("text") or (call.get("name") or "") + (call.get("arguments") or "")
        return [*([Reasoning(len(reasoning))] if reasoning else []), *([Answer(len(text))] if text else [])]

    @staticmethod
    def _end(delta: dict[str, Any]) -> list[Signal]:
        reason = str(delta.get("finish_reason") or "")
        if reason in _FAILED:
            return [in_band_failure({"message": delta.get("error") or reason})]
        tokens = (delta.get("usage") or {}).get("tokens") or {}
        usage = Usage(
            prompt_tokens=count(tokens.get("input_tokens")),
            output_tokens=count(tokens.get("output_tokens")),
            cached_tokens=count((delta.get("usage") or {}).get("cached_tokens")),
        )
        return [usage, Finished(reason)]
