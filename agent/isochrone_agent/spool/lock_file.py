"""One agent to a spool: the second is refused, and told who the first is."""

import contextlib
import fcntl
import os
import pwd
from pathlib import Path

from isochrone_agent.clock import now_at
from isochrone_agent.errors import SpoolError
from isochrone_wire.json_format import rfc3339


class LockFile:
    """Holds the lock beside `path` from now on until `release` or the end of the process. Raises `SpoolError`."""

    def __init__(self, path: Path) -> None:
        _refuse_foreign(path)
        # Never removed: whoever waited for a removed file would hold a lock nobody else sees.
        self._file = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 200, 0).decode(errors="replace").strip()
            os.close(self._file)
            hint = "stop it, or give this agent a folder of its own with --data-dir"
            raise SpoolError(f"the spool {path} is in use by {holder or 'another agent'}", hint=hint) from None
        # On a full disk the lock holds all the same, without a name.
        with contextlib.suppress(OSError):
            os.truncate(self._file, 0)
            os.pwrite(self._file, f"the agent with pid {os.getpid()}, since {rfc3339(now_at())}\n".encode(), 0)

    def release(self) -> None:
        """Let another agent have it."""
        os.close(self._file)


def _refuse_foreign(path: Path) -> None:
    """An agent that is root could write another's spool, and leave files there that the other cannot."""
    for place in (path, path.parent):
        if not place.exists():
            continue
        owner, here = place.stat().st_uid, os.geteuid()
        if owner != here and (place == path or here == 0):
            raise SpoolError(
                f"{place} belongs to {_name(owner)}, and this agent runs as {_name(here)}",
                hint=f"run the agent as {_name(owner)}, or give it a folder of its own with --data-dir",
            )
        return


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
