"""Take the screenshots of the documentation from the live page of a running demo.

usage: PYTHONPATH=tests screenshots.py http://127.0.0.1:4680 [FOLDER]

`make demo` prints the address. Each view is taken in a wide and in a narrow window, light and dark, into FOLDER, by
default docs/images. It needs Chromium.
"""

import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from fix_browser import installed, tab_of

ROOT = Path(__file__).resolve().parents[2]
# The paths of the views, by the names of their images.
VIEWS = {"matrix": "/", "map": "/map", "fleet": "/fleet"}
WIDTHS = {"wide": 1280, "narrow": 390}
MODES = {"light": False, "dark": True}
# The page has its first answers by then.
_LOAD_SECONDS = 3.0


def take(address: str, folder: Path) -> list[Path]:
    """Write all images of the page at an address into a folder; return their paths."""
    program = installed()
    if program is None:
        sys.exit("error: Chromium is not installed (Debian package: chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    images = []
    with tempfile.TemporaryDirectory() as profile, tab_of(program, Path(profile)) as tab:
        for (view, path), (size, width), (mode, dark) in product(VIEWS.items(), WIDTHS.items(), MODES.items()):
            tab.open(f"{address.rstrip('/')}{path}", width=width, dark=dark)
            time.sleep(_LOAD_SECONDS)
            images.append(folder / f"{view}-{size}-{mode}.png")
            images[-1].write_bytes(tab.screenshot())
    return images


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    take(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "images")
