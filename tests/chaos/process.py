"""A program under test: started, killed, started again, and watched, so that an end nobody asked for is noticed."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_SECONDS = 60.0
REVIVE_SECONDS = 1.0
STOP_SECONDS = 30.0
TESTS = Path(__file__).resolve().parents[1]


@dataclass(eq=False, slots=True, kw_only=True)
class Program:
    """`python -m module …` with its output in `folder`. Whoever disturbs it holds `lock`, so that faults take turns.

    `fell` are the exit codes of its ends that nobody asked for.
    """

    name: str
    module: str
    folder: Path
    arguments: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    fell: list[int] = field(default_factory=list)
    started: float = 0.0

    @property
    def log_file(self) -> Path:
        """What it writes to stderr, over all its lives."""
        return self.folder / f"{self.name}.log"

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it; it may take a second to be of use."""
        self.started = time.monotonic()
        with self.log_file.open("ab") as log, self._said().open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, to nobody when it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def stop(self) -> int:
        """Ask it to end; its exit code, or -9 when it had to be killed."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self.runs and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        if self.runs:
            self.kill()
        assert self.process is not None
        return self.process.wait()

    async def announced(self) -> dict[str, Any]:
        """The line of JSON in which it says that it is ready."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.runs:
            with contextlib.suppress(ValueError):
                ready: dict[str, Any] = json.loads(self._said().read_text())
                return ready
            await asyncio.sleep(0.05)
        raise RuntimeError(f"{self.name} did not start: {self.log_file.read_text()[-2000:]}")

    def revive(self) -> bool:
        """Start it again if it has ended though nobody disturbs it, as systemd would; whether it had."""
        if self.lock.locked() or self.runs or self.process is None:
            return False
        if time.monotonic() < self.started + REVIVE_SECONDS:
            return False
        self.fell.append(self.process.returncode)
        self.start()
        return True

    def _said(self) -> Path:
        return self.folder / f"{self.name}.out"
