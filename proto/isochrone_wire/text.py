"""Text for people: names that are close to each other, and text from elsewhere made safe for a terminal."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name most similar to `name`, or `None` below a similarity of `cutoff`, from 0 (any) to 1 (equal)."""
    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no known name is similar."""
    match = nearest(name, known)
    return f"; did you mean {match!r}?" if match else ""


def printable(text: str) -> str:
    """The text with a space in place of every character that could move a cursor or change a colour."""
    return "".join(mark if mark.isprintable() else " " for mark in text)
