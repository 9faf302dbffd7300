"""Detection of files that change while the agent runs, by modification time, inode and size."""

from collections.abc import Iterable
from pathlib import Path

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
