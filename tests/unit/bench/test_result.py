"""The conclusion of a benchmark: its RESULT line, the goals it missed, and its exit code."""

from math import nan

import pytest

from bench.result import Figure, Goal, Tally, at_least, at_most, conclude


@pytest.mark.parametrize(
    ("figure", "goal", "shown", "missed"),
    [
        (0.5, at_most(0.5), "0.5", ""),
        (0.51, at_most(0.5), "0.51", "x <= 0.5"),
        (1999.6, at_least(2000), "2000", "x >= 2000"),
        (nan, at_most(1), "nan", "x <= 1"),
        (Tally(10, 10), at_least(1), "10/10", ""),
        (Tally(9, 10), at_least(1), "9/10", "x >= 1"),
        ("skipped", at_most(1), "skipped", "x <= 1"),
    ],
)
def test_a_figure_meets_its_goal_or_misses_it(
    capsys: pytest.CaptureFixture[str], figure: Figure, goal: Goal, shown: str, missed: str
) -> None:
    """What was not measured misses its goal; a tally is compared as a share."""
    assert conclude({"other": "skipped", "x": figure}, {"x": goal}) == bool(missed)
    printed = capsys.readouterr()
    assert printed.out == f"RESULT x={shown} other=skipped\n"
    assert printed.err == (f"missed: {missed}\n" if missed else "")
