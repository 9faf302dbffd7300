"""docs/clients.md keeps its word: every example runs as a program of its own, against the simulator's providers."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.simulator import Simulator
from fixtures.table_server import TableServer
from testdata.documented_commands import ROOT
from testdata.routes import fresh, simulated_member

PAGE = (ROOT / "docs" / "clients.md").read_text()
WRITTEN = "http://127.0.0.1:4680"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
ENDLESS = "routes.watch()"


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_runs(
    table_server: TableServer, fault_simulator: Simulator, tmp_path: Path, example: str
) -> None:
    """Each prints what it asks for: a member's model, an answer, a choice or a table."""
    for generation, (route, dialect) in enumerate((("chat", "openai-chat"), ("claude", "anthropic")), start=1):
        entries = tuple(simulated_member(fault_simulator.base_url, rank=rank, dialect=dialect) for rank in (1, 2))
        table_server.publish(replace(fresh(generation), route=route, entries=entries, static_order=()))
    assert WRITTEN in example
    program = example.replace(WRITTEN, table_server.url)
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SIM_API_KEY"), "sk-1")
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **keys, "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        if ENDLESS in example:
            process.kill()
            assert first == "chat 1 {'sim/fault-none': 1.0, 'sim/fault-crlf': 0.0}\n"
            return
        printed = first + process.stdout.read()
        assert process.wait(60) == 0, printed
    assert printed.strip()
    assert "Error" not in printed
    if "anthropic" not in example:
        assert "fault-none" in printed
