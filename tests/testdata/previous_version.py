"""The previous version of the software: the newest commit with an earlier schema, unpacked from the history."""

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("proto", "agent", "collector", "migrations")
_REVISIONS = "migrations/isochrone_migrations/versions/"
_SCRIPT = """\
import os, runpy, sys
sys.path[:0] = folders = {folders!r}
os.environ["PYTHONPATH"] = os.pathsep.join(folders)  # for its child processes
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def unpack(folder: Path) -> Path:
    """Write the code of the previous version into `folder` and return it. Skips the test without the history."""
    commit = next(_earlier_commits(), None)
    if commit is None:
        pytest.skip("the history has no commit with an earlier schema: a shallow clone, or no repository")
    archive = io.BytesIO(_git("archive", "--format=tar", commit, *_PACKAGES))
    with tarfile.open(fileobj=archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def script(code: Path, module: str) -> Path:
    """Return a script that runs a module of the unpacked code."""
    file = code / f"{module}.py"
    file.write_text(_SCRIPT.format(folders=[str(code / name) for name in _PACKAGES], module=module))
    return file


def _earlier_commits() -> Iterator[str]:
    """Yield the commits before changes of the migrations whose newest revision is an earlier one, newest first."""
    newest = max(_revisions("HEAD"), default="")
    for changed in _git("log", "--format=%H", "--", _REVISIONS).decode().split():
        found = _revisions(f"{changed}^")
        # Two revisions with one number were repaired before a release.
        if found and max(found) < newest and len(found) == len(set(found)):
            yield f"{changed}^"


def _revisions(commit: str) -> list[str]:
    names = _git("ls-tree", "--name-only", commit, _REVISIONS).decode().split()
    return [Path(name).name.partition("_")[0] for name in names if Path(name).name.startswith("v")]


def _git(*words: str) -> bytes:
    """Return the output of a command; empty if it fails."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""
