"""Fixtures for agents: real `isochrone-agent run` processes, each with its own persistent spool."""

import json
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from testdata.preforked import Program
from testdata.waiting import eventually

STOP_SECONDS = 20.0


@dataclass(slots=True)
class Agent:
    """A running agent; `spool` and `log_file` remain after it has ended."""

    process: subprocess.Popen[bytes] = field(repr=False)
    spool: Path
    log_file: Path

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self.wait()

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        """Wait for the exit and return the exit code."""
        return self.process.wait(STOP_SECONDS)

    def log(self) -> str:
        """Return its log so far."""
        return self.log_file.read_text()

    def recorded(self) -> int:
        """Return the number of samples ever recorded in its spool."""
        return self._count("select finished from spool")

    def waiting(self) -> int:
        """Return the number of samples waiting in its spool."""
        return self._count("select (select count(*) from waiting) + coalesce(sum(samples), 0) from sealed")

    def scrape(self) -> dict[str, float]:
        """Return its metrics by name with labels, once the endpoint is up."""
        eventually(20, lambda: "metrics.started" in self.log(), "the metrics are served")
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=10) as page:
            lines = (line.rpartition(" ") for line in page.read().decode().splitlines() if not line.startswith("#"))
            return {name: float(value) for name, _, value in lines}

    @property
    def metrics_address(self) -> str:
        """The address of its metrics, as its log states it."""
        [line] = [line for line in self.log().splitlines() if "metrics.started" in line]
        return str(json.loads(line)["listen"])

    def _count(self, query: str) -> int:
        try:
            connection = sqlite3.connect(f"file:{self.spool}?mode=ro", uri=True)
        except sqlite3.OperationalError:
            return 0
        try:
            row = connection.execute(query).fetchone()
        except sqlite3.OperationalError:
            return 0
        finally:
            connection.close()
        return int(row[0]) if row else 0


class StartAgent(Protocol):
    """Starts an agent; a second start of the same vantage uses its old spool. A joined agent, with `folder` as its data
    folder, needs neither collector nor region. `script` is a file to run instead of the real command.
    """

    def __call__(
        self,
        *,
        vantage: str,
        collector: str = "",
        region: str = "",
        folder: Path | None = None,
        more: Sequence[str] = (),
        script: Path | None = None,
    ) -> Agent:
        """Return the running agent."""
        ...


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[StartAgent]:
    """Agents that are stopped after the test."""
    agents: list[Agent] = []

    def start(
        *,
        vantage: str,
        collector: str = "",
        region: str = "",
        folder: Path | None = None,
        more: Sequence[str] = (),
        script: Path | None = None,
    ) -> Agent:
        folder = folder or tmp_path / "agents" / vantage
        folder.mkdir(parents=True, exist_ok=True)
        log_file = folder / f"{len(agents)}.log"
        options = ["--data-dir", str(folder), *(("--vantage", vantage, "--region", region) if region else ())]
        options += [*(("--collector", collector) if collector else ()), *more]
        with log_file.open("wb") as log:
            process: subprocess.Popen[bytes] = (
                subprocess.Popen([sys.executable, script, "run", *options], stderr=log, stdout=log)
                if script
                else Program[bytes]("isochrone_agent", "run", *options, stderr=log, stdout=log)
            )
        agents.append(Agent(process=process, spool=folder / "spool.sqlite3", log_file=log_file))
        return agents[-1]

    yield start
    for agent in agents:
        if agent.process.poll() is None:
            agent.kill()
