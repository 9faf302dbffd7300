"""Where an export goes: a file that is there whole or not at all, or standard output.

What a link leads to is written, and the link stays. What is there and no regular file, a pipe or a device, cannot be
there whole or not at all, so it is refused.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from isochrone_client.errors import FileError

STDOUT = Path("-")
_NAMES_OF_STDOUT = (STDOUT, Path("/dev/stdout"))


@contextmanager
def open_output(path: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """A file to write to, which is at `path` once the block has ended well; before, nothing there changes.

    Raises `FileError` when there is something already, unless `force`d, when that is no regular file, and when it
    cannot be written.
    """
    if path in _NAMES_OF_STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    _require_writable(path, force=force)
    goal = Path(os.path.realpath(path))
    try:
        with tempfile.NamedTemporaryFile(dir=goal.parent, prefix=f".{goal.name}.", delete=False) as file:
            try:
                yield file
                _require_writable(path, force=force)
                _commit(file, goal)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}", hint="name another file") from error


def _require_writable(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise FileError(f"{path} is a folder", hint="name a file in it")
    if os.path.lexists(path) and not force:
        raise FileError(f"{path} is there already", hint="--force overwrites it")
    if os.path.lexists(os.path.realpath(path)) and not path.is_file():
        raise FileError(f"{path} is no regular file", hint="name another file, or - for standard output")


def _commit(file: "tempfile._TemporaryFileWrapper[bytes]", path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    # A temporary file is for its owner only; this one is to be as readable as any other.
    os.fchmod(file.fileno(), 0o666 & ~_umask())
    Path(file.name).replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    # It can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
