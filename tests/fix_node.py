"""Fixture for the TypeScript client: its package and its tests, compiled with the packages of npm that they use.

The packages are in a folder that `.ci/node-modules typescript FOLDER` creates, and the variable
`ISOCHRONE_TEST_NODE_MODULES` names its `node_modules`. Without it, the tests are skipped.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "ISOCHRONE_TEST_NODE_MODULES"
CLIENTS = Path(__file__).parents[1] / "clients"
LIMIT_S = 300.0
OLDEST_NODE = 20


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command; fail the test if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@dataclass(frozen=True, slots=True)
class NodePackage:
    """The package in `folder`, with its compiled tests in `build/test`."""

    folder: Path

    def tsc(self, *options: str, folder: Path | None = None) -> None:
        """Run the compiler; fail the test if it reports anything."""
        compiler = self.folder / "node_modules" / "typescript" / "bin" / "tsc"
        run("node", str(compiler), *options, folder=folder or self.folder)

    def install_into(self, folder: Path) -> None:
        """Make a folder a project with the package, as `npm install` does, and with the others that it is used with."""
        modules, ours = folder / "node_modules", self.folder / "node_modules"
        installed = modules / "@isochrone" / "routing"
        installed.mkdir(parents=True)
        packed = run("npm", "pack", "--silent", folder=self.folder).stdout.split()[-1]
        run("tar", "xzf", str(self.folder / packed), "--strip-components=1", folder=installed)
        for path in (*ours.glob("[!@.]*"), *ours.glob("@*/*")):
            place = modules / path.relative_to(ours)
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(path.resolve())


@pytest.fixture(scope="session")
def node_package(tmp_path_factory: pytest.TempPathFactory) -> NodePackage:
    """The TypeScript client, compiled."""
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} is not set; .ci/node-modules creates the folder")
    if not (Path(named) / "ai").is_dir():
        pytest.skip(f"{VARIABLE}={named} has no package ai; run .ci/node-modules")
    if (version := _node_version()) < OLDEST_NODE:
        pytest.skip(f"needs Node.js {OLDEST_NODE} or later, and this is {version}")
    clients = tmp_path_factory.mktemp("clients")
    shutil.copy(CLIENTS / "cases.json", clients)
    ignored = shutil.ignore_patterns("node_modules", "dist", "build")
    package = NodePackage(Path(shutil.copytree(CLIENTS / "typescript", clients / "typescript", ignore=ignored)))
    (package.folder / "node_modules").symlink_to(Path(named).resolve())
    package.tsc("--project", "test")
    return package


def _node_version() -> int:
    """The major version of Node.js, 0 without it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return 0
    return int(run("node", "--version", folder=CLIENTS).stdout.removeprefix("v").split(".")[0])
