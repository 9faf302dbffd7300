"""docs/prometheus.md keeps its word: the commands of its first section lead to a median in Prometheus."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testdata.documented_commands import blocks_of, make_checkout, running, section, unused_ports, with_ports
from testdata.waiting import eventually

PORTS = ("8081", "9464", "9090")
SECTION = section("prometheus.md", "Prometheus in five minutes")

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a checkout, with the commands of this one."""
    make_checkout(tmp_path)
    return tmp_path


@pytest.fixture
def blocks() -> list[str]:
    """The commands of the section, with ports that are free."""
    return blocks_of(with_ports(SECTION, unused_ports(PORTS)))


@pytest.fixture
def started(folder: Path, blocks: list[str]) -> Iterator[Path]:
    """The programs of all blocks but the last one, running; yields their log."""
    with running(blocks[:-1], folder) as log:
        yield log


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
