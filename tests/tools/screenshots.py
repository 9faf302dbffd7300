"""Take the screenshots of the documentation, in docs/images, from the live page of a running demo.

usage: PYTHONPATH=tests screenshots.py http://127.0.0.1:4680

`make demo` prints the address; the images look best five minutes after its start. It needs Chromium, and pngquant (both
Debian packages) for small files.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fixtures.browser import NARROW, WIDE, installed, tab_of

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
# Path, width and height in pixels by the names of the images.
SHOTS = {
    "matrix": ("/?window=5m", WIDE, 800),
    "target": ("/target/tencent/hunyuan-turbos?window=5m&baseline=us-east-2", WIDE, 1130),
    "map": ("/map?window=5m&target=moonshot/kimi-k2.5", WIDE, 1000),
    "phone": ("/?window=5m", NARROW, 800),
}
# The page has its first answers by then.
_LOAD_SECONDS = 3.0


def take(address: str) -> None:
    """Write images of the page at an address, with a palette if the program for it is installed."""
    program = installed()
    if program is None:
        sys.exit("error: Chromium is not installed (Debian package: chromium)")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        tab_of(program, Path(profile), "--hide-scrollbars") as tab,
    ):
        for name, (path, width, height) in SHOTS.items():
            tab.open(f"{address.rstrip('/')}{path}", width=width, height=height)
            time.sleep(_LOAD_SECONDS)
            (IMAGES / f"{name}.png").write_bytes(tab.screenshot())
    if shutil.which("pngquant"):
        images = [IMAGES / f"{name}.png" for name in SHOTS]
        subprocess.run(["pngquant", "--force", "--ext", ".png", "--strip", "--speed", "1", *images], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    take(sys.argv[1])
