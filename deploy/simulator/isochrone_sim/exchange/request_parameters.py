"""Parameters of a request, independent of its dialect."""

import re
from dataclasses import dataclass

_NONCE = re.compile(r"\[([0-9A-Za-z]{6,32})\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParameters:
    """The parameters of a request. `reasoning_effort` is `None` if no reasoning was requested; `hidden_reasoning` means
    that the reasoning must not be sent, `has_thinking_budget` that a number of tokens was given instead of an effort.
    `include_usage` matters in dialects with a separate usage event. `gzip` allows a compressed response.
    """

    model: str
    stream: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    include_usage: bool = False
    reasoning_effort: str | None = None
    hidden_reasoning: bool = False
    has_thinking_budget: bool = False
    prompt_tokens: int = 0
    nonce: str | None = None
    gzip: bool = False


def count_prompt_tokens(texts: list[str]) -> int:
    """Return a rough, deterministic count: one token per four bytes of UTF-8, four per message, three for the reply."""
    return sum(-(-len(text.encode("utf-8", "replace")) // 4) + 4 for text in texts) + 3


def find_nonce(texts: list[str]) -> str | None:
    """Return the `[nonce]` at the start of the last message, if any."""
    found = _NONCE.match(texts[-1]) if texts else None
    return found[1] if found else None
