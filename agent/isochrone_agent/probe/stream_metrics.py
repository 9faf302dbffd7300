"""What the instants and counts of a stream amount to: tokens, pace and gaps."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from isochrone_agent.probe.dialects.signals import Usage
from isochrone_wire.model import Price, TokenSource

CHARS_PER_TOKEN = 4
MIN_CHUNKS_FOR_SPEED = 3
MIN_SPAN_FOR_SPEED_NS = 50_000_000
STALL_FLOOR_NS = 1_000_000_000
STALL_FACTOR = 10


class ReasoningVisibility(Enum):
    """What became of the reasoning, if there was any: nothing of it was said, it was said as it went, or in digest."""

    HIDDEN = "hidden"
    VISIBLE = "visible"
    SUMMARISED = "summarised"


@dataclass(slots=True)
class ChunkSeries:
    """Chunks of one kind as they came: their instants in nanoseconds, their characters, and those of the first."""

    at_ns: "array[int]" = field(default_factory=lambda: array("q"))
    chars: int = 0
    first_chars: int = 0

    def add(self, chars: int, at_ns: int) -> None:
        """Another chunk."""
        if not self.at_ns:
            self.first_chars = chars
        self.chars += chars
        self.at_ns.append(at_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of one stream. `output` is the provider's count or, with `source` ESTIMATED, ours; `streamed` is what
    came in the chunks whose pace is taken (hidden reasoning did not), `None` when that cannot be known; `first_chunk`
    of those came in the first one.
    """

    output: int | None
    streamed: int | None
    first_chunk: int | None
    source: TokenSource | None


def reasoning_visibility(
    content: ChunkSeries, answer: ChunkSeries, usage: Usage, *, summarised: bool
) -> ReasoningVisibility:
    """What became of the reasoning. `summarised` is what the dialect knows of it."""
    reasoning_chars = content.chars - answer.chars
    # Gateways pass a digest on as if it were the reasoning, but tokens have more than a character each. Where that is
    # wrong it does no harm: the answer by itself has a pace too.
    if summarised or 0 < reasoning_chars < (usage.reasoning_tokens or 0):
        return ReasoningVisibility.SUMMARISED
    return ReasoningVisibility.VISIBLE if reasoning_chars else ReasoningVisibility.HIDDEN


def count_tokens(
    usage: Usage,
    *,
    content: ChunkSeries,
    speed_chunks: ChunkSeries,
    visibility: ReasoningVisibility,
    first_chunk_tokens: int | None = None,
) -> Tokens:
    """Count from usage if the provider sent it, else estimate one token per four characters of `content`; `source`
    records which. `speed_chunks` are the chunks used for the speed; `first_chunk_tokens` is the provider's count up to
    and including the first of them, if it sent one.
    """
    if usage.output_tokens is not None:
        output, streamed, source = usage.output_tokens, _streamed(usage, visibility), TokenSource.USAGE
    elif content.at_ns:
        output, streamed, source = _estimate(content.chars), _estimate(speed_chunks.chars), TokenSource.ESTIMATED
    else:
        return Tokens(output=None, streamed=None, first_chunk=None, source=None)
    first_chunk = _first_chunk(streamed, speed_chunks, first_chunk_tokens)
    return Tokens(output=output, streamed=streamed, first_chunk=first_chunk, source=source)


def _estimate(chars: int) -> int:
    return math.ceil(chars / CHARS_PER_TOKEN)


def _streamed(usage: Usage, visibility: ReasoningVisibility) -> int | None:
    """How many of the provider's output tokens came in the chunks whose pace is taken."""
    output, reasoning = usage.output_tokens or 0, usage.reasoning_tokens or 0
    if visibility is ReasoningVisibility.VISIBLE:
        return output
    if visibility is ReasoningVisibility.SUMMARISED and not reasoning:
        # There was reasoning, and nobody says how much of the output it was.
        return None
    return max(0, output - reasoning)


def _first_chunk(streamed: int | None, speed_chunks: ChunkSeries, stated: int | None) -> int | None:
    chunks = len(speed_chunks.at_ns)
    if streamed is None or not chunks:
        return None
    # With one token per chunk this share is exactly one; see the confession at the head of measurement.py.
    share = 1 if streamed == chunks else max(1, round(streamed * speed_chunks.first_chars / max(speed_chunks.chars, 1)))
    return min(stated if stated and chunks > 1 else share, streamed)


def cost_usd(price: Price | None, usage: Usage, tokens: Tokens) -> float | None:
    """List price of the exchange in US dollars; `None` when the price or a count is unknown."""
    if price is None or tokens.output is None or usage.prompt_tokens is None:
        return None
    return price.cost_usd(prompt_tokens=usage.prompt_tokens, output_tokens=tokens.output)


def speed_is_defined(chunk_ns: Sequence[int]) -> bool:
    """Whether chunks arrived spread out enough (3 of them, over 50 ms) for tokens per second to mean anything."""
    return len(chunk_ns) >= MIN_CHUNKS_FOR_SPEED and chunk_ns[-1] - chunk_ns[0] >= MIN_SPAN_FOR_SPEED_NS


def tokens_per_second(chunk_ns: Sequence[int], tokens: Tokens) -> float | None:
    """(streamed tokens - tokens of the first chunk) / (last chunk - first chunk), as Artificial Analysis defines output
    speed; `None` where undefined. `chunk_ns` are instants in nanoseconds.
    """
    if not speed_is_defined(chunk_ns) or tokens.streamed is None or tokens.first_chunk is None:
        return None
    rest = tokens.streamed - tokens.first_chunk
    return rest / ((chunk_ns[-1] - chunk_ns[0]) / 1e9) if rest > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Gaps between content-bearing chunks in microseconds (nearest rank), and how many of them were stalls."""

    p50_us: int | None = None
    p99_us: int | None = None
    max_us: int | None = None
    stalls: int | None = None


def gaps_between(chunk_ns: Sequence[int]) -> Gaps:
    """The gaps of a stream; all `None` with fewer than two chunks. A stall is a gap > max(1 s, 10 x median)."""
    ordered = sorted(after - before for before, after in pairwise(chunk_ns))
    if not ordered:
        return Gaps()
    stall_ns = max(STALL_FLOOR_NS, STALL_FACTOR * _nearest_rank(ordered, 0.5))
    return Gaps(
        p50_us=_nearest_rank(ordered, 0.5) // 1000,
        p99_us=_nearest_rank(ordered, 0.99) // 1000,
        max_us=ordered[-1] // 1000,
        stalls=sum(gap > stall_ns for gap in ordered),
    )


def _nearest_rank(ordered: Sequence[int], share: float) -> int:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
