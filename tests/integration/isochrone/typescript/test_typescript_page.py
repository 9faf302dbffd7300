"""Every example of docs/clients.md compiles, and runs as a separate program."""

import json
import os
import re
import subprocess
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
EXAMPLE = re.compile(r"^```ts\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = EXAMPLE.findall(PAGE)
ENDLESS = "routes.watch()"
LIMIT_S = 120.0


def test_the_version_is_that_of_the_release() -> None:
    """The package and the page have the version of the other packages."""
    package = json.loads((CLIENTS / "typescript" / "package.json").read_text())
    assert package["version"] == __version__
    assert f"isochrone-routing-{__version__}.tgz" in PAGE


def test_the_licence_and_the_example_are_those_of_the_repository() -> None:
    """The package's own licence has the same text, and the example of its README is one of this page."""
    package = CLIENTS / "typescript"
    assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    (example,) = EXAMPLE.findall((package / "README.md").read_text())
    assert example in EXAMPLES


@pytest.fixture(scope="module")
def project(node_package: NodePackage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the client, as a reader of the page has it."""
    folder = tmp_path_factory.mktemp("project")
    node_package.install_into(folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def test_the_package_has_a_readme_and_a_licence(project: Path) -> None:
    """What is published says what it is, and under which terms."""
    installed = project / "node_modules" / "@isochrone" / "routing"
    assert {"README.md", "LICENSE", "package.json", "dist"} == {path.name for path in installed.iterdir()}


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_runs(
    node_package: NodePackage, project: Path, table_server: TableServer, fault_simulator: Simulator, example: str
) -> None:
    """Each compiles in strict mode, and prints what it asks for: a member's model, an answer, a choice or a table."""
    entries = tuple(simulated_member(fault_simulator.base_url, rank=rank) for rank in (1, 2))
    table_server.publish(replace(fresh(1), entries=entries, static_order=()))
    assert WRITTEN in example
    (project / "example.ts").write_text(example.replace(WRITTEN, table_server.url))
    strict = ["--strict", "--module", "nodenext", "--target", "es2022", "--types", "node", "--skipLibCheck"]
    node_package.tsc("example.ts", *strict, folder=project)
    with subprocess.Popen(
        ["node", "example.js"],
        cwd=project,
        env={**os.environ, "HOME": str(project), "SIM_API_KEY": "sk-1", "OPENAI_API_KEY": "sk-2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        if ENDLESS in example:
            process.kill()
            assert first.startswith("chat 1 "), first
            return
        printed = first + process.stdout.read()
        assert process.wait(LIMIT_S) == 0, printed
    assert "fault-none" in printed
