"""The tests of the TypeScript client, which run in Node's test runner: each is a test here, too."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from fixtures.node import CLIENTS, NodePackage
from fixtures.simulator import Simulator, certificate_for
from testdata.client_cases import CASES

pytestmark = pytest.mark.slow

SOURCES = CLIENTS / "typescript" / "test"
CONTRACT = "contract.test.ts"
OTHERS = sorted(path.name for path in SOURCES.glob("*.test.ts") if path.name != CONTRACT)
WIRE = CLIENTS.parent / "tests" / "testdata" / "wire"
LIMIT_S = 600.0
# A failed test may leave connections, which keep the runner of its file alive until this time. (With --test-force-exit,
# results are lost.)
OPTIONS = ("--test-reporter=tap", "--test-timeout=500000")
RESULT = re.compile(r"^\s*(ok|not ok) \d+ - (.+?)(?: # (SKIP|TODO).*)?$")
MOVED = re.compile(r"^\s*# moved_s ([0-9.]+)$")


@dataclass(frozen=True, slots=True)
class NodeResults:
    """The output of the test runner by the name of the test, and the names of those that passed."""

    texts: dict[str, str]
    passed: frozenset[str]


def names_in(file: str) -> Iterator[str]:
    yield from re.findall(r'^(?:test|contract)\("(.+)", async', (SOURCES / file).read_text(), re.MULTILINE)


def results_of(printed: str) -> NodeResults:
    """Read the output in the form of the Test Anything Protocol: a result, then its details."""
    texts: dict[str, str] = {}
    passed, name = set(), ""
    for line in printed.splitlines():
        if found := RESULT.match(line):
            name = found[2].replace("\\#", "#").replace("\\\\", "\\")
            if found[1] == "ok" and not found[3]:
                passed.add(name)
        texts[name] = texts.get(name, "") + line + "\n"
    return NodeResults(texts, frozenset(passed))


@dataclass(slots=True)
class NodeRunner:
    package: NodePackage
    environment: dict[str, str]
    results: dict[str, NodeResults] = field(default_factory=dict)

    def __getitem__(self, file: str) -> NodeResults:
        if file not in self.results:
            path = self.package.folder / "build" / "test" / file.replace(".ts", ".js")
            done = subprocess.run(
                ["node", "--test", *OPTIONS, str(path)],
                env={**os.environ, **self.environment},
                cwd=self.package.folder,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            self.results[file] = results_of(done.stdout + done.stderr)
        return self.results[file]


@pytest.fixture(scope="module")
def runner(
    node_package: NodePackage, fault_simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> NodeRunner:
    certificate = certificate_for(tmp_path_factory.mktemp("certificate"), "IP:127.0.0.1")
    addresses = {"ISOCHRONE_TEST_SIMULATOR": fault_simulator.base_url}
    folders = {"ISOCHRONE_TEST_CERTIFICATE": str(certificate.parent), "ISOCHRONE_TEST_WIRE": str(WIRE)}
    return NodeRunner(node_package, addresses | folders)


@pytest.mark.parametrize(
    ("consumer", "name"),
    [
        pytest.param(consumer, name, marks=pytest.mark.consumer(consumer, name))
        for consumer in ("ai", "openai-node")
        for name in names_in(CONTRACT)
    ],
)
def test_the_consumers_contract(
    runner: NodeRunner, consumer: str, name: str, record_property: Callable[[str, object], None]
) -> None:
    """The packages `ai` and `openai` follow the tables as every consumer does."""
    results, case = runner[CONTRACT], f"{consumer}: {name}"
    assert case in results.passed, results.texts.get(case, results.texts)
    for line in results.texts[case].splitlines():
        if moved := MOVED.match(line):
            record_property("moved_s", float(moved[1]))


@pytest.mark.parametrize(("file", "name"), [(file, name) for file in OTHERS for name in names_in(file)])
def test_the_test_passes(runner: NodeRunner, file: str, name: str) -> None:
    """Each has its law as its name."""
    results = runner[file]
    assert name in results.passed, results.texts.get(name, results.texts)


@pytest.mark.parametrize("file", OTHERS)
def test_every_other_test_passes(runner: NodeRunner, file: str) -> None:
    """Tests that are made in loops pass as well."""
    results = runner[file]
    assert results.passed
    assert {name: text for name, text in results.texts.items() if name not in results.passed and name} == {}


def test_every_shared_case_passes(runner: NodeRunner) -> None:
    """The client passes each of the cases that all clients share."""
    laws = {f"{subject}: {case['law']}" for subject, group in CASES.items() for case in group}
    assert laws <= runner["cases.test.ts"].passed | runner["failover.test.ts"].passed
