"""What a stream can tell us: the alphabet between the dialects, which speak it, and the measurement, which listens."""

from dataclasses import dataclass

from isochrone_wire.model import Outcome, RateLimit


@dataclass(frozen=True, slots=True)
class Sent:
    """The request is fully written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The response's headers are here, and what they say. `provider_us` is the time the provider itself reports."""

    status: int
    request_id: str | None = None
    provider_us: int | None = None
    edge: str | None = None
    ratelimit: RateLimit | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of reasoning said aloud, `chars` characters long; 0 when the stream says no more than that there is some.

    `summarised` when what is said is not the reasoning but a digest of it: the tokens the provider counts as reasoning
    are not in the chunks.
    """

    chars: int
    summarised: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A piece of the answer or of a tool call, `chars` characters long."""

    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counts them. `output_tokens` includes `reasoning_tokens`. `provider_us` is the time to the
    first token that some providers state beside the counts.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    provider_us: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The dialect's terminal marker."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The probe cannot succeed any more. `timeout_us` is the limit it ran into, if that is why; `retry_after_us` how
    long to wait, where the error itself says so.
    """

    outcome: Outcome
    error: str
    timeout_us: int | None = None
    retry_after_us: int | None = None


Signal = Sent | Opened | Reasoning | Answer | Usage | Finished | Failed
