"""Borrow a world of LLM providers: real `isochrone-sim serve` processes with known timing."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
import pytest

BASELINE = "us-east-2"
API_KEY = "sk-simulator-right-key"
STOP_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class Simulator:
    """A running simulator. `endpoints` are base URLs by client region; each ends in `/v1`, without a slash."""

    process: subprocess.Popen[str] = field(repr=False)
    endpoints: dict[str, str]

    @property
    def base_url(self) -> str:
        """The baseline region's base URL, or the first one's."""
        return self.endpoints.get(BASELINE) or next(iter(self.endpoints.values()))

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def truth(self, request_id: str | None = None) -> list[dict[str, Any]]:
        """What really happened, one record per exchange, oldest first; or the record of one request."""
        address = self.base_url.removesuffix("/v1") + "/truth"
        told = httpx.get(address, params={"request_id": request_id} if request_id else None, trust_env=False)
        return [json.loads(line) for line in told.text.splitlines()]

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)


class StartSimulator(Protocol):
    """Starts a simulator with one socket per region, and a model for every fault."""

    def __call__(self, *regions: str, more: Sequence[str] = ()) -> Simulator:
        """The simulator, reachable. `more` are further options of `isochrone-sim serve`."""
        ...


@pytest.fixture
def simulator() -> Iterator[StartSimulator]:
    """Simulators that end with the test."""
    running: list[Simulator] = []

    def start(*regions: str, more: Sequence[str] = ()) -> Simulator:
        running.append(_start(regions or (BASELINE,), more))
        return running[-1]

    yield start
    for each in running:
        _end(each)


@pytest.fixture(scope="session")
def fault_simulator() -> Iterator[Simulator]:
    """One simulator for all tests that do not mind each other's requests."""
    with _running() as running:
        yield running


@pytest.fixture
def simulator_with_key() -> Iterator[Simulator]:
    """A simulator that answers nobody without `API_KEY`."""
    with _running("--api-key", API_KEY) as running:
        yield running


@contextmanager
def _running(*more: str) -> Iterator[Simulator]:
    running = _start((BASELINE,), more)
    try:
        yield running
    finally:
        _end(running)


def _start(regions: Sequence[str], more: Sequence[str]) -> Simulator:
    listens = [option for region in regions for option in ("--listen", f"{region}=127.0.0.1:0")]
    command = [sys.executable, "-m", "isochrone_sim", "serve", "--faults", *listens, *more]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.stdout.close()
        pytest.fail(f"isochrone-sim did not start: exit code {process.wait(STOP_SECONDS)}")
    return Simulator(process=process, endpoints=json.loads(line)["endpoints"])


def _end(running: Simulator) -> None:
    if running.process.poll() is None:
        running.process.terminate()
        try:
            running.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
    if running.process.stdout is not None:
        running.process.stdout.close()
