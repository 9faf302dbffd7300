"""The first hour: the commands that a newcomer would copy, and the defects that are noticed."""

from pathlib import Path

import pytest

from first_hour.defects import defects, plain
from first_hour.documented import commands, examples, is_endless, questions, subcommands

ROOT = Path(__file__).resolve().parents[3]
PAGE = """\
```text
isochrone is not run here
```

```console
$ pip install .
$ isochrone-collector serve          # a comment
$ isochrone diff --against eu \\
    --window 1h
```
"""


def test_commands_are_those_of_shell_blocks() -> None:
    """Lines of a shell block that run a program are commands; comments, other programs and other blocks are not."""
    assert [" ".join(line.split()) for line in commands(PAGE)] == [
        "isochrone-collector serve",
        "isochrone diff --against eu --window 1h",
    ]


def test_the_pages_have_commands() -> None:
    """docs/asking.md has a dozen questions, none of which sets anything up, and the README leads to a diff."""
    found = questions(ROOT)
    assert len(found) >= 12
    assert {"isochrone targets", "isochrone routes watch"} <= set(found)
    assert not [line for line in found if " join " in line or " context " in line]
    assert any(line.startswith("isochrone diff") for line in commands((ROOT / "README.md").read_text()))


def test_help_names_commands_and_examples() -> None:
    """The indented names with a line of help and the indented lines that begin with `isochrone` are found."""
    text = "Options:\n  -x\n\nNow:\n  diff  Rank.\n\nManage:\n  join  Join.\n\nExample:\n  isochrone diff --window 1h\n"
    assert subcommands(text) == ["diff"]
    assert examples(text) == ["isochrone diff --window 1h"]


def test_endless_commands_are_known() -> None:
    """A command that follows or watches runs until Ctrl-C."""
    assert is_endless("isochrone samples --follow")
    assert not is_endless("isochrone samples")


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
    """A line may have as many characters as the terminal has columns, and no more, unless it is of a log."""
    log = "2026-11-28T18:29:39.335241Z [info     ] gateway.started"
    assert defects(f"{log} {'x' * 80}\n^C{log} {'x' * 80}", width=80, names=()) == []
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
