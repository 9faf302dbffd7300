"""Borrow agents: real `isochrone-agent run` processes, each with a spool of its own that outlives it."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

STOP_SECONDS = 20.0


@dataclass(slots=True)
class Agent:
    """A running agent; `spool` and `log_file` stay when it has ended."""

    process: subprocess.Popen[bytes] = field(repr=False)
    spool: Path
    log_file: Path

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        self.process.terminate()
        return self.wait()

    def kill(self) -> None:
        """End it without notice."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self.process.wait(STOP_SECONDS)

    def log(self) -> str:
        """What it wrote so far."""
        return self.log_file.read_text()

    def recorded(self) -> int:
        """How many samples its spool was ever given."""
        return self._count("select finished from spool")

    def waiting(self) -> int:
        """How many samples wait in its spool."""
        return self._count("select (select count(*) from waiting) + coalesce(sum(samples), 0) from sealed")

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
    """Starts an agent; the same vantage started again finds its old spool. One that has joined, with `folder` as its
    data folder, is told neither collector nor region.
    """

    def __call__(
        self,
        *,
        vantage: str,
        collector: str = "",
        region: str = "",
        folder: Path | None = None,
        more: Sequence[str] = (),
    ) -> Agent:
        """The agent, running."""
        ...


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[StartAgent]:
    """Agents that end with the test."""
    agents: list[Agent] = []

    def start(
        *, vantage: str, collector: str = "", region: str = "", folder: Path | None = None, more: Sequence[str] = ()
    ) -> Agent:
        folder = folder or tmp_path / "agents" / vantage
        folder.mkdir(parents=True, exist_ok=True)
        log_file = folder / f"{len(agents)}.log"
        told = ["--data-dir", str(folder), *(("--vantage", vantage, "--region", region) if region else ())]
        told += [*(("--collector", collector) if collector else ()), *more]
        with log_file.open("wb") as log:
            process = subprocess.Popen([sys.executable, "-m", "isochrone_agent", "run", *told], stderr=log, stdout=log)
        agents.append(Agent(process=process, spool=folder / "spool.sqlite3", log_file=log_file))
        return agents[-1]

    yield start
    for agent in agents:
        if agent.process.poll() is None:
            agent.kill()
