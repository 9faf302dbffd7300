"""What is said when, before any dialect gives it a shape. Faults rewrite scripts; dialects render their beats."""

from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from isochrone_sim.exchange.refusal import Refusal


class Channel(StrEnum):
    """Where a token goes."""

    REASONING = "reasoning"
    ANSWER = "answer"
    TOOL = "tool"


class Kind(Enum):
    """What a beat is. A dialect that has no words for one says nothing."""

    ROLE = auto()  # the opening without any token
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
    RAW = auto()  # `text` stands in a data line as it is


class Beat(NamedTuple):
    """One thing said, `offset_ns` after the request. `tokens` is how many output tokens are in it.

    A tuple and no dataclass: hundreds are made while other streams wait for their next token.
    """

    offset_ns: int
    kind: Kind
    text: str = ""
    tokens: int = 0
    channel: Channel = Channel.ANSWER


class Ending(Enum):
    """What becomes of the connection after the last byte."""

    KEEP_ALIVE = auto()  # the response is complete, the next request may come
    CLOSE = auto()  # closed in the middle of the response
    RESET = auto()  # reset in the middle of the response
    HANG = auto()  # left open, and nothing comes any more


class Cut(Enum):
    """How the bytes of an event are spread over writes."""

    WHOLE = auto()
    BYTES = auto()  # each in a write of its own
    CODE_POINTS = auto()  # two writes, cut inside a character


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How events are put on the wire: what ends a line (`None`: as the dialect does), and where writes are cut."""

    newline: bytes | None = None
    cut: Cut = Cut.WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The token counts that a provider states."""

    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A body of status 200 that is no stream at all."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A whole response: its head goes out `head_ns` after the request (never, when `None`), then come the beats.

    `instead` is sent in place of the beats. Offsets never decrease. Without `usage` none is ever stated. `flood` is
    repeated behind the last beat as fast as the client reads, before the connection ends.
    """

    head_ns: int | None
    beats: tuple[Beat, ...]
    usage: Usage | None
    style: Style = Style()
    ending: Ending = Ending.KEEP_ALIVE
    instead: Refusal | Page | None = None
    flood: Beat | None = None

    @property
    def end_ns(self) -> int:
        """Offset of the last beat, or of the head when there is none."""
        return self.beats[-1].offset_ns if self.beats else self.head_ns or 0

    def of_kind(self, *kinds: Kind) -> tuple[Beat, ...]:
        """The beats of these kinds, in order."""
        return tuple(beat for beat in self.beats if beat.kind in kinds)

    def without(self, *kinds: Kind) -> "Script":
        """The script with no beat of these kinds."""
        return replace(self, beats=tuple(beat for beat in self.beats if beat.kind not in kinds))

    def until_token(self, count: int) -> "Script":
        """The script up to and with its `count`-th token, or whole when there are fewer."""
        last = self.index_after(count)
        return replace(self, beats=self.beats[:last])

    def index_after(self, count: int) -> int:
        """Where in `beats` the one after the `count`-th token is."""
        said = 0
        for index, beat in enumerate(self.beats):
            said += beat.tokens
            if said >= count:
                return index + 1
        return len(self.beats)
