"""Borrow a running `isochrone demo`: its output so far, and the client against its collector."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from isochrone_client.cli import cli

# The differences of Singapore against US East that the world is built from.
PUBLISHED_MS = {"deepseek-v4-flash": -30, "qwen3-32b": -40, "glm-5": -80, "kimi-k2.5": -120}


@dataclass(slots=True, repr=False)
class Demo:
    """A running demo, and its output on stderr so far."""

    process: "subprocess.Popen[str]"
    folder: Path
    collector: str = ""
    lines: list[str] = field(default_factory=list)
    stdout: str = ""

    @property
    def stderr(self) -> str:
        """The output on stderr so far."""
        return "".join(self.lines)

    def end(self) -> None:
        """Press Ctrl-C, and wait for the results."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        self.stdout = self.process.stdout.read()
        self.process.wait(60)

    def listen(self) -> None:
        """Collect the output on stderr until it ends."""
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def wait_for(self, pattern: str, seconds: float) -> str:
        """Wait until the pattern appears on stderr, and return its group."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if found := re.search(pattern, self.stderr):
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} on stderr:\n{self.stderr}")


@contextmanager
def one_demo_at_a_time(factory: pytest.TempPathFactory) -> Iterator[None]:
    """Wait until no other worker runs a demo, and keep the others waiting for the block.

    A demo takes half a core, and its start more: several at once would measure how busy the machine is.
    """
    with (factory.getbasetemp().parent / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def command(folder: Path, *options: str) -> list[str]:
    """The command line of a demo in a folder."""
    return [sys.executable, "-m", "isochrone_client", "demo", "--folder", str(folder), *options]


@contextmanager
def start_demo(folder: Path, *options: str, within: Sequence[str] = ()) -> Iterator[Demo]:
    """Run a demo in a folder for the block, from the moment its collector serves; `within` are words before it."""
    line = [*within, *command(folder, *options)]
    # The width of the README. The readline library, which pytest may load, sets another one for child processes.
    environment = {**os.environ, "COLUMNS": "100"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        demo_run = Demo(process=process, folder=folder)
        reader = threading.Thread(target=demo_run.listen)
        reader.start()
        try:
            demo_run.collector = demo_run.wait_for(r"a collector at (\S+)", 90)
            yield demo_run
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            reader.join(10)
    # The logs of a demo that failed stay.
    assert folder.exists() is (process.returncode == 1)


def ask(collector: Demo | str, *arguments: str) -> Result:
    """Run `isochrone` against the collector of a demo, or the one at an address."""
    address = collector if isinstance(collector, str) else collector.collector
    return CliRunner().invoke(cli, arguments, env={"ISOCHRONE_COLLECTOR": address}, prog_name="isochrone")


def table_after(text: str, heading: str) -> dict[str, list[str]]:
    """Return the rows of the table that follows `heading`, by their first cell."""
    lines = text[text.index(heading) :].splitlines()[3:]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    rows = rows[: next((n for n, row in enumerate(rows) if row == [""]), len(rows))]
    return {row[0]: row[1:] for row in rows}
