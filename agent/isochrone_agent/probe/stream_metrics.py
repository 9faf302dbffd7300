"""Metrics of a stream from the times and sizes of its chunks: tokens, speed and gaps."""

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
    """Visibility of the reasoning in the stream: not visible (or absent), streamed in full, or summarised."""

    HIDDEN = "hidden"
    VISIBLE = "visible"
    SUMMARISED = "summarised"


@dataclass(slots=True)
class ChunkSeries:
    """The chunks of one kind: their times in nanoseconds, their characters in total, and those of the first chunk."""

    at_ns: "array[int]" = field(default_factory=lambda: array("q"))
    chars: int = 0
    first_chars: int = 0

    def add(self, chars: int, at_ns: int) -> None:
        """Add a chunk."""
        if not self.at_ns:
            self.first_chars = chars
        self.chars += chars
        self.at_ns.append(at_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The token counts of one stream. `output` is the provider's count or, with `source` ESTIMATED, an estimate.
    `streamed` is the part of it in the chunks used for the speed (hidden reasoning is not in any chunk), `None` if
    unknown; `first_chunk` is the part of `streamed` in the first of these chunks.
    """

    output: int | None
    streamed: int | None
    first_chunk: int | None
    source: TokenSource | None


def reasoning_visibility(
    content: ChunkSeries, answer: ChunkSeries, usage: Usage, *, summarised: bool
) -> ReasoningVisibility:
    """Determine the visibility of the reasoning. `summarised` is true if the dialect knows that it is a summary."""
    reasoning_chars = content.chars - answer.chars
    # Gateways pass a summary on as if it were the reasoning; it has fewer characters than the reasoning has tokens. A
    # wrong guess does no harm, because the answer alone has a speed too.
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
    """Return how many of the provider's output tokens are in the chunks used for the speed; `None` if unknown."""
    output, reasoning = usage.output_tokens or 0, usage.reasoning_tokens or 0
    if visibility is ReasoningVisibility.VISIBLE:
        return output
    if visibility is ReasoningVisibility.SUMMARISED and not reasoning:
        # There was reasoning, but its share of the output is unknown.
        return None
    return max(0, output - reasoning)


def _first_chunk(streamed: int | None, speed_chunks: ChunkSeries, stated: int | None) -> int | None:
    chunks = len(speed_chunks.at_ns)
    if streamed is None or not chunks:
        return None
    # With one token per chunk this share is exactly one; see "Not proud of" in measurement.py.
    share = 1 if streamed == chunks else max(1, round(streamed * speed_chunks.first_chars / max(speed_chunks.chars, 1)))
    return min(stated if stated and chunks > 1 else share, streamed)


def cost_usd(price: Price | None, usage: Usage, tokens: Tokens) -> float | None:
    """Return the list price of the request in US dollars; `None` if the price or a count is unknown."""
    if price is None or tokens.output is None or usage.prompt_tokens is None:
        return None
    return price.cost_usd(prompt_tokens=usage.prompt_tokens, output_tokens=tokens.output)


def speed_is_defined(chunk_ns: Sequence[int]) -> bool:
    """Return true if there are enough chunks (3) over enough time (50 ms) to measure tokens per second."""
    return len(chunk_ns) >= MIN_CHUNKS_FOR_SPEED and chunk_ns[-1] - chunk_ns[0] >= MIN_SPAN_FOR_SPEED_NS


def tokens_per_second(chunk_ns: Sequence[int], tokens: Tokens) -> float | None:
    """Return (streamed tokens - tokens of the first chunk) / (last chunk - first chunk), which is the output speed as
    Artificial Analysis defines it; `None` if undefined. `chunk_ns` are times in nanoseconds.
    """
    if not speed_is_defined(chunk_ns) or tokens.streamed is None or tokens.first_chunk is None:
        return None
    rest = tokens.streamed - tokens.first_chunk
    return rest / ((chunk_ns[-1] - chunk_ns[0]) / 1e9) if rest > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Quantiles (nearest rank) of the gaps between chunks with text, in microseconds, and the number of stalls."""

    p50_us: int | None = None
    p99_us: int | None = None
    max_us: int | None = None
    stalls: int | None = None


def gaps_between(chunk_ns: Sequence[int]) -> Gaps:
    """Measure the gaps of a stream; all `None` with fewer than two chunks. A stall is a gap > max(1 s, 10 x median)."""
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
