"""Defects on a screen: each kind is found, and a good screen has none."""

import pytest

from first_hour.defects import defects, plain

NAMES = ("minimax/minimax-m2.5", "minimax", "openai/gpt", "openai/gpt-5")
GOOD = """\
target                p50
                       ms
minimax/minimax-m2.5  414
openai/gpt            201
openai/gpt-5          248
left out at 80 columns: network, server
"""


def test_a_good_screen_has_no_defect() -> None:
    """Whole names in a table, one of them the beginning of another, are no defect."""
    assert defects(GOOD, width=80, names=NAMES) == []


@pytest.mark.parametrize(
    "cell",
    [
        "08:41  minimax/minimax-  ms\n       m2.5",
        "08:41  minimax/  ms\n       minimax-m2.5, stays",
        "openai/\ngpt-5 ",
        "openai/gp\nt-5",
    ],
)
def test_a_name_over_two_lines_is_a_defect(cell: str) -> None:
    """A name that continues in the same column of the next line is broken."""
    assert any(sentence.startswith("breaks ") for sentence in defects(cell, width=80, names=NAMES))


def test_a_wide_line_is_a_defect() -> None:
    """A line may have as many characters as the terminal has columns, and no more."""
    assert defects("x" * 80, width=80, names=()) == []
    assert defects("x" * 81, width=80, names=()) == [f"a line of 81 characters: {'x' * 60}"]


@pytest.mark.parametrize("words", ["Traceback (most recent call last):", "error: the collector failed to answer"])
def test_an_internal_error_is_a_defect(words: str) -> None:
    """A traceback or an answer that only points to a log is a defect."""
    assert len(defects(words, width=80, names=())) == 1


def test_escape_sequences_are_not_text() -> None:
    """Colours and cursor movements take no columns."""
    assert plain(b"\x1b[1;31mslow\x1b[0m\r\n\x1b[?25l") == "slow\n"
    assert plain(b"\x1b[Hone\x1b[2;1Htwo") == "\none\ntwo"
