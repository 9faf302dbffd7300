"""Streams of a server or proxy that releases what it has at the ticks of a timer."""

import numpy as np

from isochrone_agent.probe.measurement import (
    KERNEL_RESOLUTION_NS,
    ChunkSeries,
    ReasoningVisibility,
    count_tokens,
    tokens_per_second,
)
from isochrone_common.dialects.signals import Usage

CHARS_PER_TOKEN = 4
# The reads of one release.
READ_GAP_NS = 20_000


def flushed(
    random: np.random.Generator, *, tokens: int, rate: float, timer_ms: float, eager: bool, joined: bool
) -> tuple[ChunkSeries, float]:
    """Return the chunks of a stream, and its true speed in tokens per second.

    Tokens take gamma distributed times, `rate` per second on average. `eager`: the first token is released at once;
    `joined`: a release is one chunk, and not one per token.
    """
    made = np.cumsum(random.gamma(4, 1 / (4 * rate), tokens))
    timer = timer_ms / 1000
    phase = random.uniform(0, timer)
    ticks = np.ceil((made - phase) / timer)
    ticks[0] = ticks[0] - 1 if eager else ticks[0]
    released = np.round((ticks * timer + phase) * 1e9).astype(np.int64)
    released[0] = round(made[0] * 1e9) if eager else released[0]
    chars = 1 + random.poisson(CHARS_PER_TOKEN - 1, tokens)
    series = ChunkSeries()
    starts = np.flatnonzero(np.diff(ticks, prepend=-np.inf))
    if joined:
        for at_ns, count in zip(released[starts], np.add.reduceat(chars, starts), strict=True):
            series.add(int(count), int(at_ns))
    else:
        within = np.arange(tokens) - np.repeat(starts, np.diff(starts, append=tokens))
        for at_ns, count in zip(released + within * READ_GAP_NS, chars, strict=True):
            series.add(int(count), int(at_ns))
    return series, (tokens - 1) / (made[-1] - made[0])


def speed_of(series: ChunkSeries, tokens: int) -> float | None:
    """Return the speed that the agent records for a stream with this usage, in tokens per second."""
    counted = count_tokens(
        Usage(output_tokens=tokens), content=series, speed_chunks=series, visibility=ReasoningVisibility.HIDDEN
    )
    return tokens_per_second(series, counted, resolution_ns=KERNEL_RESOLUTION_NS)
