"""Files that may change while the agent runs."""

from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[tuple[int, int, int] | None, ...]


class FileWatch:
    """Some files, and whether they have changed since somebody looked. A file that is not there may come."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        self._seen = self._stamps()

    def changed(self) -> bool:
        """Whether any was replaced, written, made or removed since the last call, or since the beginning."""
        before, self._seen = self._seen, self._stamps()
        return before != self._seen

    def _stamps(self) -> Stamp:
        return tuple(_stamp(path) for path in self.paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
