"""The folder of the demo's database, whose server ends with the demo even when its collector could not end it."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from isochrone_client.errors import DemoError

# First as one does, then without waiting for anybody.
_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
_PATIENCE_SECONDS = 15.0
_LOOK_SECONDS = 0.05


@contextmanager
def database_folder(place: Path) -> Iterator[Path]:
    """A new folder in `place` for a collector's embedded PostgreSQL. A server that a killed collector has left running
    over it is ended with the block. Raises `DemoError` when it does not end.

    New for each run: a server removes its socket when it ends, by name, and must not find that of the next one there.
    """
    data = Path(tempfile.mkdtemp(prefix="collector-", dir=place))
    try:
        yield data
    finally:
        server = _Server.left_over(data / "postgres")
        if server is not None:
            server.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A PostgreSQL by its process id, and the folder of its data."""

    pid: int
    cluster: Path

    @classmethod
    def left_over(cls, cluster: Path) -> Self | None:
        """The server that still runs over these data."""
        try:
            pid = int((cluster / "postmaster.pid").read_text().splitlines()[0])
        except (OSError, IndexError, ValueError):
            return None
        server = cls(pid=pid, cluster=cluster)
        return server if server.runs() else None

    def runs(self) -> bool:
        """Whether it lives and is ours: PostgreSQL works in the folder of its data."""
        try:
            return Path(f"/proc/{self.pid}/cwd").readlink() == self.cluster.resolve()
        except OSError:
            return not Path("/proc/self").exists() and self._answers_to_signals()

    def end(self) -> None:
        """End it, and wait until it has. Raises `DemoError`."""
        for how in _SIGNALS:
            with suppress(ProcessLookupError):
                os.kill(self.pid, how)
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < deadline:
                if not self.runs():
                    return
                time.sleep(_LOOK_SECONDS)
        raise DemoError(f"the demo's PostgreSQL (process {self.pid}) does not end", hint=f"end process {self.pid}")

    def _answers_to_signals(self) -> bool:
        """Where there is no /proc: its own file, in a folder of this run alone, says that the number is its own."""
        try:
            os.kill(self.pid, 0)
        except OSError:
            return False
        return (self.cluster / "postmaster.pid").exists()
