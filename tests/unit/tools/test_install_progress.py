"""The progress of an installation, read from what pip prints."""

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

from testdata.pseudo_terminal import CTRL_C, PseudoTerminal
from tools import install_progress
from tools.install_progress import Progress

TOOL = Path(install_progress.__file__)

OUTPUT = """\
Obtaining file:///home/ida/isochrone
  Installing build dependencies: started
  Installing build dependencies: finished with status 'done'
Collecting click>=8.1 (from isochrone==0.1.0)
  Downloading click-8.1.8-py3-none-any.whl (98 kB)
Collecting numpy>=2.0 (from isochrone==0.1.0)
  Downloading numpy-2.2.6-cp311-cp311-manylinux_2_17_x86_64.whl (16.8 MB)
Collecting typing-extensions (from alembic)
  Using cached typing_extensions-4.13.2-py3-none-any.whl.metadata (3.0 kB)
Collecting typing_extensions (from grpcio)
  Downloading typing_extensions-4.13.2-py3-none-any.whl (1.25 MB)
Installing collected packages: typing-extensions, numpy, click, isochrone
Successfully installed click-8.1.8 isochrone-0.1.0 numpy-2.2.6 typing-extensions-4.13.2
""".splitlines(keepends=True)


def test_packages_are_counted_while_pip_looks_for_them() -> None:
    """Packages are counted while pip looks for them and installs them; if it fails, its last lines tell why."""
    progress = Progress()
    progress.read(OUTPUT[:3])
    assert progress.describe(0) == "starting"
    progress.read(OUTPUT[3:11])
    assert progress.describe(0) == "packages: 3 found, 18 MB to download"
    progress = Progress()
    progress.read(OUTPUT)
    assert progress.describe(2) == "4 packages … 2/4"
    assert progress.describe(9) == "4 packages … 4/4"
    progress = Progress()
    progress.read([f"{number}\n" for number in range(100)] + ["ERROR: no matching distribution\n"])
    assert len(progress.tail) <= 31
    assert progress.tail[-1].startswith("ERROR")


def test_what_pip_installed_is_compiled(tmp_path: Path) -> None:
    """Modules get their bytecode after the installation, and not from pip."""
    venv.create(tmp_path / "venv")
    [packages] = (tmp_path / "venv" / "lib").glob("*/site-packages")
    pip = f"import pathlib, sys; pathlib.Path({str(packages)!r}, 'example.py').touch()"
    (tmp_path / "pip.py").write_text(f"{pip}; sys.exit('--no-compile' not in sys.argv)")
    command = [str(tmp_path / "venv" / "bin" / "python"), str(TOOL), "collector", "about 360 MB"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, check=True)
    assert len(list(packages.glob("__pycache__/example.*.pyc"))) == 1


def test_the_line_fits_and_an_interrupt_is_one_sentence(tmp_path: Path) -> None:
    """On a narrow terminal the progress stays on one line, and after Ctrl-C there is no traceback."""
    (tmp_path / "pip.py").write_text("import time; print('Collecting click', flush=True); time.sleep(60)")
    command = [sys.executable, str(TOOL), "collector,embedded", "about 360 MB"]
    with PseudoTerminal(command, columns=40, lines=12, PYTHONPATH=str(tmp_path)) as terminal:
        terminal.wait_for(lambda text: "installing" in text, 20, "the progress")
        time.sleep(1)
        assert terminal.scrollback.count("installing") == 1
        terminal.press(CTRL_C)
        assert terminal.wait(20) == 1
        terminal.wait_for(lambda text: "interrupted" in text, 20, "the sentence")
        assert "Traceback" not in terminal.scrollback
