"""The journal of an agent under test: a line per sample, kept or refused by the spool."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from isochrone_wire.model import Sample


class Word(StrEnum):
    """Whether the spool has committed a sample, or has said that it could not."""

    KEPT = "kept"
    REFUSED = "refused"


class Key(NamedTuple):
    """Which sample: within one vantage no two have the same round of the same target."""

    target_id: int
    round_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What happened to a sample when; `at_ns` is CLOCK_MONOTONIC, which the processes of a machine share."""

    word: Word
    at_ns: int
    key: Key


def line(word: Word, *, at_ns: int, sample: Sample) -> bytes:
    """The line to write."""
    return f"{word.value} {at_ns} {sample.target_id} {sample.round_at}\n".encode()


def read(file: Path) -> list[Entry]:
    """All entries; a last line without its end is not there yet."""
    return list(_entries(file.read_text())) if file.exists() else []


def _entries(text: str) -> Iterator[Entry]:
    for row in text[: text.rfind("\n") + 1].splitlines():
        word, at_ns, target_id, round_at = row.split()
        yield Entry(word=Word(word), at_ns=int(at_ns), key=Key(int(target_id), int(round_at)))
