"""Bursts and sweeps: figures of many samples, checked against data whose answer is known."""

import random

import pytest

from isochrone_agent.cli.burst import summarise
from isochrone_agent.cli.sweep import fit, make_prompt
from isochrone_wire.model import Outcome, Sample


def stream(
    *, dispatched_at: int = 0, e2e_us: int = 1_000_000, tokens: int = 100, outcome: Outcome = Outcome.OK
) -> Sample:
    return Sample(
        target_id=1,
        round_at=0,
        outcome=outcome,
        dispatched_at=dispatched_at,
        tcp_us=0,
        ttft_us=e2e_us // 10,
        e2e_us=e2e_us,
        output_tokens=tokens,
        tokens_per_second=tokens / (e2e_us / 1e6),
    )


def test_throughput_is_over_the_whole_burst() -> None:
    """Four streams of 100 tokens, the last ending two seconds after the first was sent, are 200 tokens/s together."""
    burst = summarise([stream(), stream(), stream(), stream(dispatched_at=1_000_000)])
    assert (burst.streams, burst.succeeded) == (4, 4)
    assert burst.tokens_per_second == pytest.approx(200)
    assert burst.median_tokens_per_second == pytest.approx(100)


def test_failures_are_counted_and_give_no_tokens() -> None:
    """A throttled stream is a stream of the burst, and adds nothing to its throughput."""
    burst = summarise([stream(), stream(outcome=Outcome.THROTTLED)])
    assert (burst.streams, burst.succeeded) == (2, 1)
    assert burst.tokens_per_second == pytest.approx(100)


def test_a_burst_without_success_has_no_figures() -> None:
    """Nothing is known of a burst that failed as a whole, and nothing is said."""
    burst = summarise([stream(outcome=Outcome.HTTP_ERROR)])
    assert (burst.tokens_per_second, burst.ttft_median_us, burst.ttft_max_us) == (None, None, None)


def test_a_line_is_found_exactly() -> None:
    """Points on a line give that line."""
    line = fit([(100 * n, 50_000 + 3 * 100 * n) for n in range(1, 8)])
    assert line is not None
    assert (line.fixed_us, line.us_per_token, line.low, line.high) == pytest.approx((50_000, 3, 3, 3))


def test_one_slow_answer_does_not_bend_the_line() -> None:
    """A point that is ten times too high moves the slope by less than a tenth."""
    points = [(100 * n, 50_000 + 300 * n) for n in range(1, 12)]
    points[-1] = (points[-1][0], 10 * points[-1][1])
    line = fit(points)
    assert line is not None
    assert line.us_per_token == pytest.approx(3, rel=0.1)


def test_the_interval_covers_the_truth() -> None:
    """Of 400 noisy sweeps with repeated lengths, 93 to 97.5 of a hundred intervals hold the true slope."""
    draw = random.Random(7)
    held = 0
    for _ in range(400):
        points = [
            (x, round(80_000 + 4 * x + draw.gauss(0, 3_000))) for x in (100, 500, 1000, 2000, 4000) for _ in range(4)
        ]
        line = fit(points)
        assert line is not None
        assert line.low is not None
        assert line.high is not None
        held += line.low <= 4 <= line.high
    assert 0.93 <= held / 400 <= 0.985


@pytest.mark.parametrize("points", [[], [(100, 5)], [(100, 5), (100, 6)]])
def test_no_line_without_two_lengths(points: list[tuple[int, int]]) -> None:
    """A slope needs two different lengths."""
    assert fit(points) is None


@pytest.mark.parametrize("words", [4, 100, 5000])
def test_prompts_have_their_length(words: int) -> None:
    """A prompt has as many words as asked for."""
    assert len(make_prompt(words).split()) == max(words, 4)
