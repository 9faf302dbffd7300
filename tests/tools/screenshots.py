"""Pictures of every view of a live page, wide and narrow, light and dark.

`PYTHONPATH=tests python -m tools.screenshots http://127.0.0.1:4680 FOLDER` takes them of a collector that asks for no
login, such as the demo's. It prints what is cut off.
"""

import json
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from fixtures.browser import NARROW, WIDE, installed, tab_of

READY = "document.querySelector('main h1') && !document.querySelector('.waiting, [aria-busy=true]')"
TALLEST = 2_600


def paths(base: str) -> dict[str, str]:
    """Return the addresses of the views by their names, with a target and a route of the plan."""

    def ask(path: str) -> dict[str, Any]:
        with urlopen(f"{base}{path}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    target, tables = ask("/v1/targets")["rows"][0]["name"], ask("/v1/routes")["tables"]
    route = f"?region={tables[0]['client_region']}&route={tables[0]['route']}" if tables else ""
    views = {name: f"/{name}" for name in ("map", "requests", "fleet", "status")}
    return {
        "matrix": "/",
        "values": "/?baseline=none",
        "target": f"/target/{quote(target)}",
        "routes": f"/routes{route}",
        **views,
    }


def main(base: str, folder: Path) -> int:
    """Write the pictures; return 1 if something is cut off. Raises `SystemExit` without a browser."""
    program = installed()
    if program is None:
        raise SystemExit("Chromium is not installed (Debian package: chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    cut: list[object] = []
    with tempfile.TemporaryDirectory() as profile, tab_of(program, Path(profile)) as tab:
        for (name, path), width, dark in product(paths(base).items(), (WIDE, NARROW), (False, True)):
            tab.open(f"{base}{path}", width=width, dark=dark)
            tab.until(READY, seconds=30)
            tab.resize(width, min(tab.evaluate("document.documentElement.scrollHeight"), TALLEST))
            file = folder / f"{name}-{width}-{'dark' if dark else 'light'}.png"
            file.write_bytes(tab.screenshot())
            cut += [] if dark else [(file.name, one) for one in tab.cut_off()]
    sys.stdout.write("\n".join([*map(str, cut), f"pictures in {folder}\n"]))
    return 1 if cut else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].rstrip("/"), Path(sys.argv[2])))
