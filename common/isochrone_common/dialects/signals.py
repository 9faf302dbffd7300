"""Signals, which dialects make of the events of a stream, and the measurement consumes."""

from dataclasses import dataclass, field

from isochrone_wire.model import Outcome, RateLimit

HEAD_CHARS = 32
# The ends of a reasoning in the content, whose begin may be in the prompt (DeepSeek R1, Qwen), or dropped (gpt-oss).
REASONING_ENDS = ("</think>", "</thinking>", "[/THINK]", "</seed:think>", "assistantfinal")


@dataclass(frozen=True, slots=True)
class Sent:
    """The request has been written completely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The response's headers have arrived. `provider_us` is the processing time that the provider reports."""

    status: int
    request_id: str | None = None
    provider_us: int | None = None
    edge: str | None = None
    ratelimit: RateLimit | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of visible reasoning, or 0 `chars` for a hint of it; `summarised`: without all tokens that count."""

    chars: int
    summarised: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A piece of the answer or of a tool call, `chars` characters long; `head` and `tail` are up to `HEAD_CHARS` of
    them. What came before one that `ends_reasoning` was no answer. One that `is_whole` repeats what came before.
    """

    chars: int
    head: str = field(default="", compare=False, repr=False)
    tail: str = field(default="", compare=False, repr=False)
    ends_reasoning: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of the provider. `output_tokens` includes `reasoning_tokens`; `provider_us` is its own TTFT."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    provider_us: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A terminal marker. Some servers send a finish reason with every chunk, so only a `final` one ends the answer."""

    reason: str = ""
    final: bool = False


# The chat API's end of a stream. Gateways send it in other APIs, and after a failure too.
DONE = Finished("[DONE]", final=True)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A frame that is understood as neither content nor metadata, with its text if that reads like an error."""

    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """`timeout_us` is the limit that was exceeded, if any; `retry_after_us` the wait that the error states. Without
    `has_reason`, the reason may follow in another frame.
    """

    outcome: Outcome
    error: str
    timeout_us: int | None = None
    retry_after_us: int | None = None
    has_reason: bool = True


Signal = Sent | Opened | Reasoning | Answer | Usage | Finished | Unknown | Failed
