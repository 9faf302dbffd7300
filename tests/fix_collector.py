"""Fixtures for collectors: real `isochrone-collector serve` processes that are stopped after the test."""

import json
import os
import select
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire import answers, codec, identity_file, insights, model, operations
from isochrone_wire.address import parse_local_address
from isochrone_wire.channel import PLAIN, open_channel
from isochrone_wire.fleet import Coverage, CoverageList, SpendLine, SpendList, StoredSample, TargetList, VantageList
from isochrone_wire.identity_file import Identity
from isochrone_wire.queries.series import SeriesList
from isochrone_wire.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    observatory_pb2,
    observatory_pb2_grpc,
    operations_pb2,
    operations_pb2_grpc,
)
from testdata import preforked
from testdata.preforked import Program

# Options of `serve` that require TLS.
_SECURED = {"--tls", "--certificate", "0.0.0.0:0"}

START_SECONDS = 60.0
STOP_SECONDS = 30.0
ANSWER_SECONDS = 30.0
# Samples of the last days only: each day has a partition, which takes as long as the rest of the start together.
KEEP_SAMPLES = ("--keep-samples", "2d")
# Of a request that a proxy passes on.
PROXY_HEADERS = {"X-Forwarded-User": "ida", "X-Isochrone-Proxy-Secret": "0123456789abcdef-of-a-test"}
KEEP_A_MONTH = ("--keep-samples", "35d")


class Caller:
    """All calls to a collector over one channel, with values as arguments and results. Errors are `grpc.RpcError`."""

    def __init__(self, address: str, identity: Identity | None = None) -> None:
        trust, credential = (identity.trust, identity.credential) if identity else (PLAIN, None)
        self.channel = open_channel(parse_local_address(address), trust, credential)
        self.fleet = fleet_pb2_grpc.FleetStub(self.channel)
        self.operations = operations_pb2_grpc.OperationsStub(self.channel)
        self.observatory = observatory_pb2_grpc.ObservatoryStub(self.channel)

    def push(self, batch: model.Batch) -> operations.Receipt:
        """Push one batch."""
        return codec.decode(operations.Receipt, self.fleet.Push(codec.encode(batch), timeout=ANSWER_SECONDS))

    def fetch_plan(
        self, if_version: int | None = None, vantage: model.Vantage | None = None, if_content_hash: bytes | None = None
    ) -> model.Plan | None:
        """Return the plan in force, or `None` if it is `if_version`, and has this hash if one is given."""
        identity = codec.encode(vantage) if vantage else None
        request = fleet_pb2.FetchPlanRequest(if_version=if_version, vantage=identity, if_content_hash=if_content_hash)
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
        """Return a join token; by default for a vantage in `us-east-2`, valid for an hour."""
        options: dict[str, Any] = {
            "role": "vantage",
            "region": "us-east-2",
            "expires_us": 3600 * model.SECOND_US,
        } | more
        request = operations_pb2.InviteRequest(name=name, **options)
        return self.operations.Invite(request, timeout=ANSWER_SECONDS).token

    def renew(self) -> operations.Renewed:
        """Return the successor of this caller's credential, and the certificates."""
        response = self.fleet.Renew(fleet_pb2.RenewRequest(credential=True), timeout=ANSWER_SECONDS)
        return codec.decode(operations.Renewed, response)

    def revoke(self, name: str) -> int:
        """Revoke the access of a name."""
        return self.operations.Revoke(operations_pb2.RevokeRequest(name=name), timeout=ANSWER_SECONDS).revoked

    def record_restore(self, *, vantages: bool = False) -> operations.Revoked:
        """Void what a restored database has revived."""
        request = operations_pb2.RecordRestoreRequest(vantages=vantages)
        response = self.operations.RecordRestore(request, timeout=ANSWER_SECONDS)
        return codec.decode(operations.Revoked, response)

    def access(self) -> list[operations.Access]:
        """Return all credentials and invitations."""
        response = self.operations.ListAccess(operations_pb2.ListAccessRequest(), timeout=ANSWER_SECONDS)
        return list(codec.decode(operations.AccessList, response).access)

    def targets(self) -> TargetList:
        """Return the targets of the plan in force."""
        response = self.observatory.ListTargets(observatory_pb2.ListTargetsRequest(), timeout=ANSWER_SECONDS)
        return codec.decode(TargetList, response)

    def samples(self, selection: answers.Selection, limit: int = 0) -> list[StoredSample]:
        """Return the newest samples of a selection."""
        request = observatory_pb2.ListSamplesRequest(selection=codec.encode(selection), limit=limit)
        response = self.observatory.ListSamples(request, timeout=ANSWER_SECONDS)
        return [codec.decode(StoredSample, sample) for sample in response.samples]

    def leaderboard(self, selection: answers.Selection, order: str = "") -> insights.Leaderboard:
        """Return the standings of a selection."""
        request = observatory_pb2.GetLeaderboardRequest(selection=codec.encode(selection), order=order)
        return codec.decode(insights.Leaderboard, self.observatory.GetLeaderboard(request, timeout=ANSWER_SECONDS))

    def region_costs(self, selection: answers.Selection, metric: str = "") -> tuple[insights.RegionCost, ...]:
        """Return the region costs of a selection."""
        request = observatory_pb2.GetRegionCostsRequest(selection=codec.encode(selection), metric=metric)
        response = self.observatory.GetRegionCosts(request, timeout=ANSWER_SECONDS)
        return codec.decode(insights.RegionCostList, response).costs

    def latency_budgets(
        self, selection: answers.Selection, *uses: str, **more: Any
    ) -> tuple[insights.LatencyBudget, ...]:
        """Return the eligibility of the targets of a selection for these uses; `more` are fields of the request."""
        request = observatory_pb2.GetLatencyBudgetsRequest(selection=codec.encode(selection), uses=uses, **more)
        response = self.observatory.GetLatencyBudgets(request, timeout=ANSWER_SECONDS)
        return codec.decode(insights.LatencyBudgetList, response).budgets

    def tiers(self, selection: answers.Selection) -> tuple[insights.TierLine, ...]:
        """Return the targets of a selection by price tier."""
        request = observatory_pb2.GetTiersRequest(selection=codec.encode(selection))
        return codec.decode(insights.TierList, self.observatory.GetTiers(request, timeout=ANSWER_SECONDS)).tiers

    def differentials(self, selection: answers.Selection, **question: Any) -> tuple[answers.Differential, ...]:
        """Return the differentials of a selection; `baseline`, `against` and `metric` as in the request."""
        request = observatory_pb2.GetDifferentialsRequest(selection=codec.encode(selection), **question)
        response = self.observatory.GetDifferentials(request, timeout=ANSWER_SECONDS)
        return codec.decode(answers.DifferentialList, response).differentials

    def coverage(self, selection: answers.Selection) -> tuple[Coverage, ...]:
        """Return the coverage of a selection."""
        request = observatory_pb2.GetCoverageRequest(selection=codec.encode(selection))
        response = self.observatory.GetCoverage(request, timeout=ANSWER_SECONDS)
        return codec.decode(CoverageList, response).coverage

    def vantages(self) -> VantageList:
        """Return the state of every vantage."""
        response = self.observatory.ListVantages(observatory_pb2.ListVantagesRequest(), timeout=ANSWER_SECONDS)
        return codec.decode(VantageList, response)

    def series(self, selection: answers.Selection, **question: Any) -> SeriesList:
        """Return values over time; `metric` and `points` as in the request."""
        request = observatory_pb2.GetSeriesRequest(selection=codec.encode(selection), **question)
        return codec.decode(SeriesList, self.observatory.GetSeries(request, timeout=ANSWER_SECONDS))

    def rate_limits(self, selection: answers.Selection, **question: Any) -> insights.RateLimitList:
        """Return the rate limits of a selection; `points` as in the request."""
        request = observatory_pb2.GetRateLimitsRequest(selection=codec.encode(selection), **question)
        return codec.decode(insights.RateLimitList, self.observatory.GetRateLimits(request, timeout=ANSWER_SECONDS))

    def drift(self, selection: answers.Selection) -> insights.DriftList:
        """Return the lasting changes of a selection."""
        request = observatory_pb2.ListDriftRequest(selection=codec.encode(selection))
        return codec.decode(insights.DriftList, self.observatory.ListDrift(request, timeout=ANSWER_SECONDS))

    def alerts(self, window: answers.Window) -> insights.AlertList:
        """Return the alerts of a window."""
        request = observatory_pb2.ListAlertsRequest(window=codec.encode(window))
        return codec.decode(insights.AlertList, self.observatory.ListAlerts(request, timeout=ANSWER_SECONDS))

    def test_alert(self) -> insights.Alert:
        """Send a test alert and return the result."""
        response = self.operations.TestAlert(operations_pb2.TestAlertRequest(), timeout=ANSWER_SECONDS)
        return codec.decode(insights.Alert, response)

    def spend(self, selection: answers.Selection) -> tuple[SpendLine, ...]:
        """Return the spending of the vantages of a selection today."""
        request = observatory_pb2.GetSpendRequest(selection=codec.encode(selection))
        response = self.observatory.GetSpend(request, timeout=ANSWER_SECONDS)
        return codec.decode(SpendList, response).spend


@dataclass(slots=True)
class Collector:
    """A running collector. `database_url` is empty if it uses its own PostgreSQL, in `data_dir`. `call` is
    authenticated as its operator. `http` is the URL of its HTTP interface, empty if not started.
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
        """The process id."""
        return self.process.pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.address.rpartition(":")[2])

    def scrape(self) -> dict[str, float]:
        """Return its metrics by name with labels, in the format of Prometheus."""
        request, trust = urllib.request.Request(f"{self.http}/metrics"), None
        if self.http.startswith("https:"):
            operator = identity_file.read(self.data_dir / "operator.json")
            request.add_header("Authorization", f"Bearer {operator.credential}")
            trust = ssl._create_unverified_context()
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=trust) as page:
            lines = page.read().decode().splitlines()
        options = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in options}

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(how)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """Return its stderr so far."""
        return self.log_file.read_text()

    def apply(self, plan: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
        """Apply a plan with the real command, through a file in `folder`."""
        file = folder / "plan.yaml"
        file.write_text(plan)
        done = run_command("apply", str(file), "--collector", self.address, "--yes", *more)
        assert done.returncode == 0, done.stderr
        return done


class StartCollector(Protocol):
    """Starts a collector on the test's database, on another one, or on its own database in `data_dir`.

    `more` are further options of `serve`, for example `--tls`; `script` is a file to run instead of the real command.
    Without TLS in `more`, it trusts loopback unless `trusting` is false.
    """

    def __call__(
        self,
        *,
        port: int = 0,
        database_url: str | None = None,
        data_dir: Path | None = None,
        more: Sequence[str] = (),
        script: Path | None = None,
        trusting: bool = True,
    ) -> Collector:
        """Return the running collector."""
        ...


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `isochrone-collector` to completion."""
    return preforked.run("isochrone_collector", *words, timeout=START_SECONDS)


@pytest.fixture
def start_collector(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartCollector]:
    """Collectors that are stopped after the test, with their databases."""
    with _collectors(tmp_path, lambda: str(request.getfixturevalue("database_url"))) as start:
        yield start


@pytest.fixture(scope="module")
def shared_collector(tmp_path_factory: pytest.TempPathFactory, shared_database_url: str) -> Iterator[Collector]:
    """A collector shared by the tests of a module, which must not affect one another."""
    with _collectors(tmp_path_factory.mktemp("collector"), lambda: shared_database_url) as start:
        yield start(more=KEEP_A_MONTH)


@pytest.fixture(scope="module")
def shared_guarded_collector(tmp_path_factory: pytest.TempPathFactory, shared_database_url: str) -> Iterator[Collector]:
    """A collector with TLS and credentials, shared by the tests of a module."""
    with _collectors(tmp_path_factory.mktemp("guarded"), lambda: shared_database_url) as start:
        yield start(more=["--tls", *KEEP_A_MONTH])


@pytest.fixture(scope="module")
def shared_public_collector(tmp_path_factory: pytest.TempPathFactory, shared_database_url: str) -> Iterator[Collector]:
    """A collector with a public page, whose other answers need credentials or a user of a proxy, shared by the tests of
    a module.
    """
    folder = tmp_path_factory.mktemp("public")
    secret = folder / "proxy-secret"
    secret.write_text(PROXY_HEADERS["X-Isochrone-Proxy-Secret"])
    proxied = ["--proxy-user-header", "X-Forwarded-User", "--proxy-secret-file", str(secret)]
    with _collectors(folder, lambda: shared_database_url) as start:
        yield start(more=["--public-page", *proxied, *KEEP_A_MONTH], trusting=False)


@contextmanager
def _collectors(folder: Path, default_url: Callable[[], str]) -> Iterator[StartCollector]:
    started: list[Collector] = []

    def start(
        *,
        port: int = 0,
        database_url: str | None = None,
        data_dir: Path | None = None,
        more: Sequence[str] = (),
        script: Path | None = None,
        trusting: bool = True,
    ) -> Collector:
        # In the environment, because an earlier version in `script` does not have the option.
        trust = {"ISOCHRONE_TRUST_LOOPBACK": "1"} if trusting and not _SECURED & {*more} else {}
        url = database_url or ("" if data_dir else default_url())
        log_file = folder / f"collector-{len(started)}.log"
        own = data_dir or folder / f"collector-{len(started)}"
        started.append(
            _start(port=port, url=url, data_dir=own, log_file=log_file, more=more, script=script, environment=trust)
        )
        return started[-1]

    try:
        yield start
    finally:
        for collector in started:
            _end(collector)
        for data_dir in {collector.data_dir for collector in started if not collector.database_url}:
            # Starting it stops the processes that a killed collector left behind.
            with EmbeddedPostgres(data_dir):
                pass


def _end(collector: Collector) -> None:
    collector.call.channel.close()
    if collector.process.poll() is None:
        collector.kill()
    assert collector.process.stdout is not None
    collector.process.stdout.close()


def _start(
    *,
    port: int,
    url: str,
    data_dir: Path,
    log_file: Path,
    more: Sequence[str],
    script: Path | None,
    environment: Mapping[str, str],
) -> Collector:
    where = ["--data-dir", str(data_dir), *(("--database-url", url) if url else ())]
    options = ["--listen", f"127.0.0.1:{port}", *where, "--http-listen", "127.0.0.1:0", *KEEP_SAMPLES]
    with log_file.open("wb") as log:
        words = ["serve", *options, *more]
        streams = {"stdout": subprocess.PIPE, "stderr": log, "env": os.environ | environment}
        process: subprocess.Popen[bytes] = (
            subprocess.Popen([sys.executable, script, *words], **streams)  # type: ignore[call-overload]
            if script
            else Program[bytes]("isochrone_collector", *words, **streams)
        )
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
