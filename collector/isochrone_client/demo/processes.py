"""Processes the demo starts, waits for and ends: each of its own program, by pid, the last started first."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from isochrone_client.errors import DemoError

READY_SECONDS = 60.0
STOP_SECONDS = 15.0
_LOG_LINES = 12


class Processes:
    """Programs of this project running side by side; leaving the `with` block ends them all."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Agents first, all at once, so that their last samples still find the collector.
        for _, process in reversed(self._running):
            process.terminate()
            _end(process)

    def start(self, name: str, module: str, *options: str) -> subprocess.Popen[bytes]:
        """Start `python -m module options`, logging to a file called after `name`."""
        with (self._logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  # our own programs
                [sys.executable, "-m", module, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for the demo, which ends the others in order.
                start_new_session=True,
            )
        self._running.append((name, process))
        return process

    def start_ready(self, name: str, module: str, *options: str) -> dict[str, Any]:
        """As `start`, and wait for the line of JSON in which the program says that it is ready.

        Raises `DemoError` when it does not, and ends it: it may be started again.
        """
        process = self.start(name, module, *options)
        line = _first_line(process, READY_SECONDS)
        try:
            ready: dict[str, Any] = json.loads(line)
        except ValueError as error:
            self._running.remove((name, process))
            process.terminate()
            _end(process)
            raise self._failure(name, "did not become ready") from error
        return ready

    def stop(self, names: Sequence[str]) -> None:
        """End the named processes, all at once, and wait until they have."""
        ending = [(name, process) for name, process in self._running if name in names]
        for _, process in ending:
            process.terminate()
        for _, process in ending:
            _end(process)

    def check(self) -> None:
        """Raises `DemoError` with the end of its log when one of them has ended by itself."""
        for name, process in self._running:
            if process.poll() is not None:
                raise self._failure(name, f"ended with exit code {process.returncode}")

    def _failure(self, name: str, what: str) -> DemoError:
        log = self._logs / f"{name}.log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        return DemoError(f"{name} {what}\n{tail}", hint="the end of its log stands above")


def run(module: str, *options: str) -> str:
    """What `python -m module options` prints. Raises `DemoError` with what it complained of."""
    done = subprocess.run(  # noqa: S603  # our own programs
        [sys.executable, "-m", module, *options], capture_output=True, text=True, check=False, timeout=READY_SECONDS
    )
    if done.returncode:
        raise DemoError(f"{module} {' '.join(options)}: {done.stderr.strip()}", hint="this should not happen; tell us")
    return done.stdout


def _first_line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    assert process.stdout is not None
    deadline, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(process.stdout.fileno(), 4096) if readable else b""
        if not piece:
            return line
        line += piece
    return line


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
