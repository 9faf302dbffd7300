"""The commands of docs/gateways.md on Portkey lead to an answer of the route's member, with and without the module."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.portkey import VARIABLE, requires_portkey
from testdata.documented_commands import blocks_of, running, section, short_checkout, unused_ports, with_ports
from testdata.waiting import eventually

PORTS = ("8081", "4600", "4680", "8787")
PAGE = section("gateways.md", "A fleet for Envoy and Portkey") + section("gateways.md", "Portkey")

pytestmark = [requires_portkey, pytest.mark.slow]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that looks like a checkout, with the commands of this one and the gateway."""
    with short_checkout() as path:
        (path / "node_modules").symlink_to(Path(os.environ[VARIABLE]).resolve())
        # As by default; but until the socket is there, another collector at port 4600 would get the plan.
        monkeypatch.setenv("ISOCHRONE_COLLECTOR", f"unix:{path}/data/isochrone/collector/collector.sock")
        yield path


@pytest.fixture
def blocks() -> list[str]:
    """The commands of the page, with ports that are free."""
    return blocks_of(with_ports(PAGE, unused_ports(PORTS)))


def test_the_page_leads_to_an_answer(folder: Path, blocks: list[str]) -> None:
    """The request of the page is served by a member, although it names the route as its model; so is the one that
    brings the config.
    """
    *programs, request, request_with_config = blocks
    assert len(programs) == 3
    answers: list[str] = []
    keys = {"ZHIPU_API_KEY": "a-key-of-zhipu", "QWEN_API_KEY": "a-key-of-qwen"}

    def is_answered(command: str) -> bool:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env={**os.environ, **keys}, capture_output=True, text=True, check=False
        )
        answers.append(done.stdout)
        return '"choices"' in done.stdout

    with running(programs, folder) as log:
        eventually(90, lambda: is_answered(request), "a completion", every=0.5)
        assert json.loads(answers[-1])["model"] in ("glm-5", "qwen3-32b"), answers[-1] + log.read_text()[-2000:]
        assert is_answered(request_with_config), answers[-1]
        assert json.loads(answers[-1])["model"] in ("glm-5", "qwen3-32b"), answers[-1]
