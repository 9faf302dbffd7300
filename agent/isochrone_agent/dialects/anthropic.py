"""Anthropic's messages.

Usage comes in two parts: the prompt's with `message_start`, the output's, cumulative, with `message_delta`. Input
tokens are stated without those read from or written to the cache; a prompt's tokens are all three. Thinking is not
counted apart.
"""

import json
from typing import Any

from isochrone_agent.dialects.base import (
    Quirks,
    Request,
    count,
    error_sentence,
    in_band_failure,
    parse_json,
    with_nonce,
)
from isochrone_agent.signals import Answer, Finished, Reasoning, Signal, Usage
from isochrone_agent.sse import Event
from isochrone_wire.model import Target

VERSION = "2023-06-01"
THINKING_BUDGET = {"low": 1024, "medium": 4096, "high": 16_384}
_SAID: dict[str, tuple[str, type[Answer] | type[Reasoning]]] = {
    "text_delta": ("text", Answer),
    "input_json_delta": ("partial_json", Answer),
    "thinking_delta": ("thinking", Reasoning),
}


class Anthropic:
    """`POST {base_url}/messages` with `stream: true`."""

    name = "anthropic"

    def request(self, target: Target, *, nonce: str, key: str | None, quirks: Quirks) -> Request:
        """See `Dialect.request`."""
        del quirks  # there is one Anthropic
        workload = target.workload
        body: dict[str, Any] = {
            "model": target.model,
            "max_tokens": workload.max_output_tokens,
            "messages": [{"role": "user", "content": with_nonce(workload.prompt, nonce)}],
            "stream": True,
        }
        budget = THINKING_BUDGET.get(workload.reasoning_effort or "")
        if budget:
            # The limit covers thinking and answer, and thinking forbids a temperature.
            body |= {
                "thinking": {"type": "enabled", "budget_tokens": budget},
                "max_tokens": budget + workload.max_output_tokens,
            }
        elif workload.temperature is not None:
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
            # A tool's name is the first thing the model says of its call.
            return self._said((message.get("content_block") or {}).get("name"))
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
    def _said(text: object) -> list[Signal]:
        return [Answer(len(text))] if isinstance(text, str) and text else []

    @staticmethod
    def _delta(delta: dict[str, Any]) -> list[Signal]:
        field, signal = _SAID.get(delta.get("type", ""), ("", Answer))
        text = delta.get(field) or ""
        return [signal(len(text))] if text else []

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
        return [Usage(prompt_tokens=prompt, output_tokens=said, cached_tokens=read)]
