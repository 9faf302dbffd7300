"""Fits of sweeps, checked against data with a known answer."""

import random

import pytest

from isochrone_agent.cli.sweep import fit, make_prompt


def test_a_line_is_found_exactly() -> None:
    """Points on a line yield that line."""
    line = fit([(100 * n, 50_000 + 3 * 100 * n) for n in range(1, 8)])
    assert line is not None
    assert (line.fixed_us, line.us_per_token, line.low, line.high) == pytest.approx((50_000, 3, 3, 3))


def test_one_slow_answer_does_not_bend_the_line() -> None:
    """A point ten times too high changes the slope by less than 10 %."""
    points = [(100 * n, 50_000 + 300 * n) for n in range(1, 12)]
    points[-1] = (points[-1][0], 10 * points[-1][1])
    line = fit(points)
    assert line is not None
    assert line.us_per_token == pytest.approx(3, rel=0.1)


def test_the_interval_covers_the_truth() -> None:
    """Of 400 noisy sweeps with repeated lengths, 93 % to 98.5 % of the intervals contain the true slope."""
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
    """A prompt has the requested number of words."""
    assert len(make_prompt(words).split()) == max(words, 4)
