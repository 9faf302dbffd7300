"""The Makefile on a machine where nothing is installed yet."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
ROOT = Path(__file__).parents[2]
FAILS = "#!/bin/sh\nexit 1\n"
CREATES = """#!/bin/sh
[ "$1" = -c ] || echo "$@" >> created
mkdir -p .venv/bin
touch .venv/bin/python
"""
IS_OLD = f"""#!/bin/sh
[ "$1" = -c ] && exec {sys.executable} -c 'import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])' "$2"
echo "$@" >> created
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(folder: Path) -> subprocess.CompletedProcess[str]:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    command = ["make", ".venv/.installed", "PYTHON=./python", "INSTALL=true"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("left", [FAILS, IS_OLD])
def test_an_unusable_environment_is_created_again(tmp_path: Path, left: str) -> None:
    """An environment without pip, or of an old Python, is replaced by the next try."""
    program(tmp_path / "python", CREATES)
    program(tmp_path / ".venv" / "bin" / "python", left)
    assert make(tmp_path).returncode == 0
    assert (tmp_path / "created").read_text() == "-m venv --clear .venv\n"


def test_an_old_python_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    """With a Python that is too old, one sentence states the version needed and how to name another one."""
    program(tmp_path / "python", IS_OLD)
    done = make(tmp_path)
    assert done.returncode
    assert "needs Python 3.11 or newer; name one with PYTHON=" in done.stderr
    assert not (tmp_path / "created").exists()
