"""The folder of one run of the demo: locked while it runs and removed afterwards."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from isochrone_client.errors import DemoError

_LOCK_FILE = ".isochrone-demo"


@contextmanager
def run_folder(folder: Path | None, *, keep: bool) -> Iterator[Path]:
    """`folder`, or a new temporary one, for the block; removed at the end unless `keep`.

    Raises `DemoError` if the folder holds files of anything but an earlier demo, or if a demo is running in it.
    """
    root = folder or Path(tempfile.mkdtemp(prefix="isochrone-demo-"))
    if root.exists() and not (root / _LOCK_FILE).exists() and any(root.iterdir()):
        raise DemoError(f"{root} holds files not from a demo", hint="use an empty or new folder with --folder")
    with _locked(root):
        _remove_contents(root)
        (root / "logs").mkdir(exist_ok=True)
        try:
            yield root.resolve()
        finally:
            if not keep:
                _remove_contents(root)
                # The lock file is removed last, because without it another demo may start.
                (root / _LOCK_FILE).unlink(missing_ok=True)
                with suppress(OSError):
                    root.rmdir()


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock file of the folder for the block. The kernel releases the lock however this run ends."""
    while True:
        root.mkdir(parents=True, exist_ok=True)
        with (root / _LOCK_FILE).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                hint = "stop it, or use another folder with --folder"
                raise DemoError(f"a demo is running in {root}", hint=hint) from error
            if _is_current(lock, root):
                yield
                return


def _is_current(lock: IO[str], root: Path) -> bool:
    """Check that the open lock file is still the one in the folder: a demo that has just ended removed its own."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), (root / _LOCK_FILE).stat())
    except FileNotFoundError:
        return False


def _remove_contents(root: Path) -> None:
    """Remove everything except the lock file."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK_FILE:
            path.unlink(missing_ok=True)
