"""The processes of the demo: started, awaited and stopped by pid, in reverse order of their start."""

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
    """The programs of the project that run at the same time; the end of the `with` block stops them all."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In reverse order: agents stop before the collector, so that they can deliver their last samples.
        for _, process in reversed(self._running):
            process.terminate()
            _end(process)

    def start(self, name: str, module: str, *options: str) -> subprocess.Popen[bytes]:
        """Start `python -m module options`; its log is a file named after `name`."""
        with (self._logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  # programs of this project
                [sys.executable, "-m", module, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C goes to the demo only, which stops the others in order.
                start_new_session=True,
            )
        self._running.append((name, process))
        return process

    def start_ready(self, name: str, module: str, *options: str) -> dict[str, Any]:
        """Start a program and return the JSON line that it prints when it is ready.

        Without such a line, stops the program and raises `DemoError`; the caller may start it again.
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
        """Stop the named processes at the same time, and wait for their end."""
        ending = [(name, process) for name, process in self._running if name in names]
        for _, process in ending:
            process.terminate()
        for _, process in ending:
            _end(process)

    def check(self) -> None:
        """Raises `DemoError` with the end of the log if a process has ended unexpectedly."""
        for name, process in self._running:
            if process.poll() is not None:
                raise self._failure(name, f"ended with exit code {process.returncode}")

    def _failure(self, name: str, what: str) -> DemoError:
        log = self._logs / f"{name}.log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        return DemoError(f"{name} {what}\n{tail}", hint="see the end of its log above")


def run(module: str, *options: str) -> str:
    """The output of `python -m module options`. Raises `DemoError` with its error output."""
    done = subprocess.run(  # noqa: S603  # programs of this project
        [sys.executable, "-m", module, *options], capture_output=True, text=True, check=False, timeout=READY_SECONDS
    )
    if done.returncode:
        raise DemoError(f"{module} {' '.join(options)}: {done.stderr.strip()}", hint="this is a bug: please report it")
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
