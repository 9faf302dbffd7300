"""The commands of docs/gateways.md on LiteLLM lead to another first choice in each region, and its program runs."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.litellm import PYTHON, environment, requires_litellm
from testdata.documented_commands import blocks_of, running, section, short_checkout, unused_ports, with_ports
from testdata.waiting import eventually

REGIONS = ("us-east-2", "ap-southeast-1")
PORTS = ("8081", "8082", "4600", "4680", "4000")
PAGE = section("gateways.md", "LiteLLM")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
(PROGRAM,) = [text for language, text in BLOCKS if language == "python"]
(SHOWN,) = [text for language, text in BLOCKS if not language]

pytestmark = [requires_litellm, pytest.mark.slow]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that looks like a checkout, with the commands of this one and LiteLLM's proxy."""
    with short_checkout() as path:
        # As by default; but until the socket is there, another collector at port 4600 would get the plan.
        monkeypatch.setenv("ISOCHRONE_COLLECTOR", f"unix:{path}/data/isochrone/collector/collector.sock")
        given = {key: value for key, value in environment(path).items() if os.environ.get(key) != value}
        settings = " ".join(f"{key}={value}" for key, value in given.items())
        command = path / "bin" / "litellm"
        command.write_text(f'#!/bin/sh\nexec env {settings} {Path(PYTHON).parent / "litellm"} "$@"\n')
        command.chmod(0o755)
        yield path


def output_of(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment(folder), timeout=240
    )
    return done.stdout or done.stderr


def test_the_page_leads_to_another_first_choice_in_each_region(folder: Path) -> None:
    """The third block prints what the page shows, the fourth the metrics; the program prints its region's choice.

    Without a table LiteLLM chooses by chance, which may be what the page shows: the metrics tell one from the other.
    """
    ports = unused_ports(PORTS)
    page, program = with_ports(PAGE, ports), with_ports(PROGRAM, ports)
    *start, ask, scrape = blocks_of(page)
    assert len(start) == 2
    by_table = [f'{{client_region="{region}",outcome="table",route="chat"}}' for region in REGIONS]
    found: list[str] = []

    def is_as_shown() -> bool:
        found[:] = [output_of(["bash", "-c", block], folder) for block in (ask, scrape)]
        return found[0] == SHOWN and all(labels in found[1] for labels in by_table)

    with running(start, folder) as log:
        try:
            eventually(120, is_as_shown, "the output that the page shows", every=0.5)
        except AssertionError:
            pytest.fail("\n".join([*found, log.read_text()[-4000:]]))
        assert output_of([PYTHON, "-c", program], folder).splitlines()[-1] == "step-3.5-flash"
