"""Forked programs behave like `python -m`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testdata import preforked
from testdata.preforked import Program

MODULE = "isochrone_sim"


@pytest.mark.parametrize("words", [["--version"], ["serve", "--help"], ["serve", "--no-such-option"], ["no-such"]])
def test_output_and_exit_code_are_those_of_the_command(words: list[str]) -> None:
    """A forked program prints what the command prints, on the same streams, and ends with its exit code."""
    real = subprocess.run([sys.executable, "-m", MODULE, *words], capture_output=True, text=True, check=False)
    forked = preforked.run(MODULE, *words)
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)


def test_environment_and_folder_are_its_own(tmp_path: Path) -> None:
    """A forked program has the given environment and working folder."""
    environment = {"ISOCHRONE_COLLECTOR": "127.0.0.1:1", "HOME": str(tmp_path)}
    assert "127.0.0.1:1" in preforked.run("isochrone_client", "targets", env=environment).stderr
    with Program[str](
        *(MODULE, "serve", "--listen", "127.0.0.1:0"), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("{")
        assert Path(f"/proc/{process.pid}/cwd").readlink() == tmp_path
        process.terminate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_a_child_of_the_test(number: signal.Signals) -> None:
    """A forked program is waited for as any child, and its end by a signal is visible."""
    with Program[str](
        MODULE, "serve", "--listen", "127.0.0.1:0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("{")
        stat = Path(f"/proc/{process.pid}/stat").read_text()
        assert int(stat.rpartition(")")[2].split()[1]) == os.getpid()
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(60) == (0 if number is signal.SIGTERM else -number)
