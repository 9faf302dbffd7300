"""Files beside the spool: the lock that admits one agent, and a reserve of disk space."""

import contextlib
import fcntl
import os
import pwd
from pathlib import Path

from isochrone_agent.clock import now_at
from isochrone_agent.errors import SpoolError
from isochrone_wire.json_format import rfc3339

RESERVE_BYTES = 2_000_000
# The reserve is taken only while this many times its size is free, so that a disk just freed is not filled again.
_MIN_FREE_RESERVES = 4


class LockFile:
    """An exclusive lock on the spool at `path`, held until `release` or the end of the process. Raises `SpoolError`."""

    def __init__(self, path: Path) -> None:
        _check_owner(path)
        # Never removed: a process that had opened the removed file would hold a lock that no other process sees.
        self._file = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 200, 0).decode(errors="replace").strip()
            os.close(self._file)
            hint = "stop it, or give this agent another folder with --data-dir"
            raise SpoolError(f"the spool {path} is in use by {holder or 'another agent'}", hint=hint) from None
        # The lock also works on a full disk, where the name of its holder cannot be written.
        with contextlib.suppress(OSError):
            os.truncate(self._file, 0)
            os.pwrite(self._file, f"the agent with pid {os.getpid()}, since {rfc3339(now_at())}\n".encode(), 0)

    def release(self) -> None:
        """Let another agent open the spool."""
        os.close(self._file)


class DiskReserve:
    """A file of `RESERVE_BYTES` beside `spool`, deleted when the disk is full: a transaction that frees space needs
    space itself.

    Methods raise `OSError` only if the folder is gone.
    """

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".reserve")
        self._exists = False

    def allocate(self) -> bool:
        """Allocate the reserve if it is missing and the disk has enough room; return whether it exists."""
        if self._exists:
            return True
        with contextlib.suppress(OSError):
            self._exists = self._path.exists() and self._path.stat().st_size == RESERVE_BYTES
            if not self._exists and _free_bytes(self._path.parent) > _MIN_FREE_RESERVES * RESERVE_BYTES:
                self._write()
        return self._exists

    @property
    def is_needed(self) -> bool:
        """True if the disk has less free space than the reserve takes."""
        return _free_bytes(self._path.parent) < RESERVE_BYTES

    def release(self) -> None:
        """Return the space to the disk."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._exists = False

    def _write(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        self._exists = True


def _free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _check_owner(path: Path) -> None:
    """Refuse the spool of another user: an agent run by root would leave files that the other agent cannot open."""
    for place in (path, path.parent):
        if not place.exists():
            continue
        owner, user = place.stat().st_uid, os.geteuid()
        if owner != user and (place == path or user == 0):
            raise SpoolError(
                f"{place} belongs to {_user_name(owner)}, and this agent runs as {_user_name(user)}",
                hint=f"run the agent as {_user_name(owner)}, or give it another folder with --data-dir",
            )
        return


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
