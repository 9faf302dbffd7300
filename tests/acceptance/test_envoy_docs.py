"""The commands of docs/gateways.md on Envoy lead to an answer of the route's member."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.envoy import ENVOY, requires_envoy
from testdata.documented_commands import blocks_of, running, section, short_checkout, unused_ports, with_ports
from testdata.waiting import eventually

PORTS = ("8081", "4600", "4680", "10000")
SECTION = section("gateways.md", "A fleet for Envoy and Portkey") + section("gateways.md", "Envoy")

pytestmark = [requires_envoy, pytest.mark.slow]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that looks like a checkout, with the commands of this one and Envoy."""
    with short_checkout() as path:
        (path / "bin" / "envoy").symlink_to(str(ENVOY))
        # As by default; but until the socket is there, another collector at port 4600 would get the plan.
        monkeypatch.setenv("ISOCHRONE_COLLECTOR", f"unix:{path}/data/isochrone/collector/collector.sock")
        yield path


@pytest.fixture
def blocks() -> list[str]:
    """The commands of the section, with ports that are free, also in the bootstrap."""
    ports = unused_ports(PORTS)
    text = with_ports(SECTION, ports)
    for written, port in ports.items():
        text = text.replace("sed -e", f"sed -e 's/port_value: {written}/port_value: {port}/' -e", 1)
    return blocks_of(text)


def test_the_page_leads_to_an_answer(folder: Path, blocks: list[str]) -> None:
    """The last command returns a completion of a member's model, although the request names another one."""
    assert len(blocks) == 4
    answers: list[str] = []

    def is_answered() -> bool:
        done = subprocess.run(["bash", "-c", blocks[-1]], cwd=folder, capture_output=True, text=True, check=False)
        answers.append(done.stdout)
        sys.stdout.write(done.stdout + done.stderr)  # which pytest shows if the test fails
        return '"choices"' in done.stdout

    with running(blocks[:-1], folder) as log:
        eventually(90, is_answered, "a completion", every=0.5)
        assert "error: keys" not in log.read_text()
        assert json.loads(answers[-1])["model"] in ("glm-5", "qwen3-32b"), answers[-1] + log.read_text()[-2000:]
