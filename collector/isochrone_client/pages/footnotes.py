"""Footnotes: remarks below a table, referenced as `[1]`."""

from collections.abc import Iterable

_SO_FAR = " so far; "


def without_size(reason: str) -> str:
    """The reason of a decision without the size that its row shows, so that rows can share it."""
    return reason.rpartition(_SO_FAR)[2]


class Footnotes:
    """Remarks, numbered in the order of their first use. An empty remark has no mark."""

    def __init__(self, remarks: Iterable[str]) -> None:
        self._number_of = {
            remark: number for number, remark in enumerate(dict.fromkeys(filter(None, remarks)), start=1)
        }

    def marked(self, text: str, remark: str) -> str:
        """The text with the mark of its remark: `undecided [1]`."""
        return f"{text} [{self._number_of[remark]}]" if remark else text

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks with their marks, to follow the table."""
        return tuple(f"[{number}] {remark}" for remark, number in self._number_of.items())
