"""docs/http.md keeps its word: its commands, file and program reach a collector, and its table has every input."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.fake_collector import FakeCollector
from testdata.documented_commands import ROOT, blocks_of, make_checkout, section

PAGE = section("http.md", "Assistants")


@pytest.fixture
def environment(observatory: FakeCollector, tmp_path: Path) -> dict[str, str]:
    """The variables of a reader whose commands ask a fake collector, in a folder that looks like a checkout."""
    make_checkout(tmp_path)
    # The SDK's client passes few variables on, which is why the program has the path of this checkout.
    module_path = os.pathsep.join(filter(None, sys.path))
    program = f"#!/bin/sh\nPYTHONPATH='{module_path}' exec {sys.executable} -m isochrone_client \"$@\"\n"
    (tmp_path / "bin" / "isochrone").write_text(program)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ISOCHRONE_COLLECTOR": observatory.address}


def test_the_commands_of_the_page(environment: dict[str, str], tmp_path: Path) -> None:
    """The extra that is installed exists with the SDK, and the command that follows gets an answer."""
    (block,) = blocks_of(PAGE)
    install, *others = block.splitlines()
    assert install == "pip install 'isochrone[mcp]'"
    assert re.search(r'^mcp = \["mcp>=', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for line in others:
        done = subprocess.run(["bash", "-ec", line], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


async def test_the_file_of_the_page_starts_the_server(environment: dict[str, str]) -> None:
    """The program of the file answers an assistant, and the table of the page has its tools with their inputs."""
    # Every worker collects this module, and one runs it: the import takes longer than any other.
    from mcp import Client, StdioServerParameters

    (file,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (server,) = json.loads(file)["mcpServers"].values()
    async with Client(StdioServerParameters(**server, env=environment)) as client:
        tools = (await client.list_tools()).tools
        answer = await client.call_tool("leaderboard", {})
    assert not answer.is_error
    rows = re.findall(r"^\| `(\w+)` \|.*\| (`.*`) \|$", PAGE, re.MULTILINE)
    described = {name: re.findall(r"`(\w+)`", inputs) for name, inputs in rows}
    assert described == {tool.name: list(tool.input_schema["properties"]) for tool in tools}


def test_the_program_of_the_page(environment: dict[str, str]) -> None:
    """The example prints the ranking as text."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert 'args=["mcp"]' in example
    collector = environment["ISOCHRONE_COLLECTOR"]
    program = example.replace('["mcp"]', f'["mcp", "--collector", "{collector}"]')
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "leaderboard by median ttft" in done.stdout
