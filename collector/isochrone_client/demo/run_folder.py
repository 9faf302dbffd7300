"""A folder for one run of the demo, which nobody else takes meanwhile, and which is gone afterwards."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from isochrone_client.errors import DemoError

_MARK = ".isochrone-demo"


@contextmanager
def run_folder(folder: Path | None, *, keep: bool) -> Iterator[Path]:
    """`folder`, or a new temporary one, for the length of the block; removed at the end unless `keep`.

    Raises `DemoError` for a folder that holds something else than a former demo, or in which a demo is running.
    """
    place = folder or Path(tempfile.mkdtemp(prefix="isochrone-demo-"))
    if place.exists() and not (place / _MARK).exists() and any(place.iterdir()):
        raise DemoError(f"{place} holds something else", hint="name an empty or a new folder with --folder")
    with _held(place):
        _clear(place)
        (place / "logs").mkdir(exist_ok=True)
        try:
            yield place.resolve()
        finally:
            if not keep:
                _clear(place)
                # The mark last: whoever finds it gone may begin at once.
                (place / _MARK).unlink(missing_ok=True)
                with suppress(OSError):
                    place.rmdir()


@contextmanager
def _held(place: Path) -> Iterator[None]:
    """Lock the folder's mark for the block. The kernel lets go of it however this run ends."""
    while True:
        place.mkdir(parents=True, exist_ok=True)
        with (place / _MARK).open("a") as mark:
            try:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                hint = "end it, or name another folder with --folder"
                raise DemoError(f"a demo is running in {place}", hint=hint) from error
            if _is_there(mark, place):
                yield
                return


def _is_there(mark: IO[str], place: Path) -> bool:
    """Whether the mark is still the folder's: a demo that ended just now took its own with it."""
    try:
        return os.path.samestat(os.fstat(mark.fileno()), (place / _MARK).stat())
    except FileNotFoundError:
        return False


def _clear(place: Path) -> None:
    """Remove all but the mark."""
    for path in place.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _MARK:
            path.unlink(missing_ok=True)
