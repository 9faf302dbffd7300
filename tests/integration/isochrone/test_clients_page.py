"""docs/clients.md keeps its word: every example runs as a separate program, against the simulator's providers."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.gateway import StartGateway
from fixtures.node import CLIENTS, NodePackage
from fixtures.routing_client import World
from isochrone_wire import __version__
from testdata.documented_commands import ROOT
from testdata.routes import fresh, simulated_member

PAGE = (ROOT / "docs" / "clients.md").read_text()
WRITTEN = "http://127.0.0.1:4680"
GATEWAY = "http://127.0.0.1:4000"
EXAMPLE = re.compile(r"^```(python|ts|go|java|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = [(language, text) for language, text in EXAMPLE.findall(PAGE) if WRITTEN in text or GATEWAY in text]
TYPESCRIPT = [text for language, text in EXAMPLES if language == "ts"]
ENDLESS = "routes.watch()"
# The program that runs an example from a file, and the Debian package of what that needs.
COMMANDS = {
    "python": ((sys.executable, "example.py"), "python3", "python3"),
    "ts": (("node", "example.js"), "node", "nodejs"),
    "sh": (("sh", "-e", "example.sh"), "curl", "curl"),
    "go": (("go", "run", "example.go"), "go", "golang-go"),
    "java": (("java", "example.java"), "javac", "default-jdk-headless"),
}
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
    world: World,
    gateway: StartGateway,
    tmp_path: Path,
    *,
    language: str,
    example: str,
) -> None:
    """Each prints what it asks for: a member's model, an answer, a choice or a table; TypeScript's in strict mode."""
    command, needed, package = COMMANDS[language]
    if shutil.which(needed) is None:
        pytest.skip(f"{needed} is not installed (Debian package: {package})")
    for generation, (route, dialect) in enumerate((("chat", "openai-chat"), ("claude", "anthropic")), start=1):
        entries = tuple(simulated_member(world.simulator.base_url, rank=rank, dialect=dialect) for rank in (1, 2))
        world.server.publish(replace(fresh(generation), route=route, entries=entries, static_order=()))
    program, folder = example.replace(WRITTEN, world.server.url), tmp_path
    if GATEWAY in example:
        program = program.replace(GATEWAY, gateway(**KEYS).url.removesuffix("/v1"))
    if language == "ts":
        folder = request.getfixturevalue("project")
    (folder / f"example.{language if language != 'python' else 'py'}").write_text(program)
    if language == "ts":
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
