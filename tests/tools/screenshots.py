"""Take the screenshots of the documentation from the live page of a running demo.

usage: PYTHONPATH=tests screenshots.py http://127.0.0.1:4680 [FOLDER]

`make demo` prints the address; the images look best five minutes after its start. Without FOLDER they are those of
docs/images. With it, each view is taken in a wide and in a narrow window, light and dark, to look at. It needs
Chromium, and pngquant (both Debian packages) for small files.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from fixtures.browser import installed, tab_of

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
WIDE, NARROW = 1280, 390
_BASELINE = "us-east-2"
# The paths of the views.
PATHS = {
    "matrix": "/?window=5m",
    "values": "/?window=5m&baseline=none",
    "target": f"/target/tencent/hunyuan-turbos?window=5m&baseline={_BASELINE}",
    "routes": "/routes?window=5m",
    "route": "/routes?window=5m&region=eu-central-1&route=chat",
    "map": "/map?window=5m&target=moonshot/kimi-k2.5",
    "fleet": "/fleet?window=5m",
    "status": "/status",
}
# The page has its first answers by then.
_LOAD_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Shot:
    """One image: a view in a window, whose size is in pixels."""

    view: str
    width: int = WIDE
    height: int = 800
    dark: bool = False


# The images of the documentation, by their names.
DOCUMENTED = {
    "matrix": Shot("matrix"),
    "target": Shot("target", height=1130),
    "map": Shot("map", height=1000),
    "phone": Shot("matrix", NARROW),
}


def every_shot() -> dict[str, Shot]:
    """All views in both widths and in both colour schemes."""
    sizes, modes = {"wide": WIDE, "narrow": NARROW}, {"light": False, "dark": True}
    return {
        f"{view}-{size}-{mode}": Shot(view, width, 2400, dark)
        for view, (size, width), (mode, dark) in product(PATHS, sizes.items(), modes.items())
    }


def take(address: str, shots: Mapping[str, Shot], folder: Path) -> list[Path]:
    """Write images of the page at an address into a folder; return their paths."""
    program = installed()
    if program is None:
        sys.exit("error: Chromium is not installed (Debian package: chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    images = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        tab_of(program, Path(profile), "--hide-scrollbars") as tab,
    ):
        for name, shot in shots.items():
            url = f"{address.rstrip('/')}{PATHS[shot.view]}"
            tab.open(url, width=shot.width, height=shot.height, dark=shot.dark)
            time.sleep(_LOAD_SECONDS)
            images.append(folder / f"{name}.png")
            images[-1].write_bytes(tab.screenshot())
    return images


def compress(images: list[Path]) -> None:
    """Reduce the images to a palette, if the program for it is installed."""
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--ext", ".png", "--strip", "--speed", "1", *images], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        compress(take(sys.argv[1], DOCUMENTED, IMAGES))
    elif len(sys.argv) == 3:
        take(sys.argv[1], every_shot(), Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
