"""Files that survive a crash: a reader sees the old file or the new one, never a part of it."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file, with the permissions `mode`, in place of what is there, and wait until it is on disk.

    The folder must exist. Raises `OSError`.
    """
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


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk. Raises `OSError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
