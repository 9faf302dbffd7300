"""What the instants and counts of a stream amount to: tokens, pace and gaps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from isochrone_agent.signals import Usage
from isochrone_wire.model import Price, TokenSource

CHARS_PER_TOKEN = 4
MIN_CHUNKS_FOR_SPEED = 3
MIN_SPAN_FOR_SPEED_NS = 50_000_000
STALL_FLOOR_NS = 1_000_000_000
STALL_FACTOR = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of one stream. `output` is the provider's count or, with `source` ESTIMATED, ours; `streamed` is what
    came in chunks (hidden reasoning did not); `first_chunk` of those came in the first one.
    """

    output: int | None
    streamed: int | None
    first_chunk: int | None
    source: TokenSource | None


def count_tokens(
    usage: Usage,
    *,
    chunks: int,
    chars: int,
    first_chunk_chars: int,
    reasoned: bool,
    first_chunk_tokens: int | None = None,
) -> Tokens:
    """Usage first; else an estimate of one token per four characters, labelled so. `reasoned` says that reasoning was
    said aloud, so that the provider's reasoning tokens are among the chunks; `first_chunk_tokens` is what the provider
    counted up to and with the first chunk, if it did.
    """
    if usage.output_tokens is None:
        if not chunks:
            return Tokens(output=None, streamed=None, first_chunk=None, source=None)
        output, source = math.ceil(chars / CHARS_PER_TOKEN), TokenSource.ESTIMATED
    else:
        output, source = usage.output_tokens, TokenSource.USAGE
    hidden = 0 if reasoned else usage.reasoning_tokens or 0
    streamed = max(0, output - hidden)
    if not chunks:
        return Tokens(output=output, streamed=streamed, first_chunk=None, source=source)
    # With one token per chunk this share is exactly one; see the confession at the head of measurement.py.
    share = 1 if streamed == chunks else max(1, round(streamed * first_chunk_chars / max(chars, 1)))
    if first_chunk_tokens and chunks > 1:
        share = first_chunk_tokens
    return Tokens(output=output, streamed=streamed, first_chunk=min(share, streamed), source=source)


def cost_usd(price: Price | None, usage: Usage, tokens: Tokens) -> float | None:
    """List price of the exchange in US dollars; `None` when the price or a count is unknown."""
    if price is None or tokens.output is None:
        return None
    return price.cost_usd(prompt_tokens=usage.prompt_tokens or 0, output_tokens=tokens.output)


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
