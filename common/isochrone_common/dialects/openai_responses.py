"""OpenAI's Responses API: typed events, of which only the deltas and the end are used.

The reasoning of most models is hidden, or streamed as a summary. An answer that reaches its token limit ends with
`response.incomplete`, which counts as a normal end.
"""

from typing import Any

from isochrone_common.dialects.base import Dialect, Quirks, answer, count, fields_of, given, text_of, with_hidden_tokens
from isochrone_common.dialects.failures import filtered, finish, in_band_failure
from isochrone_common.dialects.signals import Reasoning, Signal, Usage
from isochrone_wire.model import Target

_ANSWERS = (
    "response.output_text.delta",
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
)
_REASONING = (
    "response.reasoning_text.delta",
    "response.reasoning.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary.delta",
)
_ENDS = ("response.completed", "response.incomplete", "response.done")


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

    def read(self, message: dict[str, Any]) -> list[Signal] | None:
        """See `Dialect.read`."""
        kind = str(message.get("type") or "")
        if kind in _ANSWERS:
            return answer(text_of(message.get("delta")))
        if kind in _REASONING:
            text = text_of(message.get("delta"))
            return [Reasoning(len(text), summarised="summary" in kind)] if text else []
        if kind in ("response.refusal.delta", "response.refusal.done"):
            return [*answer(text_of(message.get("delta"))), filtered("refusal")]
        if kind == "response.output_text.done":
            return answer(text_of(message.get("text")), is_whole=True)
        if kind == "response.output_item.added":
            # The name of a tool is the first output of its call.
            return answer(text_of((message.get("item") or {}).get("name")))
        response = message.get("response") or {}
        if kind in ("response.failed", "response.cancelled"):
            error = response.get("error")
            return [in_band_failure(error)] if error else finish(kind)
        if kind in _ENDS:
            reason = (response.get("incomplete_details") or {}).get("reason")
            texts = [one for one in response.get("output") or () if fields_of(one).get("type") == "message"]
            whole = answer(text_of(texts), is_whole=True)
            return [*whole, *self._usage(response.get("usage")), *finish(reason or kind, final=True)]
        return [] if kind.startswith("response.") else None

    @staticmethod
    def _usage(usage: Any) -> list[Signal]:  # noqa: ANN401  # whatever the provider sent
        if not isinstance(usage, dict):
            return []
        counts = Usage(
            prompt_tokens=count(usage.get("input_tokens")),
            output_tokens=count(usage.get("output_tokens")),
            reasoning_tokens=count(fields_of(usage.get("output_tokens_details")).get("reasoning_tokens")),
            cached_tokens=count(fields_of(usage.get("input_tokens_details")).get("cached_tokens")),
        )
        return [with_hidden_tokens(counts, usage.get("total_tokens"))]
