"""Finds the first content in a stream of a provider: until then, another member may still answer. Pure."""

import json
from collections.abc import Callable
from enum import Enum
from typing import Any

from isochrone_common.sse import Event, SseDecoder, SseOverflow


class Progress(Enum):
    """`WAITING`: nothing that a caller would show. `CONTENT`: a token, or a regular end. `FAILED`: an error."""

    WAITING = "waiting"
    CONTENT = "content"
    FAILED = "failed"


# Finish reasons that are errors of the provider.
_FAILED_REASONS = ("insufficient_system_resource", "network_error", "error")
_CHAT_CONTENT = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio")
_OUTPUT_ENDS = ("response.completed", "response.incomplete")


class FirstContent:
    """The progress of one stream in a dialect, up to its first content or failure."""

    def __init__(self, dialect: str) -> None:
        self._judge = _JUDGES[dialect]
        self._decoder = SseDecoder()

    def receive(self, data: bytes) -> Progress:
        """Feed the next bytes. What cannot be read counts as content: the caller judges it."""
        try:
            events = self._decoder.receive(data)
        except SseOverflow:
            return Progress.CONTENT
        found = (self._progress(event) for event in events)
        return next((progress for progress in found if progress is not Progress.WAITING), Progress.WAITING)

    def _progress(self, event: Event) -> Progress:
        try:
            message = json.loads(event.data)
        except ValueError:
            return Progress.CONTENT  # such as [DONE]
        return self._judge(message) if isinstance(message, dict) else Progress.CONTENT


def _chat(message: dict[str, Any]) -> Progress:
    if message.get("error"):
        return Progress.FAILED
    choices = [one for one in message.get("choices") or () if isinstance(one, dict)]
    if any(one.get("finish_reason") in _FAILED_REASONS for one in choices):
        return Progress.FAILED
    has_content = any(one.get("finish_reason") or _has_delta(one.get("delta")) for one in choices)
    return Progress.CONTENT if has_content else Progress.WAITING


def _has_delta(delta: object) -> bool:
    return isinstance(delta, dict) and any(delta.get(name) for name in _CHAT_CONTENT)


def _responses(message: dict[str, Any]) -> Progress:
    kind = str(message.get("type"))
    if kind in ("error", "response.failed"):
        return Progress.FAILED
    item = message.get("item")
    has_name = isinstance(item, dict) and bool(item.get("name"))
    has_delta = kind.endswith(".delta") and bool(message.get("delta"))
    return Progress.CONTENT if has_name or has_delta or kind in _OUTPUT_ENDS else Progress.WAITING


def _anthropic(message: dict[str, Any]) -> Progress:
    kind = message.get("type")
    if kind == "error":
        return Progress.FAILED
    block = message.get("content_block")
    has_name = isinstance(block, dict) and bool(block.get("name"))
    return Progress.CONTENT if has_name or kind in ("content_block_delta", "message_stop") else Progress.WAITING


_JUDGES: dict[str, Callable[[dict[str, Any]], Progress]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
}
