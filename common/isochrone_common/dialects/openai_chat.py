"""OpenAI's Chat Completions API, the format of most providers and of every self-hosted server.

Known variants, all accepted: no `[DONE]`; usage in the last choice chunk, in a chunk without choices, or never;
reasoning as `reasoning_content` (DeepSeek) or `reasoning` (OpenRouter, vLLM), which may be a summary (OpenRouter marks
it); `content: null` and `content: ""` before the first token; `refusal` text instead of content; Groq's own times in
its usage, or in `x_groq`. xAI counts reasoning separately from `completion_tokens`, others include it; the total shows
which.
"""

from typing import Any

from isochrone_common.dialects.base import Dialect, Quirks, count, given, in_band_failure, parse_json
from isochrone_common.dialects.signals import Answer, Finished, Reasoning, Signal, Usage
from isochrone_common.sse import Event
from isochrone_wire.model import SECOND_US, Target

_DONE = b"[DONE]"
_MAX_SECONDS = 3600
# Finish reasons that are errors: DeepSeek, Zhipu and OpenRouter report a failed server in this way.
_FAILED = ("insufficient_system_resource", "network_error", "error")


class OpenAIChat(Dialect):
    """`POST {base_url}/chat/completions` with `stream: true`."""

    name = "openai-chat"
    path = "chat/completions"

    def body(self, target: Target, prompt: str, quirks: Quirks) -> dict[str, Any]:
        """See `Dialect.body`."""
        workload = target.workload
        return {
            "model": target.model,
            "messages": [{"role": "user", "content": prompt}],
            quirks.token_limit: workload.max_output_tokens,
            "stream": True,
            **({"stream_options": {"include_usage": True}} if quirks.usage_option else {}),
            **given(temperature=workload.temperature, reasoning_effort=workload.reasoning_effort),
        }

    def interpret(self, event: Event) -> list[Signal]:
        """See `Dialect.interpret`."""
        if event.data == _DONE:
            return [Finished("[DONE]")]
        chunk = parse_json(event.data)
        if chunk.get("error"):
            return [in_band_failure(chunk["error"])]
        signals: list[Signal] = []
        for choice in chunk.get("choices") or ():
            signals += self._choice(choice)
        groq = chunk.get("x_groq") or {}
        usage = chunk.get("usage") or (groq.get("usage") if isinstance(groq, dict) else None)
        if isinstance(usage, dict):
            signals.append(self._usage(usage))
        return signals

    def _choice(self, choice: dict[str, Any]) -> list[Signal]:
        delta = choice.get("delta") or {}
        signals: list[Signal] = []
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            details = delta.get("reasoning_details") or ()
            summarised = any(detail.get("type") == "reasoning.summary" for detail in details)
            signals.append(Reasoning(len(reasoning), summarised=summarised))
        if text := (delta.get("content") or delta.get("refusal") or self._tool_text(delta)):
            signals.append(Answer(len(text)))
        if reason := choice.get("finish_reason"):
            broken = {"message": f"the provider failed: {reason}"}
            signals.append(in_band_failure(broken) if reason in _FAILED else Finished(str(reason)))
        return signals

    @staticmethod
    def _tool_text(delta: dict[str, Any]) -> str:
        calls = [call.get("function") or {} for call in delta.get("tool_calls") or ()]
        return "".join((call.get("name") or "") + (call.get("arguments") or "") for call in calls)

    @staticmethod
    def _usage(usage: dict[str, Any]) -> Usage:
        output_details = usage.get("completion_tokens_details") or {}
        prompt_details = usage.get("prompt_tokens_details") or {}
        prompt, output = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
        reasoning = count(output_details.get("reasoning_tokens"))
        if output is not None and reasoning and usage.get("total_tokens") == (prompt or 0) + output + reasoning:
            output += reasoning
        return Usage(
            prompt_tokens=prompt,
            output_tokens=output,
            reasoning_tokens=reasoning,
            cached_tokens=count(prompt_details.get("cached_tokens")),
            provider_us=_stated_us(usage, "queue_time", "prompt_time"),
        )


def _stated_us(usage: dict[str, Any], *names: str) -> int | None:
    """Return Groq's queue and prompt times in seconds, added and in microseconds: its own time to first token."""
    stated = [usage.get(name) for name in names]
    seconds = [value for value in stated if isinstance(value, int | float) and 0 <= value < _MAX_SECONDS]
    return round(sum(seconds) * SECOND_US) if len(seconds) == len(names) else None
