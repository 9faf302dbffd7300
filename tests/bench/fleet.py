"""A fleet of simulated agents on one collector: the everyday, then all of them reconnecting at once.

Real gRPC over real TLS: every agent has a connection and a credential of its own, and they live in a few processes. An
agent pushes 15 samples every 15 s. After a steady half minute all channels are closed and opened again in the same
moment, and every agent pushes a heartbeat and three batches of backlog; then a minute of steady pushing follows.

A reply's time runs from the call to the committed receipt as the agent sees it; the first one after the storm includes
TCP and TLS, and retries are part of it. The goal is that a storm is over within a minute: `reply_p99_ms` is the p99 of
the worst five seconds from the fifteenth second after the storm to the end of the minute, which is already a quarter
of the time allowed. `storm_p99_ms` is over every push of the whole minute, half of which are the storm's own, and
`storm_over_s` when the last of those was answered; `steady_p99_ms` is over the half minute before. All pushes must have
been served: the ledger is compared with what was sent. Agents, collector and PostgreSQL share this machine.

usage: fleet.py [--agents N] [--plain]     prints a RESULT line; exit 1 when reply_p99_ms >= 1000 or a batch is missing
"""

import argparse
import contextlib
import json
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.footprint import cpu_seconds, ready, rss_mb
from bench.simulated_agents import BACKLOG_BATCHES, EVERY_SECONDS, vantage_name
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire.address import parse_address
from isochrone_wire.channel import PLAIN, Trust, open_channel, presented_certificate
from isochrone_wire.credentials import Credential, hash_secret
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc, operations_pb2, operations_pb2_grpc

GOAL_MS = 1000.0
PROCESSES = 4
TARGETS = 15
REGION = "us-east-2"
STEADY_SECONDS = 30.0
STORM_SECONDS = 60.0
SETTLED_SECONDS = 15
WINDOW_SECONDS = 5
DESCRIPTORS_PER_AGENT = 2
INSERT = """
insert into credential (id, name, role, region, secret_hash, created_at) values (%s, %s, %s, %s, %s, now())
"""


@dataclass(frozen=True, slots=True)
class Push:
    """When a push began (seconds of CLOCK_MONOTONIC), how many seconds its reply took, and in how many attempts."""

    began: float
    took: float
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A collector that serves: its process and log, where it is, and how it is known."""

    process: subprocess.Popen[bytes]
    log: Path
    address: str
    trust: Trust

    @property
    def pid(self) -> int:
        """Its process id. Ends the bench when it runs no longer."""
        if self.process.poll() is not None:
            raise SystemExit(f"the collector ended with {self.process.returncode}: {self.log.read_text()[-1000:]}")
        return self.process.pid


def main() -> int:
    """Return 0 when the goal is met and nothing is missing."""
    parser = argparse.ArgumentParser(description="A fleet on one collector.")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--plain", action="store_true", help="without TLS and credentials")
    told = parser.parse_args()
    raise_limit(told.agents * DESCRIPTORS_PER_AGENT + 500)
    # So that what was started here ends with us, however we are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        postgres = stack.enter_context(EmbeddedPostgres(Path(name, "postgres")))
        credentials = _credentials(postgres.conninfo, told.agents)
        served = stack.enter_context(_collector(Path(name), postgres.conninfo, plain=told.plain))
        targets = _apply(served, credentials["operator"], credentials[vantage_name(0)])
        agents = [(number, credentials[vantage_name(number)]) for number in range(told.agents)]
        return _conclude(postgres.conninfo, *_storm(served, agents, targets), agents=told.agents)


def _storm(
    served: Served, agents: Sequence[tuple[int, str]], targets: Sequence[int]
) -> tuple[dict[str, float], list[Push], float]:
    """The whole course; what the collector took, every push, and the instant of the storm."""
    with ExitStack() as stack:
        herds = [
            stack.enter_context(_herd(served, agents[n::PROCESSES], targets, len(agents))) for n in range(PROCESSES)
        ]
        begin = time.monotonic() + 1
        course = {"begin": begin, "storm": begin + EVERY_SECONDS + STEADY_SECONDS}
        course["end"] = course["storm"] + STORM_SECONDS
        for herd in herds:
            _tell(herd, course)
        time.sleep(course["begin"] + EVERY_SECONDS - time.monotonic())
        before = cpu_seconds(served.pid)
        time.sleep(course["storm"] - time.monotonic())
        storm_begins = cpu_seconds(served.pid)
        figures = {"collector_cpu_pct": 100 * (storm_begins - before) / STEADY_SECONDS}
        pushes = [Push(began, took, int(attempts)) for herd in herds for began, took, attempts in _told(herd)]
        figures["storm_cpu_s"] = cpu_seconds(served.pid) - storm_begins
        figures["collector_rss_mb"] = rss_mb(served.pid)
        return figures, pushes, course["storm"]


def _conclude(conninfo: str, took: dict[str, float], pushes: Sequence[Push], storm: float, *, agents: int) -> int:
    steady = [push for push in pushes if storm - STEADY_SECONDS <= push.began < storm]
    after = [push for push in pushes if push.began >= storm]
    backlog = sorted(push.began + push.took for push in after)[: agents * (BACKLOG_BATCHES + 1)]
    figures = {
        "reply_p99_ms": _worst_p99_ms(after, storm),
        "storm_p99_ms": _p99_ms(after),
        "storm_p50_ms": _p50_ms(after),
        "slowest_ms": 1000 * max(push.took for push in after),
        "steady_p99_ms": _p99_ms(steady),
        "steady_p50_ms": _p50_ms(steady),
        "storm_over_s": backlog[-1] - storm,
        "retries": float(sum(push.attempts - 1 for push in pushes)),
        **took,
    }
    sent, stored = len(pushes) - agents, _batches(conninfo)
    shown = " ".join(f"{name}={value:.1f}" for name, value in figures.items())
    print(f"RESULT agents={agents} {shown} batches={sent} stored={stored}")  # noqa: T201  # a bench prints
    return int(figures["reply_p99_ms"] >= GOAL_MS or sent != stored)


def _worst_p99_ms(pushes: Sequence[Push], storm: float) -> float:
    """The p99 of the worst window once the storm should be over."""
    starts = [storm + second for second in range(SETTLED_SECONDS, int(STORM_SECONDS), WINDOW_SECONDS)]
    windows = [[push for push in pushes if start <= push.began < start + WINDOW_SECONDS] for start in starts]
    return max(_p99_ms(window) for window in windows)


def _p99_ms(pushes: Sequence[Push]) -> float:
    return 1000 * quantiles([push.took for push in pushes], n=100)[98]


def _p50_ms(pushes: Sequence[Push]) -> float:
    return 1000 * median(push.took for push in pushes)


@contextlib.contextmanager
def _collector(folder: Path, conninfo: str, *, plain: bool) -> Iterator[Served]:
    parts = {key: value for key, value in conninfo_to_dict(conninfo).items() if value}
    where = ("--database-url", f"postgresql:///?{urlencode(parts)}", "--data-dir", str(folder / "collector"))
    how = ("--metrics-listen", "off", *(() if plain else ("--tls",)))
    command = [sys.executable, "-m", "isochrone_collector", "serve", "--listen", "127.0.0.1:0", *where, *how]
    with (folder / "collector.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        address = ready(process)["listen"]
        trust = PLAIN if plain else presented_certificate(parse_address(address)).pinned
        yield Served(process=process, log=folder / "collector.log", address=address, trust=trust)
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def _herd(
    served: Served, agents: Sequence[tuple[int, str]], targets: Sequence[int], fleet: int
) -> Iterator[subprocess.Popen[str]]:
    """A process with some of the agents, ready."""
    command = [sys.executable, "-m", "bench.simulated_agents"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    trust = served.trust
    collector = {"address": served.address, "certificate": trust.roots, "server_name": trust.server_name}
    try:
        _tell(process, {"collector": collector, "targets": targets, "region": REGION, "agents": agents, "fleet": fleet})
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the agents did not start"
        yield process
    finally:
        process.kill()
        process.wait()


def _tell(process: subprocess.Popen[str], what: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()


def _told(process: subprocess.Popen[str]) -> list[list[float]]:
    assert process.stdout is not None
    pushes: list[list[float]] = json.loads(process.stdout.readline())
    return pushes


def _credentials(conninfo: str, agents: int) -> dict[str, str]:
    """A credential per agent and one for the operator, written straight into the database: joining is not measured."""
    schema.migrate(conninfo)
    everybody = [("operator", "operator", None), *((vantage_name(n), "vantage", REGION) for n in range(agents))]
    made = {}
    with psycopg.connect(conninfo) as connection:
        for number, (name, role, region) in enumerate(everybody, 1):
            credential = Credential(id=number, secret=secrets.token_bytes(32))
            made[name] = str(credential)
            connection.execute(INSERT, (number, name, role, region, hash_secret(credential.secret)))
    return made


def _apply(served: Served, operator: str, agent: str) -> list[int]:
    """Put a plan in force and return the ids of its targets."""
    targets = [
        {"provider": "bench", "model": f"model-{number}", "base_url": "http://nowhere"} for number in range(TARGETS)
    ]
    document = json.dumps({"baseline": REGION, "targets": targets})
    address = parse_address(served.address)
    with open_channel(address, served.trust, operator if served.trust.tls else None) as channel:
        operations_pb2_grpc.OperationsStub(channel).ApplyPlan(
            operations_pb2.ApplyPlanRequest(document=document, applied_by="bench"), timeout=30
        )
    with open_channel(address, served.trust, agent if served.trust.tls else None) as channel:
        request = fleet_pb2.FetchPlanRequest()
        request.vantage.name, request.vantage.region = vantage_name(0), REGION
        plan = fleet_pb2_grpc.FleetStub(channel).FetchPlan(request, timeout=30).plan
    return [target.id for target in plan.targets]


def _batches(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("select count(*) from ingest_batch").fetchone()
        return int(row[0]) if row else 0


def raise_limit(descriptors: int) -> None:
    """Room for a socket per agent, here and in what is started from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


if __name__ == "__main__":
    sys.exit(main())
