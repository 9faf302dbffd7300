"""Borrow collectors: real `isochrone-collector serve` processes that end with the test."""

import json
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc
import pytest

from isochrone_collector.store.embedded import EmbeddedPostgres
from isochrone_wire import answers, codec, model, operations
from isochrone_wire.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    observatory_pb2,
    observatory_pb2_grpc,
    operations_pb2,
    operations_pb2_grpc,
)

START_SECONDS = 60.0
STOP_SECONDS = 30.0
ANSWER_SECONDS = 30.0


class Caller:
    """Everything a collector can be asked over one channel, values in and values out. Refusals are `grpc.RpcError`."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.fleet = fleet_pb2_grpc.FleetStub(self.channel)
        self.operations = operations_pb2_grpc.OperationsStub(self.channel)
        self.observatory = observatory_pb2_grpc.ObservatoryStub(self.channel)

    def push(self, batch: model.Batch) -> model.Receipt:
        """Push one batch."""
        return codec.decode(model.Receipt, self.fleet.Push(codec.encode(batch), timeout=ANSWER_SECONDS))

    def fetch_plan(self, if_version: int | None = None) -> model.Plan | None:
        """The plan in force, unless the version given is it."""
        request = fleet_pb2.FetchPlanRequest(if_version=if_version)
        response = self.fleet.FetchPlan(request, timeout=ANSWER_SECONDS)
        return codec.decode(model.Plan, response.plan) if response.HasField("plan") else None

    def apply(self, document: str, *, dry_run: bool = False) -> operations.PlanChange:
        """Apply a plan document."""
        request = operations_pb2.ApplyPlanRequest(document=document, dry_run=dry_run, applied_by="a test")
        return codec.decode(operations.PlanChange, self.operations.ApplyPlan(request, timeout=ANSWER_SECONDS))

    def targets(self) -> answers.TargetList:
        """The targets of the plan in force."""
        response = self.observatory.ListTargets(observatory_pb2.ListTargetsRequest(), timeout=ANSWER_SECONDS)
        return codec.decode(answers.TargetList, response)

    def samples(self, selection: answers.Selection, limit: int = 0) -> list[answers.StoredSample]:
        """The newest samples of a selection."""
        request = observatory_pb2.ListSamplesRequest(selection=codec.encode(selection), limit=limit)
        response = self.observatory.ListSamples(request, timeout=ANSWER_SECONDS)
        return [codec.decode(answers.StoredSample, sample) for sample in response.samples]

    def leaderboard(self, selection: answers.Selection) -> answers.Leaderboard:
        """The standings of a selection."""
        request = observatory_pb2.GetLeaderboardRequest(selection=codec.encode(selection))
        return codec.decode(answers.Leaderboard, self.observatory.GetLeaderboard(request, timeout=ANSWER_SECONDS))

    def differentials(self, selection: answers.Selection, **question: Any) -> tuple[answers.Differential, ...]:
        """The differentials of a selection; `baseline`, `against` and `metric` as in the request."""
        request = observatory_pb2.GetDifferentialsRequest(selection=codec.encode(selection), **question)
        response = self.observatory.GetDifferentials(request, timeout=ANSWER_SECONDS)
        return codec.decode(answers.DifferentialList, response).differentials

    def coverage(self, selection: answers.Selection) -> tuple[answers.Coverage, ...]:
        """The coverage of a selection."""
        request = observatory_pb2.GetCoverageRequest(selection=codec.encode(selection))
        response = self.observatory.GetCoverage(request, timeout=ANSWER_SECONDS)
        return codec.decode(answers.CoverageList, response).coverage


@dataclass(slots=True)
class Collector:
    """A running collector. `database_url` is empty when it brought its own PostgreSQL, in `data_dir`."""

    process: subprocess.Popen[bytes] = field(repr=False)
    address: str
    database_url: str
    database: str
    data_dir: Path
    log_file: Path
    call: Caller = field(repr=False)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.address.rpartition(":")[2])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and return its exit code."""
        self.process.send_signal(how)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it without notice."""
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """What it wrote to stderr so far."""
        return self.log_file.read_text()

    def apply(self, plan: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
        """Put a plan into force with the real command, by way of a file in `folder`."""
        file = folder / "plan.yaml"
        file.write_text(plan)
        done = run_command("apply", str(file), "--collector", self.address, "--yes", *more)
        assert done.returncode == 0, done.stderr
        return done


class StartCollector(Protocol):
    """Starts a collector on the test's database, on another one, or with a `data_dir` on its own."""

    def __call__(self, *, port: int = 0, database_url: str | None = None, data_dir: Path | None = None) -> Collector:
        """The collector, serving."""
        ...


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `isochrone-collector` to its end."""
    command = [sys.executable, "-m", "isochrone_collector", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=START_SECONDS, check=False, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def start_collector(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartCollector]:
    """Collectors that end with the test, and their databases with them."""
    with _collectors(tmp_path, lambda: str(request.getfixturevalue("database_url"))) as start:
        yield start


@pytest.fixture(scope="module")
def shared_collector(tmp_path_factory: pytest.TempPathFactory, shared_database_url: str) -> Iterator[Collector]:
    """A collector that the tests of a module share; they must not disturb one another."""
    with _collectors(tmp_path_factory.mktemp("collector"), lambda: shared_database_url) as start:
        yield start()


@contextmanager
def _collectors(folder: Path, default_url: Callable[[], str]) -> Iterator[StartCollector]:
    started: list[Collector] = []

    def start(*, port: int = 0, database_url: str | None = None, data_dir: Path | None = None) -> Collector:
        url = "" if data_dir else database_url or default_url()
        log_file = folder / f"collector-{len(started)}.log"
        started.append(_start(port=port, url=url, data_dir=data_dir or folder / "unused", log_file=log_file))
        return started[-1]

    try:
        yield start
    finally:
        for collector in started:
            _end(collector)
        for data_dir in {collector.data_dir for collector in started if not collector.database_url}:
            # Starting stops whatever a killed collector left behind.
            with EmbeddedPostgres(data_dir):
                pass


def _end(collector: Collector) -> None:
    collector.call.channel.close()
    if collector.process.poll() is None:
        collector.kill()
    assert collector.process.stdout is not None
    collector.process.stdout.close()


def _start(*, port: int, url: str, data_dir: Path, log_file: Path) -> Collector:
    where: Sequence[str] = ("--database-url", url) if url else ("--data-dir", str(data_dir))
    command = [sys.executable, "-m", "isochrone_collector", "serve", "--listen", f"127.0.0.1:{port}", *where]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline()
    assert line, f"the collector did not start: {log_file.read_text()}"
    ready = json.loads(line)
    return Collector(
        process=process,
        address=ready["listen"],
        database_url=url,
        database=ready["database"],
        data_dir=data_dir,
        log_file=log_file,
        call=Caller(ready["listen"]),
    )
