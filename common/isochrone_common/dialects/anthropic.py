"""Anthropic's Messages API.

Usage comes in two parts: for the prompt with `message_start`, for the output, cumulatively, with `message_delta`. Input
tokens exclude those read from or written to the cache; the tokens of a prompt are the sum of all three. Output tokens
include thinking, of which at most a summary is streamed, and which newer responses also count separately.

Claude up to 4.5 is given a thinking budget in tokens; since 4.6 thinking is adaptive and is given an effort.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from isochrone_common.dialects.base import Dialect, Quirks, answer, count, fields_of, given, text_of
from isochrone_common.dialects.failures import finish
from isochrone_common.dialects.signals import Finished, Reasoning, Signal, Usage
from isochrone_wire.model import Target
from isochrone_wire.workloads import ANTHROPIC_BUDGET, is_adaptive, thinking_tokens

_THINKING_BLOCKS = ("thinking", "redacted_thinking")
_TEXT_FIELDS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}


class Anthropic(Dialect):
    """`POST {base_url}/messages` with `stream: true`."""

    name = "anthropic"
    path = "messages"
    key_header = "x-api-key"
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}

    def body(self, target: Target, prompt: str, quirks: Quirks) -> dict[str, Any]:  # noqa: ARG002  # see Dialect
        """See `Dialect.body`."""
        workload, effort = target.workload, target.workload.reasoning_effort
        return {
            "model": target.model,
            # The limit covers thinking and answer.
            "max_tokens": workload.max_output_tokens + thinking_tokens(self.name, effort),
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            **({} if effort is None else _thinking(target.model, effort)),
            **given(temperature=workload.temperature),
        }

    def read(self, message: dict[str, Any]) -> list[Signal] | None:
        """See `Dialect.read`."""
        kind = message.get("type")
        if kind == "content_block_delta":
            return self._delta(message.get("delta") or {})
        if kind == "content_block_start":
            return self._block_start(message.get("content_block") or {})
        if kind == "message_start":
            return self._usage((message.get("message") or {}).get("usage"), output=False)
        if kind == "message_delta":
            reason = (message.get("delta") or {}).get("stop_reason")
            return [*self._usage(message.get("usage"), output=True), *finish(reason)]
        if kind == "message_stop":
            return [Finished("message_stop", final=True)]
        return [] if kind == "content_block_stop" else None

    @staticmethod
    def _block_start(block: dict[str, Any]) -> list[Signal]:
        if block.get("type") in _THINKING_BLOCKS:
            # Its text may remain empty, but its tokens are counted.
            return [Reasoning(len(text_of(block.get("thinking"))), summarised=True)]
        # The name of a tool is the first output of its call.
        return answer(text_of(block.get("name") or block.get("text")))

    @staticmethod
    def _delta(delta: dict[str, Any]) -> list[Signal]:
        field = _TEXT_FIELDS.get(delta.get("type", ""), "")
        text = text_of(delta.get(field))
        if field == "thinking":
            return [Reasoning(len(text), summarised=True)] if text else []
        return answer(text)

    @staticmethod
    def _usage(usage: Any, *, output: bool) -> list[Signal]:  # noqa: ANN401  # whatever the provider sent
        if not isinstance(usage, dict):
            return []
        fresh, read, written = (
            count(usage.get(name))
            for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        prompt = None if fresh is None else fresh + (read or 0) + (written or 0)
        # The output count of `message_start` is not final.
        answer = count(usage.get("output_tokens")) if output else None
        thinking = count(fields_of(usage.get("output_tokens_details")).get("thinking_tokens")) if output else None
        return [Usage(prompt_tokens=prompt, output_tokens=answer, reasoning_tokens=thinking, cached_tokens=read)]


def _thinking(model: str, effort: str) -> dict[str, Any]:
    """Translate the effort to parameters of the model; an unknown effort is sent as it is, for the API to refuse."""
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    if effort in ANTHROPIC_BUDGET and not is_adaptive(model):
        return {"thinking": {"type": "enabled", "budget_tokens": ANTHROPIC_BUDGET[effort]}}
    # Without `display` the newest models hide their thinking, and the first token would be the answer's.
    return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}
