"""Metrics of a stream from the times and sizes of its chunks: tokens, speed and gaps.

A stream has a speed if its chunks arrived as they were generated, and their times are exact enough. A fixed minimum of
the duration would exclude the short answers of fast models, and make these models look slower than they are. The laws:

1. They arrived at three instants or more. What arrived with the first chunk counts as part of it.
2. The time between first and last arrival is at least 20 times the resolution of the timestamps, so that the error of
   a speed is a few per cent, and the bias of 1/time some tenths of a per cent.
3. It is at least 50 us per token after the first arrival: no model generates 20 000 tokens per second, but a proxy that
   buffers releases more.
4. Within less than 50 ms, there are at most eight chunks per arrival. A buffered answer arrives in a few large pieces,
   a round trip apart.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from isochrone_agent.probe.dialects.signals import Usage
from isochrone_wire.model import Price, TokenSource

CHARS_PER_TOKEN = 4
MIN_ARRIVALS_FOR_SPEED = 3
MIN_RESOLUTIONS_FOR_SPEED = 20
FASTEST_TOKEN_NS = 50_000
SHORT_SPAN_NS = 50_000_000
MAX_CHUNKS_PER_ARRIVAL = 8
# The kernel's timestamps are exact to microseconds, but network cards deliver segments in groups.
KERNEL_RESOLUTION_NS = 250_000
USER_RESOLUTION_NS = 1_000_000
STALL_FLOOR_NS = 1_000_000_000
STALL_FACTOR = 10


class ReasoningVisibility(Enum):
    """Visibility of the reasoning in the stream: not visible (or absent), streamed in full, or summarised."""

    HIDDEN = "hidden"
    VISIBLE = "visible"
    SUMMARISED = "summarised"


@dataclass(slots=True)
class ChunkSeries:
    """The chunks of one kind: times in ns, the number of different times, characters, and those of the first time."""

    at_ns: "array[int]" = field(default_factory=lambda: array("q"))
    arrivals: int = 0
    chars: int = 0
    first_chunks: int = 0
    first_chars: int = 0

    def add(self, chars: int, at_ns: int) -> None:
        """Add a chunk, not earlier than the one before."""
        self.arrivals += not self.at_ns or at_ns > self.at_ns[-1]
        if self.arrivals == 1:
            self.first_chunks += 1
            self.first_chars += chars
        self.chars += chars
        self.at_ns.append(at_ns)

    @property
    def span_ns(self) -> int:
        """The time from the first to the last chunk, 0 without chunks."""
        return self.at_ns[-1] - self.at_ns[0] if self.at_ns else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The token counts of one stream. `output` is the provider's count or, with `source` ESTIMATED, an estimate.
    `streamed` is the part of it in the chunks used for the speed (hidden reasoning is not in any chunk), `None` if
    unknown; `first_chunk` is the part of `streamed` in the first of these chunks, and in others that arrived with it.
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
    first = speed_chunks.first_chunks
    # With one token per chunk this share is exact; see "Not proud of" in measurement.py.
    exact = streamed == chunks
    share = first if exact else max(1, round(streamed * speed_chunks.first_chars / max(speed_chunks.chars, 1)))
    return min(stated if stated and first == 1 < chunks else share, streamed)


def cost_usd(price: Price | None, usage: Usage, tokens: Tokens) -> float | None:
    """Return the list price of the request in US dollars; `None` if the price or a count is unknown."""
    if price is None or tokens.output is None or usage.prompt_tokens is None:
        return None
    return price.cost_usd(prompt_tokens=usage.prompt_tokens, output_tokens=tokens.output)


def speed_is_defined(chunks: ChunkSeries, tokens: Tokens, *, resolution_ns: int) -> bool:
    """Return true if the chunks show a speed, given the resolution of their times; see the rules above."""
    rest = (tokens.streamed or 0) - (tokens.first_chunk or 0)
    long_enough = chunks.span_ns >= max(MIN_RESOLUTIONS_FOR_SPEED * resolution_ns, rest * FASTEST_TOKEN_NS)
    crowded = chunks.span_ns < SHORT_SPAN_NS and len(chunks.at_ns) > MAX_CHUNKS_PER_ARRIVAL * chunks.arrivals
    return chunks.arrivals >= MIN_ARRIVALS_FOR_SPEED and long_enough and not crowded


def tokens_per_second(chunks: ChunkSeries, tokens: Tokens, *, resolution_ns: int) -> float | None:
    """The output speed as Artificial Analysis defines it, after the first chunk; `None` if undefined."""
    if tokens.streamed is None or tokens.first_chunk is None:
        return None
    rest = tokens.streamed - tokens.first_chunk
    is_defined = rest > 0 and speed_is_defined(chunks, tokens, resolution_ns=resolution_ns)
    return rest / (chunks.span_ns / 1e9) if is_defined else None


def resolution_ns(*, kernel: bool, loop_lag_us: int | None) -> int:
    """Return the resolution of the times of chunks: without timestamps of the kernel, that of the event loop."""
    return KERNEL_RESOLUTION_NS if kernel else max(USER_RESOLUTION_NS, (loop_lag_us or 0) * 1000)


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
