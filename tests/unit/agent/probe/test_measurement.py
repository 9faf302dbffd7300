"""The state machine of one probe, and the metrics of its sample."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.probe.measurement import (
    KERNEL_RESOLUTION_NS,
    ONLY_HIDDEN_REASONING,
    USER_RESOLUTION_NS,
    ChunkSeries,
    Measurement,
    ReasoningVisibility,
    chunk_gaps,
    count_tokens,
    speed_is_defined,
    time_resolution_ns,
    tokens_per_second,
)
from isochrone_common.dialects.signals import Answer, Failed, Finished, Opened, Reasoning, Sent, Signal, Unknown, Usage
from isochrone_wire.model import Outcome, Price, Quality, Sample, TokenSource
from testdata.flush_timers import flushed, speed_of

MS = 1_000_000
SIGNALS: list[Signal] = [
    Sent(),
    Opened(status=200),
    Reasoning(4),
    Reasoning(0, summarised=True),
    Answer(4),
    Usage(output_tokens=5),
    Finished("stop"),
    Failed(outcome=Outcome.STALLED, error="silence"),
]


def measured(*signals: tuple[int, Signal]) -> Measurement:
    measurement = Measurement()
    for at_ms, signal in signals:
        measurement.observe(signal, at_ms * MS)
    return measurement


def sample_of(*signals: tuple[int, Signal]) -> Sample:
    return measured(*signals).sample(target_id=1, round_at=0, dispatched_at=0)


def stream(*answers: tuple[int, int], tokens: int | None = None) -> Sample:
    """Build a stream of answers (at ms, characters) that ends with this usage."""
    signals = [(at, Answer(chars)) for at, chars in answers]
    last = answers[-1][0]
    end: list[tuple[int, Signal]] = [(last, Usage(output_tokens=tokens)), (last, Finished("stop"))]
    return sample_of((0, Sent()), (0, Opened(status=200)), *signals, *end)


TOKENS: list[tuple[int, Signal]] = [(0, Sent()), (1, Opened(status=200)), (10, Answer(4)), (20, Answer(4))]
FAILURE = Failed(outcome=Outcome.STREAM_ERROR, error="out of memory")


@pytest.mark.parametrize(
    ("what", "then", "outcome", "chunks"),
    [
        ("tokens after the final marker", [Finished("[DONE]", final=True), Answer(4)], Outcome.OK, 2),
        ("an error after the final marker", [Finished("[DONE]", final=True), FAILURE], Outcome.OK, 2),
        ("an error after a complete answer", [Finished("stop"), FAILURE], Outcome.OK, 2),
        ("a finish reason in each chunk", [Finished("stop"), Answer(4), Finished("stop")], Outcome.OK, 3),
        ("a finish reason, then more", [Finished("stop"), Answer(4)], Outcome.OK, 3),
        (
            "a finish reason in each chunk, then an error",
            [Finished("stop"), Answer(4), FAILURE],
            Outcome.STREAM_ERROR,
            3,
        ),
        ("an error between tokens", [FAILURE, Answer(4), Finished("[DONE]", final=True)], Outcome.STREAM_ERROR, 3),
        ("an unknown frame", [Unknown(), Finished("stop")], Outcome.OK, 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_ends_an_answer(what: str, then: list[Signal], outcome: Outcome, chunks: int) -> None:
    """Only a marker that nothing contradicts ends an answer, and nothing after a complete answer changes it."""
    sample = sample_of(*TOKENS, *[(30, signal) for signal in then])
    assert (sample.outcome, sample.chunks) == (outcome, chunks), what


def test_a_finish_reason_before_the_first_token_ends_nothing() -> None:
    """Translators of Gemini send an empty chunk with STOP before the answer."""
    begin: list[tuple[int, Signal]] = [(0, Sent()), (1, Opened(status=200)), (2, Finished("STOP")), (10, Answer(4))]
    assert sample_of(*begin).outcome is Outcome.TRUNCATED
    assert sample_of(*begin, (20, Finished("STOP"))).outcome is Outcome.OK


def test_a_failed_stream_has_no_speed() -> None:
    """The tokens before a failure are counted, but are no speed of an answer."""
    tokens: list[tuple[int, Signal]] = [(100 * n, Answer(4)) for n in range(1, 11)]
    end: list[tuple[int, Signal]] = [(1000, Usage(output_tokens=10)), (1000, FAILURE)]
    sample = sample_of((0, Sent()), (0, Opened(status=200)), *tokens, *end)
    assert (sample.output_tokens, sample.tokens_per_second) == (10, None)


@pytest.mark.parametrize("head", ["<think>", "\n<think", "<|channel|>analysis", "[THINK]"])
def test_reasoning_inside_the_content_hides_the_begin_of_the_answer(head: str) -> None:
    """With the marker of a reasoning in the content, also one that is split, TTFAT is unknown and TTFT is not."""
    pieces: list[tuple[int, Signal]] = [
        (10, Answer(2, head[:2])),
        (20, Answer(len(head) - 2, head[2:])),
        (30, Answer(4, "text")),
    ]
    sample = sample_of((0, Sent()), (1, Opened(status=200)), *pieces, (40, Finished("stop")))
    assert (sample.outcome, sample.ttft_us, sample.ttfat_us) == (Outcome.OK, 10_000, None)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(SIGNALS)), max_size=12))
def test_a_sample_can_always_be_taken(steps: list[tuple[int, Signal]]) -> None:
    """Any signals in any order yield a sample without negative or unordered durations."""
    measurement = Measurement()
    for at_ms, signal in steps:
        measurement.observe(signal, at_ms * MS)
    sample = measurement.sample(target_id=1, round_at=0, dispatched_at=0)
    known = [t for t in (sample.ttft_us, sample.e2e_us) if t is not None]
    assert all(t >= 0 for t in known)
    assert known == sorted(known)
    assert (sample.outcome is Outcome.OK) == (measurement.finished and measurement.failed is None and sample.chunks > 0)


def test_every_duration_runs_from_the_request_sent() -> None:
    """TTFB, TTFT, TTFAT and E2E start when the request has been sent, not when the connection begins."""
    sample = sample_of(
        (10, Sent()),
        (15, Opened(status=200)),
        (110, Reasoning(4)),
        (210, Answer(4)),
        (310, Answer(4)),
        (310, Finished("stop")),
    )
    assert (sample.ttfb_us, sample.ttft_us, sample.ttfat_us, sample.e2e_us) == (5_000, 100_000, 200_000, 300_000)


def test_speed_leaves_out_the_first_chunk() -> None:
    """101 tokens, one at 200 ms and one every 10 ms after it, are 100 tokens/s, not 101 nor 50."""
    sample = stream(*[(200 + 10 * n, 4) for n in range(101)], tokens=101)
    assert sample.tokens_per_second == pytest.approx(100.0)
    assert sample.tpot_us == pytest.approx(10_000)


@pytest.mark.parametrize("speed", [None, 0.0, 5e-324, 1e-308])
def test_a_time_per_token_that_is_no_number(speed: float | None) -> None:
    """Without a speed, or with one so low that its inverse is infinite, there is no time per token."""
    sample = replace(stream((200, 4), (300, 4), tokens=2), tokens_per_second=speed)
    assert sample.tpot_us is None


def test_a_bundled_first_chunk_is_taken_out_by_its_share() -> None:
    """A first chunk with 20 of 60 tokens leaves 40 for the rest; ten chunks of five are fifty."""
    sample = stream((200, 80), *[(200 + 10 * n, 4) for n in range(1, 41)], tokens=60)
    assert sample.first_chunk_tokens == 20
    assert sample.tokens_per_second == pytest.approx(100.0)
    sample = stream(*[(100 * n, 20) for n in range(1, 11)], tokens=50)
    assert (sample.chunks, sample.output_tokens) == (10, 50)
    assert sample.tokens_per_second == pytest.approx(50.0)


@pytest.mark.parametrize(
    "answers",
    [[(100, 400)], [(100, 200), (900, 200)], [(100, 4), (101, 4), (103, 4), (104, 4)]],
    ids=["one-chunk", "two-chunks", "within-4-ms"],
)
def test_no_speed_is_better_than_a_wrong_one(answers: list[tuple[int, int]]) -> None:
    """An answer that arrives at once has no speed, and is flagged."""
    sample = stream(*answers, tokens=100)
    assert sample.tokens_per_second is None
    assert Quality.BUFFERED in sample.quality


def test_a_short_answer_has_its_speed() -> None:
    """Three tokens within 20 ms show 100 tokens per second: a short answer does not lose its speed."""
    sample = stream((100, 4), (110, 4), (120, 4), tokens=3)
    assert sample.tokens_per_second == pytest.approx(100.0)
    assert sample.quality is Quality.CLEAN


def test_without_timestamps_of_the_kernel_more_time_is_needed() -> None:
    """The times of chunks are as exact as the event loop was punctual, which decides how short a stream may be."""
    measurement = Measurement()
    signals: list[tuple[int, Signal]] = [(0, Sent()), (0, Opened(status=200))]
    signals += [(100 + 10 * n, Answer(4)) for n in range(5)]
    for at_ms, signal in [*signals, (140, Finished())]:
        measurement.observe(signal, at_ms * MS)

    def speed(lag_us: int) -> float | None:
        connection, quality = {"loop_lag_us": lag_us}, Quality.USER_STAMPS
        sample = measurement.sample(target_id=1, round_at=0, dispatched_at=0, connection=connection, quality=quality)
        return sample.tokens_per_second

    assert speed(500) == speed(2_000) == pytest.approx(100.0)
    assert speed(2_001) is None


def test_hidden_reasoning_is_not_streamed() -> None:
    """Hidden reasoning tokens do not raise the speed of the visible ones."""
    signals = [(100 * n, Answer(4)) for n in range(1, 12)]
    usage = Usage(output_tokens=1011, reasoning_tokens=1000)
    sample = sample_of((0, Sent()), (0, Opened(status=200)), *signals, (1100, usage), (1100, Finished()))
    assert sample.tokens_per_second == pytest.approx(10.0)
    assert sample.output_tokens == 1011


def summarised_stream(*answers: tuple[int, int], usage: Usage) -> Sample:
    """Build a stream with a long reasoning summary before these answers (at ms, characters)."""
    digest = [(at, Reasoning(400, summarised=True)) for at in (100, 150, 200)]
    signals = [(at, Answer(chars)) for at, chars in answers]
    last = answers[-1][0]
    return sample_of((0, Sent()), (0, Opened(status=200)), *digest, *signals, (last, usage), (last, Finished()))


def test_a_summary_is_not_part_of_the_speed() -> None:
    """A summary is not part of the speed; an answer that arrives at once has none, however long its summary took."""
    answers = [(1000 + 10 * n, 4) for n in range(11)]
    sample = summarised_stream(*answers, usage=Usage(output_tokens=1011, reasoning_tokens=1000))
    assert sample.tokens_per_second == pytest.approx(100.0)
    assert (sample.ttft_us, sample.ttfat_us, sample.output_tokens, sample.first_chunk_tokens) == (
        100_000,
        1_000_000,
        1011,
        1,
    )
    unsaid = summarised_stream(*answers, usage=Usage(output_tokens=1011))
    assert (unsaid.tokens_per_second, unsaid.first_chunk_tokens, unsaid.quality) == (None, None, Quality.CLEAN)
    estimated = summarised_stream(*answers, usage=Usage())
    assert estimated.tokens_per_second == pytest.approx(100.0)
    assert (estimated.output_tokens, estimated.quality) == (311, Quality.ESTIMATED_TOKENS)
    sample = summarised_stream((1000, 4), (1000, 4), (1001, 4), usage=Usage(output_tokens=1003, reasoning_tokens=1000))
    assert (sample.tokens_per_second, sample.quality) == (None, Quality.BUFFERED)


def test_hidden_reasoning_is_no_token() -> None:
    """Hidden reasoning ends no TTFT and is no chunk; without an answer the error names it as the cause."""
    hidden = Reasoning(0, summarised=True)
    signals: list[tuple[int, Signal]] = [(0, Sent()), (0, Opened(status=200)), (100, hidden)]
    thought = sample_of(*signals, (200, Answer(4)), (200, Finished()))
    assert (thought.ttft_us, thought.chunks, thought.outcome) == (200_000, 1, Outcome.OK)
    silent = sample_of(*signals, (200, Usage(output_tokens=200)), (200, Finished()))
    assert (silent.outcome, silent.error, silent.chunks) == (Outcome.EMPTY, ONLY_HIDDEN_REASONING, 0)


def test_estimates_are_labelled() -> None:
    """Without usage, tokens are estimated as one per four characters, and the sample is flagged."""
    sample = stream((100, 40), (200, 40), (300, 40))
    assert (sample.output_tokens, sample.token_source) == (30, TokenSource.ESTIMATED)
    assert Quality.ESTIMATED_TOKENS in sample.quality


def test_usage_may_come_in_pieces() -> None:
    """A field missing in a later usage block keeps its earlier value."""
    pieces: list[tuple[int, Signal]] = [
        (0, Usage(prompt_tokens=7, cached_tokens=3)),
        (5, Answer(4)),
        (5, Usage(output_tokens=1)),
        (5, Finished()),
    ]
    sample = sample_of((0, Sent()), (0, Opened(status=200)), *pieces)
    assert (sample.prompt_tokens, sample.output_tokens, sample.cached_tokens) == (7, 1, 3)
    assert Quality.CACHED in sample.quality


def test_gaps_and_stalls() -> None:
    """A stall is a gap longer than a second and than ten medians."""
    gaps = chunk_gaps([n * 100 * MS for n in range(10)] + [2_500 * MS])
    assert (gaps["chunk_gap_p50_us"], gaps["chunk_gap_max_us"], gaps["stalls"]) == (100_000, 1_600_000, 1)
    assert chunk_gaps([n * 500 * MS for n in range(10)] + [6_500 * MS])["stalls"] == 0


def test_the_first_failure_is_the_cause() -> None:
    """The first failure is the cause, with its limit; what was measured before it stays."""
    timeout = Failed(outcome=Outcome.TIMED_OUT, error="late", timeout_us=5)
    sample = sample_of((0, Sent()), (9, timeout), (9, Failed(outcome=Outcome.TRUNCATED, error="cut")))
    assert (sample.outcome, sample.timeout_us, sample.error) == (Outcome.TIMED_OUT, 5, "late")
    failure = Failed(outcome=Outcome.STALLED, error="silence", timeout_us=30_000_000)
    sample = sample_of((0, Sent()), (5, Opened(status=200)), (100, Answer(4)), (120, Answer(4)), (30_120, failure))
    assert (sample.outcome, sample.ttft_us, sample.chunks) == (Outcome.STALLED, 100_000, 2)


def test_cold_is_connection_plus_first_token() -> None:
    """`ttft_cold_us` is derived from the phases of the same request."""
    measurement = measured((0, Sent()), (0, Opened(status=200)), (100, Answer(4)), (100, Finished()))
    connection = {"dns_us": 1_000, "tcp_us": 2_000, "tls_us": 3_000}
    price = Price(usd_per_m_input=1, usd_per_m_output=2)
    sample = measurement.sample(target_id=1, round_at=0, dispatched_at=7, connection=connection, price=price)
    assert (sample.connect_us, sample.ttft_cold_us, sample.late_us) == (6_000, 106_000, 7)
    # A prompt that nobody counted is not one of no tokens.
    assert sample.cost_usd is None
    measurement = measured((0, Sent()), (0, Opened(status=200)), (100, Answer(4)), (100, Usage(prompt_tokens=3)))
    assert measurement.sample(target_id=1, round_at=0, dispatched_at=7, price=price).cost_usd == pytest.approx(5e-6)


def chunks(at_ns: list[int], *, chars: int = 4) -> ChunkSeries:
    """Chunks at these times, each of so many characters."""
    series = ChunkSeries()
    for at in at_ns:
        series.add(chars, at)
    return series


def speed(series: ChunkSeries, tokens: int, *, resolution: int = KERNEL_RESOLUTION_NS) -> float | None:
    counted = count_tokens(
        Usage(output_tokens=tokens), content=series, speed_chunks=series, visibility=ReasoningVisibility.HIDDEN
    )
    found = tokens_per_second(series, counted, resolution_ns=resolution)
    assert (found is not None) == speed_is_defined(series, counted, resolution_ns=resolution)
    return found


def arrivals_of(tokens: int, rate: float, random: np.random.Generator, *, jitter_ns: float) -> list[int]:
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
    assert (series.arrivals, series.ends[0]) == (4, 2)
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


@pytest.mark.parametrize("joined", [False, True], ids=["chunk-per-token", "chunk-per-release"])
@pytest.mark.parametrize("eager", [False, True], ids=["first-waits", "first-at-once"])
@pytest.mark.parametrize(("timer_ms", "rate"), [(50, 20), (50, 200), (100, 100), (200, 20), (200, 50)])
def test_a_timer_for_tokens_keeps_their_speed(timer_ms: float, rate: float, *, eager: bool, joined: bool) -> None:
    """The last tokens wait for the timer like all, but are fewer: with them a speed would be 3 to 8 % too low."""
    random = np.random.default_rng(37)
    errors = []
    for _ in range(200):
        series, truth = flushed(random, tokens=64, rate=rate, timer_ms=timer_ms, eager=eager, joined=joined)
        found = speed_of(series, 64)
        assert found is not None
        errors.append(found / truth - 1)
    assert abs(np.mean(errors)) <= 0.03


def test_few_releases_have_no_speed() -> None:
    """Of few releases the first and the last are left out; what arrives within 1 ms, or a quarter gap, is one."""
    at_ns = [release * 100 * MS for release in range(5) for _ in range(10)]
    assert speed(chunks(at_ns), 50) == pytest.approx(100.0)
    assert speed(chunks(at_ns[:40]), 40) is None
    at_ns = [release * 100 * MS + read * 20_000 for release in range(6) for read in range(10)]
    series = chunks(at_ns)
    assert (series.arrivals, series.ends[0]) == (6, 10)
    assert speed(series, 60) == pytest.approx(100.0)


def test_the_resolution_without_the_kernel_is_that_of_the_loop() -> None:
    """Timestamps of the kernel have a fixed resolution; others are as good as the event loop, at best 1 ms."""
    assert time_resolution_ns(kernel=True, loop_lag_us=90_000) == KERNEL_RESOLUTION_NS
    assert time_resolution_ns(kernel=False, loop_lag_us=None) == USER_RESOLUTION_NS
    assert time_resolution_ns(kernel=False, loop_lag_us=3_000) == 3 * MS
