"""Scripts of responses in any dialect, with their filler text. Faults rewrite scripts; dialects render their steps."""

from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from random import Random
from typing import NamedTuple

from isochrone_sim.requests import ErrorResponse

_WORDS = (  # noqa: SIM905  # a word list reads best as text
    "a function that calls itself is said to be recursive and every such call works on a smaller part of the same "
    "problem until it meets one so small that the answer is known at once we name this the base case without it calls "
    "would never end each result then returns to whoever asked and the results join into the whole think of a stair "
    "which you climb by taking the first step and climbing the rest memory holds a place for each open call so depth "
    "has its price"
).split()
_MULTIBYTE = ("naïve", "café", "時間", "größer", "🌍", "señal", "длина", "日本", "étoile", "🎈", "λόγος", "øre")
_SENTENCE = 12


class Channel(StrEnum):
    """The channel of a token."""

    REASONING = "reasoning"
    ANSWER = "answer"
    TOOL = "tool"


class Kind(Enum):
    """The kind of a step. A dialect without an event for a kind sends nothing."""

    ROLE = auto()  # the opening event, without a token
    NULL = auto()  # a delta whose content is null
    EMPTY = auto()  # a delta whose content is the empty text
    TOKENS = auto()
    CALL = auto()  # a tool call opens; `text` is the tool's name
    FINISH = auto()  # `text` is the reason
    FINISH_WITH_USAGE = auto()
    USAGE = auto()
    DONE = auto()
    ERROR = auto()  # in band; `text` is the message
    COMMENT = auto()
    RAW = auto()  # `text` is sent unchanged in a data line


class Step(NamedTuple):
    """One step of a script, `offset_ns` after the request. `tokens` is the number of output tokens in it.

    A named tuple instead of a dataclass, because hundreds are created while other streams wait for their next token.
    """

    offset_ns: int
    kind: Kind
    text: str = ""
    tokens: int = 0
    channel: Channel = Channel.ANSWER


class Ending(Enum):
    """The state of the connection after the last byte."""

    KEEP_ALIVE = auto()  # the response is complete, and the next request may follow
    CLOSE = auto()  # closed in the middle of the response
    RESET = auto()  # reset in the middle of the response
    HANG = auto()  # left open, but nothing more is sent


class Cut(Enum):
    """The distribution of the bytes of an event over writes."""

    WHOLE = auto()
    BYTES = auto()  # each byte in a separate write
    CODE_POINTS = auto()  # two writes, split inside a character


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The token counts that a provider reports."""

    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A body with status 200 that is not a stream."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A complete response: its head is sent `head_ns` after the request (`None` for never), followed by the steps.

    `instead` is sent in place of the steps. Offsets never decrease. Without `usage`, no usage is reported. Lines end in
    `newline`, `None` for that of the dialect; `cut` splits the writes. `flood` is repeated after the last step as fast
    as the client reads, before the connection ends.
    """

    head_ns: int | None
    steps: tuple[Step, ...]
    usage: Usage | None
    newline: bytes | None = None
    cut: Cut = Cut.WHOLE
    ending: Ending = Ending.KEEP_ALIVE
    instead: ErrorResponse | Page | None = None
    flood: Step | None = None

    @property
    def texts(self) -> dict[Channel, str]:
        """The complete text by channel, without text that counts no token."""
        tokens = [step for step in self.of_kind(Kind.TOKENS) if step.tokens]
        return {channel: "".join(step.text for step in tokens if step.channel is channel) for channel in Channel}

    @property
    def finish_reason(self) -> str | None:
        """The finish reason; `None` if it is not finished."""
        return next((step.text for step in self.of_kind(Kind.FINISH, Kind.FINISH_WITH_USAGE)), None)

    @property
    def tool(self) -> str | None:
        """The name of the tool that is called, if any."""
        return next((step.text for step in self.of_kind(Kind.CALL)), None)

    @property
    def end_ns(self) -> int:
        """The offset of the last step, or of the head without steps."""
        return self.steps[-1].offset_ns if self.steps else self.head_ns or 0

    def of_kind(self, *kinds: Kind) -> tuple[Step, ...]:
        """Return the steps of these kinds, in order."""
        return tuple(step for step in self.steps if step.kind in kinds)

    def without(self, *kinds: Kind) -> "Script":
        """Return the script without the steps of these kinds."""
        return replace(self, steps=tuple(step for step in self.steps if step.kind not in kinds))

    def until_token(self, count: int) -> "Script":
        """Return the script up to and including its `count`-th token, or all of it if there are fewer."""
        return replace(self, steps=self.steps[: self.index_after(count)])

    def index_after(self, count: int) -> int:
        """Return the index in `steps` after the `count`-th token."""
        seen = 0
        for index, step in enumerate(self.steps):
            seen += step.tokens
            if seen >= count:
                return index + 1
        return len(self.steps)


def filler_tokens(rng: Random, count: int) -> list[str]:
    """Return `count` tokens of text with sentences; every token but the first begins with a space."""
    return _punctuated(rng.choices(_WORDS, k=count))


def multibyte_tokens(count: int) -> list[str]:
    """Return `count` tokens, each with at least one character of several bytes in UTF-8."""
    return _punctuated([_MULTIBYTE[number % len(_MULTIBYTE)] for number in range(count)])


def _punctuated(words: list[str]) -> list[str]:
    tokens = [f" {word}" for word in words]
    for first in range(0, len(words), _SENTENCE):
        tokens[first] = f" {words[first].capitalize()}"
        last = min(first + _SENTENCE, len(words)) - 1
        tokens[last] += "."
    if tokens:
        tokens[0] = tokens[0].lstrip()
    return tokens
