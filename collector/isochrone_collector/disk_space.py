"""Levels of free space on the disk of the embedded PostgreSQL. Pure; sizes are bytes.

PostgreSQL ends when a write to its log meets a full disk, so pushes are refused before. Meanwhile samples stay in the
spools of the agents.
"""

from dataclasses import dataclass
from enum import IntEnum

# On large disks a share of them would be more than is ever needed: the log of PostgreSQL has at most 4 GB.
_MOST_BYTES = 16 << 30


class DiskLevel(IntEnum):
    """The free space: enough, little (an alert), too little for backlogs, too little for any push."""

    ENOUGH = 0
    LOW = 1
    NO_BACKLOG = 2
    FULL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """The free bytes and the size of a file system; `low_percent` of it, but at most 16 GiB, count as little."""

    free_bytes: int
    size_bytes: int
    low_percent: float

    @property
    def level(self) -> DiskLevel:
        """Return the level: little, less than half of that, less than a quarter of it."""
        low_bytes = min(self.size_bytes * self.low_percent / 100, _MOST_BYTES)
        steps = (DiskLevel.FULL, low_bytes / 4), (DiskLevel.NO_BACKLOG, low_bytes / 2), (DiskLevel.LOW, low_bytes)
        return next((level for level, least_bytes in steps if self.free_bytes < least_bytes), DiskLevel.ENOUGH)

    def __str__(self) -> str:
        percent = 100 * self.free_bytes / max(self.size_bytes, 1)
        return f"{self.free_bytes / (1 << 30):.1f} GiB ({percent:.0f} %) free"
