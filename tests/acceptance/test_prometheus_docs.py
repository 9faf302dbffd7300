"""docs/prometheus.md keeps its word: the commands of its first section lead to a median in Prometheus."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testdata.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PORTS = ("8081", "9464", "9090")
SECTION = (ROOT / "docs" / "prometheus.md").read_text().split("\n## ")[1]

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a checkout, with the commands of this one."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    commands = tmp_path / "bin"
    commands.mkdir()
    for command, module in (("isochrone-sim", "isochrone_sim"), ("isochrone-agent", "isochrone_agent")):
        (commands / command).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (commands / command).chmod(0o755)
    return tmp_path


@pytest.fixture
def blocks() -> list[str]:
    """The commands of the section, with ports that are free."""
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in PORTS]
    text = SECTION
    for written, port in zip(PORTS, free, strict=True):
        text = text.replace(f"127.0.0.1:{written}", f"127.0.0.1:{port}")
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def started(folder: Path, blocks: list[str]) -> Iterator[Path]:
    """The programs of all blocks but the last one, running; yields their log."""
    log = folder / "log"
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(folder / "data"),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-ec", "\n".join([*blocks[:-1], "wait"])],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def test_five_minutes_lead_to_a_median(folder: Path, blocks: list[str], started: Path) -> None:
    """The query of the page returns the median time to first token of the plan's target."""
    assert len(blocks) == 3
    answers = []

    def is_answered() -> bool:
        done = subprocess.run(["bash", "-c", blocks[-1]], cwd=folder, capture_output=True, text=True, check=False)
        answers.append(done.stdout)
        return "zhipu/glm-5" in done.stdout and "NaN" not in done.stdout

    eventually(60, is_answered, "a median")
    assert re.search(r'region="local".*=> \d+\.\d+', answers[-1]), answers[-1] + started.read_text()[-2000:]
    assert "SUCCESS" in started.read_text()
