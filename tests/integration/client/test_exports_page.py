"""docs/gateways.md keeps its word: its commands write the files, follow the tables, and check them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from fixtures.fake_collector import FakeCollector
from testdata.documented_commands import blocks_of, section
from testdata.routes import fresh
from testdata.waiting import eventually

PAGE = section("gateways.md", "Files")


def test_the_commands_of_the_page(routing: FakeCollector, tmp_path: Path) -> None:
    """The exports are written; the followed file reaches the command; the check prints the sentence of the page."""
    once, followed, check = blocks_of(PAGE)
    (tmp_path / "isochrone").write_text(f'#!/bin/sh\nexec {sys.executable} -m isochrone_client "$@"\n')
    (tmp_path / "isochrone").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ISOCHRONE_COLLECTOR": routing.address}
    routing.restart(fresh(48, seconds=1795))

    def run(block: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert json.loads(run(once))["strategy"]["mode"] == "conditional"
    assert {path.name for path in tmp_path.glob("*.*")} == {"litellm.yaml", "routes.json", "routes.clusters.json"}
    with subprocess.Popen(
        ["bash", "-c", f"{followed}wait"], cwd=tmp_path, env=environment, start_new_session=True
    ) as shell:
        try:
            eventually(20, (tmp_path / "applied.json").exists, "the command")
            (sentence,) = re.findall(r"```\n(tables.json has .*)\n```", PAGE)
            assert run(check).strip() == sentence
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
