"""Speeds of short streams: none is lost because the model is fast, and what arrives in pieces has none."""

import numpy as np
import pytest

from isochrone_agent.probe.dialects.signals import Usage
from isochrone_agent.probe.measurement import (
    KERNEL_RESOLUTION_NS,
    USER_RESOLUTION_NS,
    ChunkSeries,
    ReasoningVisibility,
    count_tokens,
    speed_is_defined,
    time_resolution_ns,
    tokens_per_second,
)

MS = 1_000_000


def chunks(at_ns: list[int], *, chars: int = 4) -> ChunkSeries:
    """Chunks at these times, each of so many characters."""
    series = ChunkSeries()
    for at in at_ns:
        series.add(chars, at)
    return series


def speed(series: ChunkSeries, tokens: int, *, resolution: int = KERNEL_RESOLUTION_NS) -> float | None:
    """The speed of a stream of so many tokens."""
    counted = count_tokens(
        Usage(output_tokens=tokens), content=series, speed_chunks=series, visibility=ReasoningVisibility.HIDDEN
    )
    found = tokens_per_second(series, counted, resolution_ns=resolution)
    assert (found is not None) == speed_is_defined(series, counted, resolution_ns=resolution)
    return found


def arrivals_of(tokens: int, rate: float, random: np.random.Generator, *, jitter_ns: float) -> list[int]:
    """The arrivals of tokens at a steady rate, each a little late, in order."""
    late = np.abs(random.normal(0, jitter_ns, tokens))
    return [int(at) for at in np.maximum.accumulate(np.arange(tokens) * 1e9 / rate + late)]


@pytest.mark.parametrize("tokens", [3, 5, 10, 20, 50])
@pytest.mark.parametrize("rate", [30, 100, 300, 1_000])
def test_a_speed_does_not_depend_on_being_fast(tokens: int, rate: float) -> None:
    """Streams of any length and rate have a speed, unless they last less than 5 ms, and its median is the truth.

    The rule of 50 ms excluded 20 tokens at 400 tokens per second, and of a model with mixed rates all fast answers.
    """
    random = np.random.default_rng(tokens * 1_000 + int(rate))
    found = [speed(chunks(arrivals_of(tokens, rate, random, jitter_ns=50_000)), tokens) for _ in range(200)]
    if (tokens - 1) / rate <= 0.005:
        return
    known = [one for one in found if one is not None]
    assert len(known) == len(found)
    assert np.median(known) == pytest.approx(rate, rel=0.02)


def test_the_share_that_is_missing_does_not_bias_a_mix() -> None:
    """Of a model whose answers have 10 tokens at 80 to 1 200 tokens per second, the median speed is within 1 %."""
    random = np.random.default_rng(15)
    rates = np.exp(random.uniform(np.log(80), np.log(1_200), 2_000))
    found = [speed(chunks(arrivals_of(10, rate, random, jitter_ns=50_000)), 10) for rate in rates]
    known = np.array([one for one in found if one is not None])
    assert len(known) == len(found)
    assert np.median(known) == pytest.approx(np.median(rates), rel=0.01)
    slow_enough = rates[9 / rates >= 0.05]
    assert np.median(slow_enough) < 0.5 * np.median(rates)  # what the rule of 50 ms would have reported


def test_what_arrives_together_counts_as_the_first() -> None:
    """Tokens that arrived with the first one are not tokens after it, or the speed would be too high."""
    series = chunks([0, 0, 10 * MS, 20 * MS, 30 * MS])
    assert (series.arrivals, series.first_chunks) == (4, 2)
    assert speed(series, 5) == pytest.approx(100.0)


@pytest.mark.parametrize(
    "at_ns",
    [
        [0] * 200,
        [0] * 100 + [1 * MS] * 100,
        [0] * 70 + [10 * MS] * 70 + [20 * MS] * 60,  # a buffered answer in three round trips
        [n * 10_000 for n in range(1_000)],  # 100 000 tokens per second
        [0, 2 * MS, 4 * MS],  # below 20 times the resolution
    ],
    ids=["at-once", "two-pieces", "round-trips", "too-fast", "too-short"],
)
def test_what_is_released_in_pieces_has_no_speed(at_ns: list[int]) -> None:
    """An answer that a proxy buffered shows the speed of the network, not that of the model."""
    assert speed(chunks(at_ns), len(at_ns)) is None


def test_a_long_stream_may_arrive_in_groups() -> None:
    """A network that delivers tokens in groups, over a second, does not change their speed."""
    at_ns = [group * 100 * MS for group in range(11) for _ in range(20)]
    assert speed(chunks(at_ns), len(at_ns)) == pytest.approx(200.0)


def test_the_resolution_without_the_kernel_is_that_of_the_loop() -> None:
    """Timestamps of the kernel have a fixed resolution; others are as good as the event loop, at best 1 ms."""
    assert time_resolution_ns(kernel=True, loop_lag_us=90_000) == KERNEL_RESOLUTION_NS
    assert time_resolution_ns(kernel=False, loop_lag_us=None) == USER_RESOLUTION_NS
    assert time_resolution_ns(kernel=False, loop_lag_us=3_000) == 3 * MS
