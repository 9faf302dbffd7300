"""OpenAI's Responses API: typed events, of which only the deltas and the end are used.

The reasoning of most models is hidden, or streamed as a summary. An answer that reaches its token limit ends with
`response.incomplete`, which counts as a normal end.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from isochrone_common.dialects.base import Dialect, Quirks, count, given, in_band_failure, parse_json
from isochrone_common.dialects.signals import Answer, Finished, Reasoning, Signal, Usage
from isochrone_common.sse import Event
from isochrone_wire.model import Target

_DELTAS: dict[str, Callable[[int], Signal]] = {
    "response.output_text.delta": Answer,
    "response.refusal.delta": Answer,
    "response.function_call_arguments.delta": Answer,
    "response.custom_tool_call_input.delta": Answer,
    "response.reasoning_text.delta": Reasoning,
    "response.reasoning_summary_text.delta": partial(Reasoning, summarised=True),
}
_ENDS = ("response.completed", "response.incomplete")


class OpenAIResponses(Dialect):
    """`POST {base_url}/responses` with `stream: true` and nothing stored."""

    name = "openai-responses"
    path = "responses"

    def body(self, target: Target, prompt: str, quirks: Quirks) -> dict[str, Any]:  # noqa: ARG002  # see Dialect
        """See `Dialect.body`."""
        workload, effort = target.workload, target.workload.reasoning_effort
        reasoning = None if effort is None else {"effort": effort, "summary": "auto"}
        return {
            "model": target.model,
            "input": prompt,
            "max_output_tokens": workload.max_output_tokens,
            "stream": True,
            "store": False,
            **given(reasoning=reasoning, temperature=workload.temperature),
        }

    def interpret(self, event: Event) -> list[Signal]:
        """See `Dialect.interpret`."""
        message = parse_json(event.data)
        kind = message.get("type") or ""
        if kind in _DELTAS:
            text = message.get("delta") or ""
            return [_DELTAS[kind](len(text))] if text else []
        if kind == "response.output_item.added":
            # The name of a tool is the first output of its call.
            name = (message.get("item") or {}).get("name")
            return [Answer(len(name))] if isinstance(name, str) and name else []
        if kind == "error":
            return [in_band_failure(message.get("error") or message)]
        response = message.get("response") or {}
        if kind == "response.failed":
            return [in_band_failure(response.get("error"))]
        return [*self._usage(response.get("usage")), Finished(kind)] if kind in _ENDS else []

    @staticmethod
    def _usage(usage: Any) -> list[Signal]:  # noqa: ANN401  # whatever the provider sent
        if not isinstance(usage, dict):
            return []
        return [
            Usage(
                prompt_tokens=count(usage.get("input_tokens")),
                output_tokens=count(usage.get("output_tokens")),
                reasoning_tokens=count((usage.get("output_tokens_details") or {}).get("reasoning_tokens")),
                cached_tokens=count((usage.get("input_tokens_details") or {}).get("cached_tokens")),
            )
        ]
