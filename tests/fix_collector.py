"""Borrow collectors: real `isochrone-collector serve` processes that end with the test."""

import json
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire import answers, codec, identity_file, insights, model, operations
from isochrone_wire.address import parse_address
from isochrone_wire.channel import PLAIN, open_channel
from isochrone_wire.identity_file import Identity
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

    def __init__(self, address: str, who: Identity | None = None) -> None:
        trust, credential = (who.trust, who.credential) if who else (PLAIN, None)
        self.channel = open_channel(parse_address(address), trust, credential)
        self.fleet = fleet_pb2_grpc.FleetStub(self.channel)
        self.operations = operations_pb2_grpc.OperationsStub(self.channel)
        self.observatory = observatory_pb2_grpc.ObservatoryStub(self.channel)

    def push(self, batch: model.Batch) -> model.Receipt:
        """Push one batch."""
        return codec.decode(model.Receipt, self.fleet.Push(codec.encode(batch), timeout=ANSWER_SECONDS))

    def fetch_plan(self, if_version: int | None = None, vantage: model.Vantage | None = None) -> model.Plan | None:
        """The plan in force, unless the version given is it."""
        who = codec.encode(vantage) if vantage else None
        request = fleet_pb2.FetchPlanRequest(if_version=if_version, vantage=who)
        response = self.fleet.FetchPlan(request, timeout=ANSWER_SECONDS)
        return codec.decode(model.Plan, response.plan) if response.HasField("plan") else None

    def apply(self, document: str, *, dry_run: bool = False) -> operations.PlanChange:
        """Apply a plan document."""
        request = operations_pb2.ApplyPlanRequest(document=document, dry_run=dry_run, applied_by="a test")
        return codec.decode(operations.PlanChange, self.operations.ApplyPlan(request, timeout=ANSWER_SECONDS))

    def roll_back(self, to_version: int) -> operations.PlanChange:
        """Apply an earlier plan again."""
        request = operations_pb2.RollBackPlanRequest(to_version=to_version, applied_by="a test")
        return codec.decode(operations.PlanChange, self.operations.RollBackPlan(request, timeout=ANSWER_SECONDS))

    def invite(self, name: str, **more: Any) -> str:
        """A join token; of a vantage in `us-east-2` for an hour, unless `more` says otherwise."""
        told: dict[str, Any] = {"role": "vantage", "region": "us-east-2", "expires_us": 3600 * model.SECOND_US} | more
        request = operations_pb2.InviteRequest(name=name, **told)
        return self.operations.Invite(request, timeout=ANSWER_SECONDS).token

    def revoke(self, name: str) -> int:
        """Shut a name out."""
        return self.operations.Revoke(operations_pb2.RevokeRequest(name=name), timeout=ANSWER_SECONDS).revoked

    def access(self) -> list[operations.Access]:
        """Who may come in."""
        response = self.operations.ListAccess(operations_pb2.ListAccessRequest(), timeout=ANSWER_SECONDS)
        return list(codec.decode(operations.AccessList, response).access)

    def targets(self) -> answers.TargetList:
        """The targets of the plan in force."""
        response = self.observatory.ListTargets(observatory_pb2.ListTargetsRequest(), timeout=ANSWER_SECONDS)
        return codec.decode(answers.TargetList, response)

    def samples(self, selection: answers.Selection, limit: int = 0) -> list[answers.StoredSample]:
        """The newest samples of a selection."""
        request = observatory_pb2.ListSamplesRequest(selection=codec.encode(selection), limit=limit)
        response = self.observatory.ListSamples(request, timeout=ANSWER_SECONDS)
        return [codec.decode(answers.StoredSample, sample) for sample in response.samples]

    def leaderboard(self, selection: answers.Selection, order: str = "") -> answers.Leaderboard:
        """The standings of a selection."""
        request = observatory_pb2.GetLeaderboardRequest(selection=codec.encode(selection), order=order)
        return codec.decode(answers.Leaderboard, self.observatory.GetLeaderboard(request, timeout=ANSWER_SECONDS))

    def region_costs(self, selection: answers.Selection, metric: str = "") -> tuple[insights.RegionCost, ...]:
        """Where each provider of a selection is nearest, and what the others pay."""
        request = observatory_pb2.GetRegionCostsRequest(selection=codec.encode(selection), metric=metric)
        response = self.observatory.GetRegionCosts(request, timeout=ANSWER_SECONDS)
        return codec.decode(insights.RegionCostList, response).costs

    def latency_budgets(self, selection: answers.Selection, *uses: str) -> tuple[insights.LatencyBudget, ...]:
        """Which targets of a selection keep which uses' budgets."""
        request = observatory_pb2.GetLatencyBudgetsRequest(selection=codec.encode(selection), uses=uses)
        response = self.observatory.GetLatencyBudgets(request, timeout=ANSWER_SECONDS)
        return codec.decode(insights.LatencyBudgetList, response).budgets

    def tiers(self, selection: answers.Selection) -> tuple[insights.TierLine, ...]:
        """The targets of a selection by price tier."""
        request = observatory_pb2.GetTiersRequest(selection=codec.encode(selection))
        return codec.decode(insights.TierList, self.observatory.GetTiers(request, timeout=ANSWER_SECONDS)).tiers

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

    def vantages(self) -> answers.VantageList:
        """How every vantage is doing."""
        response = self.observatory.ListVantages(observatory_pb2.ListVantagesRequest(), timeout=ANSWER_SECONDS)
        return codec.decode(answers.VantageList, response)

    def drift(self, selection: answers.Selection) -> insights.DriftList:
        """The lasting changes of a selection."""
        request = observatory_pb2.ListDriftRequest(selection=codec.encode(selection))
        return codec.decode(insights.DriftList, self.observatory.ListDrift(request, timeout=ANSWER_SECONDS))

    def alerts(self, window: answers.Window) -> insights.AlertList:
        """The alerts of a window."""
        request = observatory_pb2.ListAlertsRequest(window=codec.encode(window))
        return codec.decode(insights.AlertList, self.observatory.ListAlerts(request, timeout=ANSWER_SECONDS))

    def test_alert(self) -> insights.Alert:
        """What became of a test alert."""
        response = self.operations.TestAlert(operations_pb2.TestAlertRequest(), timeout=ANSWER_SECONDS)
        return codec.decode(insights.Alert, response)

    def spend(self, selection: answers.Selection) -> tuple[answers.SpendLine, ...]:
        """What the vantages of a selection have spent today."""
        request = observatory_pb2.GetSpendRequest(selection=codec.encode(selection))
        response = self.observatory.GetSpend(request, timeout=ANSWER_SECONDS)
        return codec.decode(answers.SpendList, response).spend


@dataclass(slots=True)
class Collector:
    """A running collector. `database_url` is empty when it brought its own PostgreSQL, in `data_dir`. `call` speaks as
    its operator. `http` is the URL of its HTTP, empty unless the test asked for it.
    """

    process: subprocess.Popen[bytes] = field(repr=False)
    address: str
    database_url: str
    database: str
    data_dir: Path
    log_file: Path
    call: Caller = field(repr=False)
    http: str = ""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.address.rpartition(":")[2])

    def scrape(self) -> dict[str, float]:
        """What its metrics say, by name with labels as Prometheus writes them."""
        [line] = [line for line in self.log().splitlines() if "metrics.started" in line]
        with urllib.request.urlopen(f"http://{json.loads(line)['listen']}/metrics", timeout=ANSWER_SECONDS) as page:
            lines = page.read().decode().splitlines()
        told = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in told}

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
    """Starts a collector on the test's database, on another one, or with nothing but a `data_dir` on its own.

    `more` are further options of `serve`, `--tls` for instance.
    """

    def __call__(
        self,
        *,
        port: int = 0,
        database_url: str | None = None,
        data_dir: Path | None = None,
        more: Sequence[str] = (),
    ) -> Collector:
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


@pytest.fixture(scope="module")
def shared_guarded_collector(tmp_path_factory: pytest.TempPathFactory, shared_database_url: str) -> Iterator[Collector]:
    """A collector that speaks TLS and knows whom it lets in, shared by the tests of a module."""
    with _collectors(tmp_path_factory.mktemp("guarded"), lambda: shared_database_url) as start:
        yield start(more=["--tls"])


@contextmanager
def _collectors(folder: Path, default_url: Callable[[], str]) -> Iterator[StartCollector]:
    started: list[Collector] = []

    def start(
        *,
        port: int = 0,
        database_url: str | None = None,
        data_dir: Path | None = None,
        more: Sequence[str] = (),
    ) -> Collector:
        url = database_url or ("" if data_dir else default_url())
        log_file = folder / f"collector-{len(started)}.log"
        own = data_dir or folder / f"collector-{len(started)}"
        started.append(_start(port=port, url=url, data_dir=own, log_file=log_file, more=more))
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


def _start(*, port: int, url: str, data_dir: Path, log_file: Path, more: Sequence[str]) -> Collector:
    where = ["--data-dir", str(data_dir), *(("--database-url", url) if url else ())]
    command = [sys.executable, "-m", "isochrone_collector", "serve", "--listen", f"127.0.0.1:{port}", *where]
    command += ["--metrics-listen", "127.0.0.1:0", "--http-listen", "off", *more]
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
        call=Caller(ready["listen"], identity_file.read(Path(ready["operator"])) if "operator" in ready else None),
        http=ready.get("http", ""),
    )
