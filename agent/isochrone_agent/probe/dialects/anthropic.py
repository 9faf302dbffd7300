"""Anthropic's messages.

Usage comes in two parts: the prompt's with `message_start`, the output's, cumulative, with `message_delta`. Input
tokens are stated without those read from or written to the cache; a prompt's tokens are all three. Output tokens
include thinking, of which at most a digest is told, and which newer responses count apart as well.

Claude until 4.5 is given a budget to think with; since 4.6 it finds its own measure, and is told how hard to try.
"""

import json
from typing import Any

from isochrone_agent.probe.dialects.base import (
    Quirks,
    Request,
    count,
    error_sentence,
    in_band_failure,
    parse_json,
    with_nonce,
)
from isochrone_agent.probe.dialects.signals import Answer, Finished, Reasoning, Signal, Usage
from isochrone_agent.probe.dialects.sse import Event
from isochrone_wire.model import Target
from isochrone_wire.reasoning_effort import ANTHROPIC_BUDGET, is_adaptive, thinking_tokens

VERSION = "2023-06-01"
_THINKING_BLOCKS = ("thinking", "redacted_thinking")
_SAID = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}


class Anthropic:
    """`POST {base_url}/messages` with `stream: true`."""

    name = "anthropic"

    def request(self, target: Target, *, nonce: str, key: str | None, quirks: Quirks) -> Request:
        """See `Dialect.request`."""
        del quirks  # there is one Anthropic
        workload = target.workload
        body: dict[str, Any] = {
            "model": target.model,
            # The limit covers thinking and answer.
            "max_tokens": workload.max_output_tokens + thinking_tokens(self.name, workload.reasoning_effort),
            "messages": [{"role": "user", "content": with_nonce(workload.prompt, nonce)}],
            "stream": True,
        }
        if workload.reasoning_effort is not None:
            body |= _thinking(target.model, workload.reasoning_effort)
        if workload.temperature is not None:
            body["temperature"] = workload.temperature
        headers = {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})
        return Request(url=f"{target.base_url.rstrip('/')}/messages", headers=headers, body=json.dumps(body).encode())

    def interpret(self, event: Event) -> list[Signal]:
        """See `Dialect.interpret`."""
        message = parse_json(event.data)
        kind = message.get("type")
        if kind == "content_block_delta":
            return self._delta(message.get("delta") or {})
        if kind == "content_block_start":
            return self._begun(message.get("content_block") or {})
        if kind == "message_start":
            return self._usage((message.get("message") or {}).get("usage"), output=False)
        if kind == "message_delta":
            return self._usage(message.get("usage"), output=True)
        if kind == "message_stop":
            return [Finished("message_stop")]
        return [in_band_failure(message.get("error"))] if kind == "error" else []

    def error(self, body: bytes) -> str:
        """See `Dialect.error`."""
        return error_sentence(body)

    @staticmethod
    def _begun(block: dict[str, Any]) -> list[Signal]:
        if block.get("type") in _THINKING_BLOCKS:
            # Its text may stay empty, and its tokens are counted all the same.
            return [Reasoning(0, summarised=True)]
        # A tool's name is the first thing the model says of its call.
        name = block.get("name")
        return [Answer(len(name))] if isinstance(name, str) and name else []

    @staticmethod
    def _delta(delta: dict[str, Any]) -> list[Signal]:
        field = _SAID.get(delta.get("type", ""), "")
        chars = len(delta.get(field) or "")
        if not chars:
            return []
        return [Reasoning(chars, summarised=True) if field == "thinking" else Answer(chars)]

    @staticmethod
    def _usage(usage: Any, *, output: bool) -> list[Signal]:  # noqa: ANN401  # whatever the provider sent
        if not isinstance(usage, dict):
            return []
        fresh, read, written = (
            count(usage.get(name))
            for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        prompt = None if fresh is None else fresh + (read or 0) + (written or 0)
        # The output count of `message_start` is only the beginning of a count.
        said = count(usage.get("output_tokens")) if output else None
        thought = count((usage.get("output_tokens_details") or {}).get("thinking_tokens")) if output else None
        return [Usage(prompt_tokens=prompt, output_tokens=said, reasoning_tokens=thought, cached_tokens=read)]


def _thinking(model: str, effort: str) -> dict[str, Any]:
    """The effort in the words that the model understands; one that it does not have goes out for it to refuse."""
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    if effort in ANTHROPIC_BUDGET and not is_adaptive(model):
        return {"thinking": {"type": "enabled", "budget_tokens": ANTHROPIC_BUDGET[effort]}}
    # Without `display` the newest models think in silence, and the first token would be that of the answer.
    return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}
