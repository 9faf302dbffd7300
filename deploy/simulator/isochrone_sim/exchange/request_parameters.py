"""What a client wants, whichever dialect it said it in."""

import re
from dataclasses import dataclass

_NONCE = re.compile(r"\[([0-9A-Za-z]{6,32})\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for an answer. `reasoning_effort` is `None` when reasoning was not asked for; `silent` when it was, but
    not aloud; `budgeted` when it was given a number of tokens and no word. `include_usage` matters where usage has an
    event of its own. `gzip` when the response may be compressed.
    """

    model: str
    stream: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    include_usage: bool = False
    reasoning_effort: str | None = None
    silent: bool = False
    budgeted: bool = False
    prompt_tokens: int = 0
    nonce: str | None = None
    gzip: bool = False


def count_prompt_tokens(texts: list[str]) -> int:
    """A rough count that never changes: one token per four bytes of UTF-8, four per message, three for the reply."""
    return sum(-(-len(text.encode("utf-8", "replace")) // 4) + 4 for text in texts) + 3


def find_nonce(texts: list[str]) -> str | None:
    """The `[nonce]` that the last message begins with, if it does."""
    found = _NONCE.match(texts[-1]) if texts else None
    return found[1] if found else None
