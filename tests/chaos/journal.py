"""The journal of an agent under test: one line per sample that the spool committed or refused."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from isochrone_wire.model import Sample


class Status(StrEnum):
    """The result of recording a sample in the spool."""

    KEPT = "kept"
    REFUSED = "refused"


class Key(NamedTuple):
    """The identity of a sample: within a vantage, target and round are unique."""

    target_id: int
    round_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One journal line; `at_ns` is CLOCK_MONOTONIC, which all processes of a machine share."""

    status: Status
    at_ns: int
    key: Key


def line(status: Status, *, at_ns: int, sample: Sample) -> bytes:
    """Return the line for a sample."""
    return f"{status.value} {at_ns} {sample.target_id} {sample.round_at}\n".encode()


def read(file: Path) -> list[Entry]:
    """Return all entries, without an incomplete last line."""
    return list(_entries(file.read_text())) if file.exists() else []


def _entries(text: str) -> Iterator[Entry]:
    for row in text[: text.rfind("\n") + 1].splitlines():
        status, at_ns, target_id, round_at = row.split()
        yield Entry(status=Status(status), at_ns=int(at_ns), key=Key(int(target_id), int(round_at)))
