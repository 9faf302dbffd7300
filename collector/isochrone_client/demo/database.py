"""The data folder of the demo's database; its server is stopped even if the collector was killed, and at the latest by
the next demo if both were.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from isochrone_client.errors import DemoError

# A fast shutdown, then an immediate one.
_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
_STOP_TIMEOUT_SECONDS = 15.0
_POLL_SECONDS = 0.05
_PREFIX = "collector-"
# The collector makes a folder of this name for the socket if the path of its data folder is too long.
_SOCKET_PREFIX = "isochrone-pg-"


@contextmanager
def database_folder(root: Path) -> Iterator[Path]:
    """A new folder in `root` for a collector's embedded PostgreSQL. At the end of the block, a server that a killed
    collector left running is stopped. Raises `DemoError` if it does not stop.

    Each run has a new folder, because a stopping server removes its socket by name: in the same folder it could remove
    that of the next server.
    """
    data = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    try:
        yield data
    finally:
        stop_servers(root)


def stop_servers(root: Path) -> None:
    """Stop every server that still runs on a data folder in `root`. Raises `DemoError` if one does not stop."""
    for data in root.glob(f"{_PREFIX}*"):
        server = _Server.find(data / "postgres")
        if server is not None:
            server.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A PostgreSQL server: its process id, its data folder and the folder of its socket."""

    pid: int
    cluster: Path
    socket_folder: Path

    @classmethod
    def find(cls, cluster: Path) -> Self | None:
        """The server that still runs on the data folder `cluster`, if any."""
        try:
            lines = (cluster / "postmaster.pid").read_text().splitlines()
            server = cls(pid=int(lines[0]), cluster=cluster, socket_folder=Path(lines[4]))
        except (OSError, IndexError, ValueError):
            return None
        return server if server.runs() else None

    def runs(self) -> bool:
        """Check that the process is this server: PostgreSQL's working directory is its data folder."""
        try:
            return Path(f"/proc/{self.pid}/cwd").readlink() == self.cluster.resolve()
        except OSError:
            return not Path("/proc/self").exists() and self._answers_to_signals()

    def end(self) -> None:
        """Stop the server and wait for its end. Raises `DemoError`."""
        for signal_number in _SIGNALS:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)
            deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
            while time.monotonic() < deadline:
                if not self.runs():
                    self._remove_socket_folder()
                    return
                time.sleep(_POLL_SECONDS)
        raise DemoError(f"the demo's PostgreSQL (process {self.pid}) does not stop", hint=f"kill process {self.pid}")

    def _remove_socket_folder(self) -> None:
        if self.socket_folder.name.startswith(_SOCKET_PREFIX):
            shutil.rmtree(self.socket_folder, ignore_errors=True)

    def _answers_to_signals(self) -> bool:
        """The check without /proc: the pid file is in a folder that only this run uses, so the pid is the server's."""
        try:
            os.kill(self.pid, 0)
        except OSError:
            return False
        return (self.cluster / "postmaster.pid").exists()
