"""Defects that are visible in the output of a command, without knowing what the command does."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

_MOVES = re.compile(r"\x1b\[(\d+;\d+)?H")
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")
# A command to copy, or a line of a log.
_WIDE = re.compile(r"isochrone(-\w+)? \w|^(\^C)?\d{4}-\d\d-\d\dT\S+ \[")
_NEVER = ("Traceback (most recent call last)", "failed to answer", "internal error", "its log says why")
# A shorter part of a word is not recognized.
_WORD = r"\S{4,}"


def plain(output: bytes) -> str:
    """Return the output of a program as text without escape sequences; each move of the cursor begins a line."""
    text = _MOVES.sub("\n", output.decode(errors="replace"))
    return _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def defects(text: str, *, width: int, names: Iterable[str]) -> list[str]:
    """Return what is wrong with the output: a traceback, an internal error, a line wider than the terminal, or one of
    `names` broken over two lines. A line with a command to copy, or of a log, may be wider.
    """
    lines = [line for line in text.splitlines() if not _WIDE.search(line)]
    found = [f"prints {words!r}" for words in _NEVER if words in text]
    found += [f"a line of {len(line)} characters: {line.strip()[:60]}" for line in lines if len(line) > width]
    return found + [f"breaks {name}" for name in sorted(set(_broken(lines, tuple(names))))]


def _broken(lines: list[str], names: tuple[str, ...]) -> Iterator[str]:
    for above, below in pairwise(lines):
        for word in re.finditer(_WORD, above):
            rest = _word_at(below, word.start())
            yield from (name for name in names if rest and name != word[0] and _is_split(name, word[0], rest))


def _word_at(line: str, column: int) -> str:
    """Return the word that begins in this column, without punctuation after it."""
    begins = column == 0 or line[column - 1 : column] in ("", " ")
    found = re.match(r"\S+", line[column:]) if begins else None
    return found[0].rstrip(",.;:") if found else ""


def _is_split(name: str, first: str, rest: str) -> bool:
    return name.startswith(first) and name[len(first) :].startswith(rest) and name not in (first, rest)
