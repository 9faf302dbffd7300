"""Google's Gemini API: each event has new parts and the usage so far. Thoughts are summaries; `finishReason` ends."""

import json
from typing import Any

from isochrone_common.dialects.base import Dialect, Quirks, answer, count, given, text_of, with_hidden_tokens
from isochrone_common.dialects.failures import filtered, finish
from isochrone_common.dialects.signals import Reasoning, Signal, Usage
from isochrone_wire.model import Target
from isochrone_wire.workloads import GEMINI_BUDGET, has_budget

# The parts of an answer that are no text.
_OUTPUTS = ("functionCall", "executableCode", "codeExecutionResult", "inlineData")
_RESPONSE_FIELDS = {"candidates", "usageMetadata", "promptFeedback", "modelVersion", "responseId"}


class Gemini(Dialect):
    """`POST {base_url}/models/{model}:streamGenerateContent?alt=sse`."""

    name = "gemini"
    path = "models/{model}:streamGenerateContent?alt=sse"
    key_header = "x-goog-api-key"

    def body(self, target: Target, prompt: str, quirks: Quirks) -> dict[str, Any]:  # noqa: ARG002  # see Dialect
        """See `Dialect.body`."""
        workload, effort = target.workload, target.workload.reasoning_effort
        thinking = None if effort is None else _thinking(target.model, effort)
        config = given(temperature=workload.temperature, thinkingConfig=thinking)
        return {
            "contents": [{"role": "user", "parts": [{"text": prompt}]}],
            "generationConfig": {"maxOutputTokens": workload.max_output_tokens, **config},
        }

    def read(self, message: dict[str, Any]) -> list[Signal] | None:
        """See `Dialect.read`."""
        if not _RESPONSE_FIELDS & message.keys():
            return None
        feedback = message.get("promptFeedback") or {}
        if refused := feedback.get("blockReason"):
            stated = ": ".join(filter(None, (refused, text_of(feedback.get("blockReasonMessage")))))
            return [filtered(f"the prompt was blocked: {stated}")]
        signals: list[Signal] = []
        ends: list[Signal] = []
        for candidate in (message.get("candidates") or ())[:1]:
            signals += [s for part in (candidate.get("content") or {}).get("parts") or () for s in self._part(part)]
            ends += finish(candidate.get("finishReason"), detail=candidate.get("finishMessage"))
        return [*signals, *self._usage(message.get("usageMetadata")), *ends]

    @staticmethod
    def _part(part: dict[str, Any]) -> list[Signal]:
        text = text_of(part.get("text"))
        if not text:
            text = next((json.dumps(part[name]) for name in _OUTPUTS if part.get(name)), "")
        if text and part.get("thought"):
            return [Reasoning(len(text), summarised=True)]
        return answer(text)

    @staticmethod
    def _usage(usage: Any) -> list[Signal]:  # noqa: ANN401  # whatever the provider sent
        if not isinstance(usage, dict):
            return []
        answer, thoughts = count(usage.get("candidatesTokenCount")), count(usage.get("thoughtsTokenCount"))
        prompt, total = count(usage.get("promptTokenCount")), count(usage.get("totalTokenCount")) or 0
        # Before the answer begins, only thoughts have a count, or the total alone reveals them.
        has_begun = answer is not None or thoughts or total > (prompt or 0)
        counts = Usage(
            prompt_tokens=prompt,
            output_tokens=(answer or 0) + (thoughts or 0) if has_begun else None,
            reasoning_tokens=thoughts,
            cached_tokens=count(usage.get("cachedContentTokenCount")),
        )
        return [with_hidden_tokens(counts, total - (count(usage.get("toolUsePromptTokenCount")) or 0))]


def _thinking(model: str, effort: str) -> dict[str, Any]:
    if not (has_budget(model) and effort in GEMINI_BUDGET):
        return {"thinkingLevel": effort, "includeThoughts": True}
    budget = GEMINI_BUDGET[effort]
    return {"thinkingBudget": budget} | ({"includeThoughts": True} if budget else {})
