"""A folder for one run of the demo, gone afterwards."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isochrone_client.errors import DemoError

_MARK = ".isochrone-demo"


@contextmanager
def scratch_folder(folder: Path | None, *, keep: bool) -> Iterator[Path]:
    """`folder`, or a new temporary one, for the length of the block; removed at the end unless `keep`.

    Raises `DemoError` for a folder that holds something else than a former demo.
    """
    place = folder or Path(tempfile.mkdtemp(prefix="isochrone-demo-"))
    if folder is not None and folder.exists() and not (folder / _MARK).exists() and any(folder.iterdir()):
        raise DemoError(f"{folder} holds something else", hint="name an empty or a new folder with --folder")
    shutil.rmtree(place, ignore_errors=True)
    (place / "logs").mkdir(parents=True)
    (place / _MARK).touch()
    try:
        yield place.resolve()
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
