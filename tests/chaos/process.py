"""A program under test: started, killed, restarted, and monitored for unexpected exits."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_SECONDS = 60.0
RESTART_SECONDS = 1.0
STOP_SECONDS = 30.0
_MOST_CHARS = 500
TESTS = Path(__file__).resolve().parents[1]


@dataclass(eq=False, slots=True, kw_only=True)
class Program:
    """`python -m module …` with its output in `folder`."""

    name: str
    module: str
    folder: Path
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)  # held by a fault that disturbs the program
    unexpected_exits: list[str] = field(default_factory=list)  # those that no fault explains
    started: float = 0.0
    _logged_before: int = 0

    @property
    def log_file(self) -> Path:
        """The stderr of all its processes."""
        return self.folder / f"{self.name}.log"

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it; it takes about a second to become ready."""
        self.started = time.monotonic()
        self._logged_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        with self.log_file.open("ab") as log, self._output_file().open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment, "PYTHONPATH": path},
            )

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def stop(self) -> int:
        """Send SIGTERM; return the exit code, or -9 if it had to be killed."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self.runs and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        if self.runs:
            self.kill()
        assert self.process is not None
        return self.process.wait()

    async def ready_line(self) -> dict[str, Any]:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.runs:
            with contextlib.suppress(ValueError):
                ready: dict[str, Any] = json.loads(self._output_file().read_text())
                return ready
            await asyncio.sleep(0.05)
        raise RuntimeError(f"{self.name} did not start: {self.log_file.read_text()[-2000:]}")

    def log(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(self._logged_before)
            return log.read().decode(errors="replace")

    def restart_if_ended(self) -> bool:
        """Restart the process if it ended without a fault, like systemd; return true if it was restarted."""
        if self.lock.locked() or self.runs or self.process is None:
            return False
        if time.monotonic() < self.started + RESTART_SECONDS:
            return False
        self.note_exit("by itself")
        self.start()
        return True

    def note_exit(self, how: str) -> None:
        """Note that it ended in a way that no fault explains."""
        code = self.process.returncode if self.process else None
        last = "".join(self.log().splitlines()[-1:])
        self.unexpected_exits.append(f"{how} with exit code {code}; its last line is: {last[:_MOST_CHARS]}")

    def _output_file(self) -> Path:
        return self.folder / f"{self.name}.out"
