"""The Makefile on a machine where nothing is installed yet."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUB = """#!/bin/sh
echo "$@" >> created
mkdir -p .venv/bin
touch .venv/bin/python
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_an_environment_without_pip_is_created_again(tmp_path: Path) -> None:
    """After a failure to create the environment, as where the package python3-venv is missing, the next try creates it
    again.
    """
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(STUB)
    (tmp_path / "python").chmod(0o755)
    interpreter = tmp_path / ".venv" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text("#!/bin/sh\nexit 1\n")
    interpreter.chmod(0o755)
    command = ["make", ".venv/.installed", "PYTHON=./python", "INSTALL=true"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "created").read_text() == "-m venv .venv\n"
