"""OpenAI's Chat Completions API, the format of most providers and of every self-hosted server.

Known variants, all accepted: no `[DONE]`; usage in the last choice chunk, in a chunk without choices, or never;
reasoning as `reasoning_content` (DeepSeek) or `reasoning` (OpenRouter, vLLM), which may be a summary (OpenRouter marks
it); `content: null` and `content: ""` before the first token; `refusal` text instead of content; Groq's own times in
its usage, or in `x_groq`. xAI counts reasoning separately from `completion_tokens`, others include it; the total shows
which.
"""

from typing import Any

from isochrone_common.dialects import base
from isochrone_common.dialects.failures import filtered, finish, in_band_failure
from isochrone_common.dialects.signals import Reasoning, Signal, Usage
from isochrone_wire.model import SECOND_US, Target
from isochrone_wire.workloads import TOKEN_LIMITS

_MAX_SECONDS = 3600
_CHUNK_FIELDS = {"choices", "usage", "x_groq", "prompt_filter_results", "prompt_annotations", "base_resp", "timings"}
_REASONING_FIELDS = (
    *("reasoning_content", "reasoning", "reasoning_text", "thinking", "reasoning_details"),
    *("reasoningContent", "thinking_content", "thought", "thoughts", "reasoning_summary"),
)
_THINKING = ("thinking", "reasoning")


class OpenAIChat(base.Dialect):
    """`POST {base_url}/chat/completions` with `stream: true`."""

    name = "openai-chat"
    path = "chat/completions"

    def body(self, target: Target, prompt: str, quirks: base.Quirks) -> dict[str, Any]:
        """See `Dialect.body`."""
        workload = target.workload
        names = (quirks.token_limit, *TOKEN_LIMITS)
        limit = next((name for name in names if name not in target.omit), quirks.token_limit)
        return {
            "model": target.model,
            "messages": [{"role": "user", "content": prompt}],
            limit: workload.max_output_tokens,
            "stream": True,
            **({"stream_options": {"include_usage": True}} if quirks.usage_option else {}),
            **base.given(temperature=workload.temperature, reasoning_effort=workload.reasoning_effort),
        }

    def read(self, message: dict[str, Any]) -> list[Signal] | None:
        """See `Dialect.read`."""
        if not _CHUNK_FIELDS & message.keys() and message.get("object") != "chat.completion.chunk":
            return None
        signals: list[Signal] = []
        for choice in message.get("choices") or ():
            signals += self._choice(choice)
        # Moonshot and Groq have it in places of their own.
        holders = (message, *(message.get("choices") or ()), message.get("x_groq"))
        usage = next((one for holder in holders if (one := base.fields_of(holder).get("usage"))), None)
        return [*signals, self._usage(usage)] if isinstance(usage, dict) else signals

    def _choice(self, choice: dict[str, Any]) -> list[Signal]:
        # Some gateways send the whole answer in one chunk, or once more with the last, in place of a delta.
        whole = {} if choice.get("delta") else base.fields_of(choice.get("message"))
        delta = choice.get("delta") or {"content": choice.get("text")}
        if error := choice.get("error") or delta.get("error") or whole.get("error"):
            return [in_band_failure(error)]
        signals = base.answer(base.text_of(whole.get("content")) or self._tool_text(whole), is_whole=True)
        signals += [*self._reasoning(delta), *self._content(delta.get("content"))]
        if not signals:
            signals += base.answer(self._tool_text(delta))
        if refusal := base.text_of(delta.get("refusal")):
            signals += [*base.answer(refusal), filtered("refusal")]
        return [*signals, *finish(choice.get("finish_reason"))]

    @staticmethod
    def _reasoning(delta: dict[str, Any]) -> list[Signal]:
        details = [one for one in delta.get("reasoning_details") or () if isinstance(one, dict)]
        text = next(filter(None, (base.text_of(delta.get(name)) for name in _REASONING_FIELDS)), "")
        summarised = any(detail.get("type") == "reasoning.summary" for detail in details)
        return [Reasoning(len(text), summarised=summarised)] if text else []

    @staticmethod
    def _content(content: object) -> list[Signal]:
        """Return the signals of a string or, as Mistral sends it, of a list of parts that are thinking or text."""
        signals: list[Signal] = []
        for part in content if isinstance(content, list) else [content]:
            text = base.text_of(part)
            kind = str(base.fields_of(part).get("type"))
            if text and isinstance(part, dict) and (kind.startswith(_THINKING) or part.get("thinking")):
                signals.append(Reasoning(len(text)))
            else:
                signals += base.answer(text)
        return signals

    @staticmethod
    def _tool_text(delta: dict[str, Any]) -> str:
        calls = delta.get("tool_calls") or ()
        calls = [base.fields_of(call) for call in ([calls] if isinstance(calls, dict) else calls)]
        audio = base.fields_of(delta.get("audio"))
        spoken = base.text_of(audio.get("transcript") or audio.get("data"))
        called = (call.get("function") or call.get("custom") for call in calls)
        return "".join(map(base.call_text, (*called, delta.get("function_call")))) + spoken

    @staticmethod
    def _usage(usage: dict[str, Any]) -> Usage:
        output_details = base.fields_of(usage.get("completion_tokens_details"))
        prompt_details = base.fields_of(usage.get("prompt_tokens_details"))
        prompt = base.count(usage.get("prompt_tokens", usage.get("input_tokens")))
        output = base.count(usage.get("completion_tokens", usage.get("output_tokens")))
        reasoning = base.count(output_details.get("reasoning_tokens"))
        counts = Usage(
            prompt_tokens=prompt,
            output_tokens=output,
            reasoning_tokens=reasoning,
            cached_tokens=base.count(prompt_details.get("cached_tokens")),
            provider_us=_stated_us(usage, "queue_time", "prompt_time"),
        )
        return base.with_hidden_tokens(counts, usage.get("total_tokens"))


def _stated_us(usage: dict[str, Any], *names: str) -> int | None:
    """Return Groq's queue and prompt times in seconds, added and in microseconds: its own time to first token."""
    stated = [usage.get(name) for name in names]
    seconds = [value for value in stated if isinstance(value, int | float) and 0 <= value < _MAX_SECONDS]
    return round(sum(seconds) * SECOND_US) if len(seconds) == len(names) else None
