"""The journal of an agent under test: one line per sample that the spool committed or refused, and in another file one
per acknowledged batch.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from isochrone_wire.model import Sample

FILE = "journal"
ACKNOWLEDGED = "acknowledged"


class Status(StrEnum):
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
    return f"{status.value} {at_ns} {sample.target_id} {sample.round_at}\n".encode()


def read(home: Path) -> list[Entry]:
    return list(map(_entry, _lines(home / FILE)))


def acknowledged_ns(home: Path) -> list[int]:
    """Return the instants of CLOCK_MONOTONIC at which batches of the agent in `home` were acknowledged."""
    return list(map(int, _lines(home / ACKNOWLEDGED)))


def _lines(file: Path) -> list[str]:
    """Return all lines, without an incomplete last one."""
    text = file.read_text() if file.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def _entry(row: str) -> Entry:
    status, at_ns, target_id, round_at = row.split()
    return Entry(status=Status(status), at_ns=int(at_ns), key=Key(int(target_id), int(round_at)))
