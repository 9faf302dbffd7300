"""The output of an export: a file that appears complete or not at all, or standard output.

A symbolic link is kept, and its target is written. An existing pipe or device cannot be replaced in one step, so it is
refused.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from isochrone_client.errors import FileError
from isochrone_common.files import sync_folder
from isochrone_wire.text import printable

STDOUT = Path("-")


@contextmanager
def open_output(path: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """A file to write to, moved to `path` when the block ends without an error; until then `path` does not change.

    Raises `FileError` if `path` exists (unless `force`), is not a regular file, or cannot be written, and if standard
    output cannot be written.
    """
    if path in (STDOUT, Path("/dev/stdout")):
        with _stdout() as stdout:
            yield stdout
        return
    _require_writable(path, force=force)
    goal = Path(os.path.realpath(path))
    beside = goal.with_name(f".{goal.name}.{os.urandom(4).hex()}")
    try:
        try:
            with beside.open("xb") as file:
                yield file
                _require_writable(path, force=force)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(goal)
            sync_folder(goal.parent)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}", hint="name another file") from error


class _Terminal:
    """Standard output that is a terminal: of texts in UTF-8 it gets no control characters but ends of lines."""

    def write(self, content: bytes) -> int:
        sys.stdout.buffer.write(printable(content.decode(errors="replace"), keep="\n").encode())
        return len(content)


@contextmanager
def _stdout() -> Iterator[IO[bytes]]:
    try:
        yield cast(IO[bytes], _Terminal()) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(f"cannot write to standard output: {error.strerror or error}") from error


def _require_writable(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise FileError(f"{path} is a folder", hint="name a file in it")
    if os.path.lexists(path) and not force:
        raise FileError(f"{path} already exists", hint="overwrite it with --force")
    if os.path.lexists(os.path.realpath(path)) and not path.is_file():
        raise FileError(f"{path} is not a regular file", hint="name another file, or - for standard output")
