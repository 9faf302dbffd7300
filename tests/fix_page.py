"""Fixture for the JavaScript of the live page: its modules beside their tests, as Node.js and the compiler need
them.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from fix_node import VARIABLE, run

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "collector" / "isochrone_collector" / "page" / "static"
TESTS = ROOT / "tests" / "unit" / "collector" / "page"


@dataclass(frozen=True, slots=True)
class PageModules:
    """A folder with the modules in `static`, their tests and the configuration of the compiler."""

    folder: Path

    def test(self) -> str:
        """Run the tests and return what Node.js printed; fail if one fails."""
        return run(
            "node", "--test", *sorted(path.name for path in self.folder.glob("*.test.js")), folder=self.folder
        ).stdout

    def check_types(self) -> None:
        """Check the types in the comments of the modules; fail on an error. Skipped without the compiler."""
        named = os.environ.get(VARIABLE)
        if not named:
            pytest.skip(f"{VARIABLE} is not set; .ci/node-modules creates the folder")
        (self.folder / "node_modules").symlink_to(Path(named).resolve())
        run("node", "node_modules/typescript/bin/tsc", "--project", ".", folder=self.folder)


@pytest.fixture
def page_modules(tmp_path: Path) -> PageModules:
    """The modules of the page and their tests."""
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed (Debian package: nodejs)")
    shutil.copytree(STATIC, tmp_path / "static")
    for path in (*TESTS.glob("*.test.js"), TESTS / "tsconfig.json"):
        shutil.copy(path, tmp_path)
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    return PageModules(tmp_path)
