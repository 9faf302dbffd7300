"""The processes of the demo: started, awaited and stopped by pid. They also end if the demo is killed (see `child`).

Where this machine allows network namespaces, the providers run in one of their own, and each agent in that of its
region, a real round trip away. The collector stays in the network of this machine; a Unix socket leads to it.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

from isochrone_client.demo.scenario import ROUND_TRIPS_MS
from isochrone_client.errors import DemoError
from isochrone_client.screen import StopRequests
from isochrone_common.address import MAX_SOCKET_PATH_BYTES

READY_SECONDS = 60.0
STOP_SECONDS = 15.0
_NO_FOLDER = "/nonexistent"


class _Running(NamedTuple):
    name: str
    module: str
    process: subprocess.Popen[bytes]


class Processes:
    """The programs of the project that run at the same time; the end of the `with` block stops them all.

    They keep the file `lock` open, so that the lock is held until the last of them has ended. A start that is
    interrupted raises `click.exceptions.Exit`.
    """

    def __init__(self, logs: Path, *, lock: int, stop: StopRequests) -> None:
        self._logs, self._lock, self._stop = logs, lock, stop
        self._running: list[_Running] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # In reverse order: agents stop before the collector, so that they can deliver their last samples.
        for _, group in groupby(reversed(self._running), key=lambda running: running.module):
            self.stop([running.name for running in group])

    def start(
        self, name: str, module: str, *options: str, within: Sequence[str] = (), ends_with_input: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start `python -m module options`, with the words `within` before it; its log is a file named after `name`.

        A program that `ends_with_input` stops when its standard input is closed, and runs without `child`.
        """
        self._stop.check()
        modules = [module] if ends_with_input else ["isochrone_client.demo.child", module]
        with (self._logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  # programs of this project
                [*within, sys.executable, "-m", *modules, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(self._lock,),
                env=_environment(),
                # Ctrl-C goes to the demo only, which stops the others in order.
                start_new_session=True,
            )
        self._running.append(_Running(name, module, process))
        return process

    def start_ready(
        self, name: str, module: str, *options: str, within: Sequence[str] = (), ends_with_input: bool = False
    ) -> dict[str, Any]:
        """Start a program and return the JSON line that it prints when it is ready.

        Without such a line, stops the program and raises `DemoError`; the caller may start it again.
        """
        process = self.start(name, module, *options, within=within, ends_with_input=ends_with_input)
        line = _first_line(process, self._stop)
        self._stop.check()
        try:
            ready: dict[str, Any] = json.loads(line)
        except ValueError as error:
            self.stop([name])
            raise self._failure(name, "did not become ready") from error
        return ready

    def stop(self, names: Sequence[str]) -> None:
        """Stop the named processes at the same time, and wait for their end; a request that arrives meanwhile kills."""
        ending = [running for running in self._running if running.name in names]
        for running in ending:
            running.process.terminate()
        deadline, requests = time.monotonic() + STOP_SECONDS, self._stop.count
        for running in ending:
            with running.process as process:  # at the end of the block, its pipes are closed
                while process.poll() is None and self._stop.count == requests and time.monotonic() < deadline:
                    self._stop.sleep(0.02)
                if process.poll() is None:
                    process.kill()
        self._running = [running for running in self._running if running not in ending]

    def check(self) -> None:
        """Raises `DemoError` with the end of the log if a process has ended unexpectedly."""
        for running in self._running:
            if running.process.poll() is not None:
                raise self._failure(running.name, f"ended with exit code {running.process.returncode}")

    def _failure(self, name: str, what: str) -> DemoError:
        log = self._logs / f"{name}.log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        return DemoError(f"{name} {what}\n{tail}", hint="see the end of its log above")


def run(module: str, *options: str) -> str:
    """The output of `python -m module options`. Raises `DemoError` with its error output."""
    what = f"{module} {' '.join(options)}"
    try:
        done = subprocess.run(  # noqa: S603  # programs of this project
            [sys.executable, "-m", module, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_SECONDS,
            env=_environment(),
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        hint = "this machine may be too busy: try again"
        raise DemoError(f"{what} did not end within {READY_SECONDS:g} s", hint=hint) from error
    if done.returncode:
        raise DemoError(f"{what}: {done.stderr.strip()}", hint="this is a bug: please report it")
    return done.stdout


def _environment() -> dict[str, str]:
    """The environment of the demo's programs: this one without options, such as the database of the user's own, and
    without the user's identities, contexts and data.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ISOCHRONE_")}
    return kept | dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME"), _NO_FOLDER)


def _first_line(process: subprocess.Popen[bytes], stop: StopRequests) -> bytes:
    """The first line of output; a part of it if the process ends, the time is over, or the demo is to stop."""
    assert process.stdout is not None
    output, deadline, line = process.stdout.fileno(), time.monotonic() + READY_SECONDS, b""
    while not line.endswith(b"\n") and not stop.wanted:
        readable, _, _ = select.select([output, stop.fileno()], [], [], max(0.0, deadline - time.monotonic()))
        if readable == [stop.fileno()]:
            stop.sleep(0)
            continue
        piece = os.read(output, 4096) if readable else b""
        if not piece:
            return line
        line += piece
    return line


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The address of the providers, and the words to put before a command that runs beside them or in a region.

    Without a network, everything runs on the loopback of this machine, for the reason in `absence`.
    """

    absence: str = ""
    address: str = "127.0.0.1"
    providers: Sequence[str] = ()
    regions: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.absence:
            return f"the distance of the regions is simulated in the providers only: {self.absence}"
        return "round trips to the providers: " + ", ".join(f"{ms} ms from {at}" for at, ms in ROUND_TRIPS_MS.items())

    @property
    def options(self) -> Iterator[str]:
        """The options by which the simulator takes the network's share from its own times; none without a network."""
        if not self.absence:
            yield "--allow-remote"
            for region, round_trip_ms in ROUND_TRIPS_MS.items():
                yield from ("--round-trip", region, str(round_trip_ms))


def collector_socket(root: Path) -> Path | None:
    """The path of the collector's Unix socket in the folder of the demo; `None` if it is too long for a socket."""
    path = root / "collector.sock"
    return path if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES else None


def start_network(processes: Processes, root: Path) -> Network:
    """Start the network; one without namespaces if that is not possible."""
    if collector_socket(root) is None:
        return Network(absence=f"the path of {root} is too long for a Unix socket")
    round_trips = [f"{region}={ms}" for region, ms in ROUND_TRIPS_MS.items()]
    try:
        # A program of one thread: others may not enter a user namespace.
        ready = processes.start_ready("network", "isochrone_sim.network", *round_trips, ends_with_input=True)
    except DemoError as error:
        return Network(absence=str(error).splitlines()[-1])
    return Network(address=ready["address"], providers=ready["hub"], regions=ready["regions"])
