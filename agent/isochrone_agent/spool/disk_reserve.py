"""Some bytes of the disk held back beside the spool, to be given up when it is full: a transaction that makes room
needs room itself.
"""

import contextlib
import os
from pathlib import Path

RESERVE_BYTES = 2_000_000
# Taken only from plenty, so that a disk that was full is not at once full again.
_PLENTY = 4


class DiskReserve:
    """A file beside `spool` that holds nothing but its place. Nothing here raises but for a folder that is gone."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".reserve")
        self._kept = False

    def keep(self) -> bool:
        """See to it that the reserve is there, if the disk has plenty; whether it is."""
        if self._kept:
            return True
        with contextlib.suppress(OSError):
            self._kept = self._path.exists() and self._path.stat().st_size == RESERVE_BYTES
            disk = os.statvfs(self._path.parent)
            if not self._kept and disk.f_bavail * disk.f_frsize > _PLENTY * RESERVE_BYTES:
                self._write()
        return self._kept

    @property
    def is_needed(self) -> bool:
        """Whether the disk has less room than the reserve takes."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize < RESERVE_BYTES

    def give(self) -> None:
        """Give the place back to the disk."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._kept = False

    def _write(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        self._kept = True
