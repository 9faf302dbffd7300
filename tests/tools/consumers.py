"""A pytest plugin that prints the table consumer by case of the tests marked `consumer(name, case)`.

usage: pytest -p tools.consumers -m consumer

The exit code is 1 if a test failed, if a consumer has no test of a case and `WITHOUT_TEST` has no reason for it, and if
traffic took more than two seconds to move. A test states that time with `record_property("moved_s", seconds)`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

CONSUMERS = ("LiteLLM", "Envoy", "Portkey", "openai", "anthropic", "LangChain", "ai", "openai-node")
MOVES = "change moves traffic within 2 s"
CASES = ("regions differ", MOVES, "first choice dead", "collector gone", "unknown model", "garbage table")
MOST_S = 2.0
WITHOUT_TEST: Mapping[tuple[str, str], str] = {}
"""Why a consumer has no test of a case."""


@dataclass(slots=True)
class Cell:
    """The tests of a consumer in a case. `moved_s` are the seconds in which traffic followed a changed table."""

    outcomes: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    moved_s: list[float] = field(default_factory=list)

    def add(self, report: pytest.TestReport, case: str) -> None:
        if report.failed or report.skipped or report.when == "call":
            self.outcomes.add(report.outcome)
        if report.skipped:
            self.skipped.add(report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr))
        if report.when == "call" and case == MOVES:
            self.moved_s += [float(str(value)) for name, value in report.user_properties if name == "moved_s"]

    @property
    def is_failed(self) -> bool:
        """True if a test failed, or took too long."""
        return "failed" in self.outcomes or max(self.moved_s, default=0.0) > MOST_S

    def __str__(self) -> str:
        if self.is_failed or "passed" in self.outcomes:
            return ("failed" if self.is_failed else "ok") + (f" {max(self.moved_s):.2f} s" if self.moved_s else "")
        return "skipped" if self.outcomes else "-"


class ConsumerTable:
    def __init__(self) -> None:
        self.cells: defaultdict[tuple[str, str], Cell] = defaultdict(Cell)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Hand the marks to the reports, which come from other processes."""
        for item in items:
            for mark in item.iter_markers("consumer"):
                name, case = mark.args
                if name not in CONSUMERS or case not in CASES:
                    raise pytest.UsageError(f"{item.nodeid}: consumer{mark.args} is not in tools/consumers.py")
                item.user_properties.append(("consumer", (name, case)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "consumer" and isinstance(value, list | tuple):
                self.cells[value[0], value[1]].add(report, value[1])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail for what the tests cannot show on their own."""
        if not hasattr(session.config, "workerinput") and not session.exitstatus and any(self.problems()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("consumers")
        for line in (*self.lines(), *self.notes(), *self.problems()):
            terminalreporter.line(line)

    def lines(self) -> Iterator[str]:
        widths = [max(len(name), *(len(str(self.cells[name, case])) for case in CASES)) for name in CONSUMERS]
        first = max(map(len, CASES))
        yield "  ".join([" " * first, *map(str.ljust, CONSUMERS, widths)]).rstrip()
        for case in CASES:
            cells = (str(self.cells[name, case]).ljust(width) for name, width in zip(CONSUMERS, widths, strict=True))
            yield "  ".join([case.ljust(first), *cells]).rstrip()

    def notes(self) -> Iterator[str]:
        """Yield the reasons of what was skipped, and of tests that do not exist."""
        for key in ((name, case) for name in CONSUMERS for case in CASES):
            reasons = self.cells[key].skipped | ({WITHOUT_TEST[key]} if key in WITHOUT_TEST else set())
            yield from (f"{', '.join(key)}: {reason.removeprefix('Skipped: ')}" for reason in sorted(reasons))

    def problems(self) -> Iterator[str]:
        """Yield what fails the run beside failed tests."""
        for name, case in ((name, case) for name in CONSUMERS for case in CASES):
            cell = self.cells[name, case]
            if not cell.outcomes and (name, case) not in WITHOUT_TEST:
                yield f"{name}, {case}: no test"
            if max(cell.moved_s, default=0.0) > MOST_S:
                yield f"{name}, {case}: took more than {MOST_S:g} s"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ConsumerTable(), "consumer-table")
