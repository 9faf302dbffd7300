"""Files that survive a crash: a reader sees the old file or the new one, never a part of it; watched files, and `~`."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

NO_HOME = "/nonexistent"
"""The home folder of a user without one, as in Debian's list of users: what is read there is absent."""


def expand_home(path: str | Path) -> Path:
    """Replace a leading `~` by the home folder of the user, who may be unknown to the system and have none."""
    expanded = os.path.expanduser(path)  # noqa: PTH111  # Path.expanduser raises for such a user
    return Path(f"{NO_HOME}{expanded[1:]}" if expanded == "~" or expanded.startswith("~/") else expanded)


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file, with the permissions `mode`, and wait until it is on disk. Raises `OSError`."""
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def private_files() -> Iterator[None]:
    """Create files, such as a Unix socket, for this user only, whatever the environment's mask is."""
    usual = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(usual)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk. Raises `OSError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


Stamp = tuple[tuple[int, int, int] | None, ...]


class FileWatch:
    """A set of files to watch for changes by polling. A file may be missing."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        self._seen = self._stamps()

    def changed(self) -> bool:
        """Return whether any file was created, written, replaced or removed since the last call, or since the start."""
        before, self._seen = self._seen, self._stamps()
        return before != self._seen

    def _stamps(self) -> Stamp:
        return tuple(_stamp(path) for path in self.paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
