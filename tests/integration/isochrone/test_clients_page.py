"""docs/clients.md keeps its word: every example runs as a separate program, against the simulator's providers."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.node import CLIENTS, NodePackage
from fixtures.simulator import Simulator
from fixtures.table_server import TableServer
from isochrone_wire import __version__
from testdata.documented_commands import ROOT
from testdata.routes import fresh, simulated_member

PAGE = (ROOT / "docs" / "clients.md").read_text()
WRITTEN = "http://127.0.0.1:4680"
EXAMPLE = re.compile(r"^```(python|ts)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = EXAMPLE.findall(PAGE)
TYPESCRIPT = [text for language, text in EXAMPLES if language == "ts"]
ENDLESS = "routes.watch()"
PACKAGE = CLIENTS / "typescript"
KEYS = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SIM_API_KEY"), "sk-1")
LIMIT_S = 120.0


def test_the_package_is_of_the_release() -> None:
    """It has the version, the licence and an example of the page."""
    assert json.loads((PACKAGE / "package.json").read_text())["version"] == __version__
    assert f"isochrone-routing-{__version__}.tgz" in PAGE
    assert (PACKAGE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    ((_, example),) = EXAMPLE.findall((PACKAGE / "README.md").read_text())
    assert example in TYPESCRIPT


@pytest.fixture(scope="module")
def project(node_package: NodePackage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    node_package.install_into(folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def test_the_package_has_a_readme_and_a_licence(project: Path) -> None:
    """What is published says what it is, and under which terms."""
    installed = project / "node_modules" / "@isochrone" / "routing"
    assert {"README.md", "LICENSE", "package.json", "dist"} == {path.name for path in installed.iterdir()}


@pytest.mark.parametrize(("language", "example"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_runs(
    request: pytest.FixtureRequest,
    table_server: TableServer,
    fault_simulator: Simulator,
    tmp_path: Path,
    *,
    language: str,
    example: str,
) -> None:
    """Each prints what it asks for: a member's model, an answer, a choice or a table; TypeScript's in strict mode."""
    for generation, (route, dialect) in enumerate((("chat", "openai-chat"), ("claude", "anthropic")), start=1):
        entries = tuple(simulated_member(fault_simulator.base_url, rank=rank, dialect=dialect) for rank in (1, 2))
        table_server.publish(replace(fresh(generation), route=route, entries=entries, static_order=()))
    assert WRITTEN in example
    program = example.replace(WRITTEN, table_server.url)
    folder, command = tmp_path, [sys.executable, "-c", program]
    if language == "ts":
        folder, command = request.getfixturevalue("project"), ["node", "example.js"]
        (folder / "example.ts").write_text(program)
        strict = ["--strict", "--module", "nodenext", "--target", "es2022", "--types", "node", "--skipLibCheck"]
        request.getfixturevalue("node_package").tsc("example.ts", *strict, folder=folder)
    environment, pipe = {**os.environ, **KEYS, "HOME": str(folder)}, subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        if ENDLESS in example:
            process.kill()
            assert first.startswith("chat 1 " if language == "ts" else "chat 1 {'sim/fault-none': 1.0, 'sim/fault-"), (
                first
            )
            return
        printed = first + process.stdout.read()
        assert process.wait(LIMIT_S) == 0, printed
    assert printed.strip()
    assert "Error" not in printed
    if "anthropic" not in example:
        assert "fault-none" in printed
