"""A fleet of simulated agents on one collector: steady load, then a reconnect of all agents at once.

Real gRPC over real TLS: every agent has its own connection and credential; a few processes hold all agents. An agent
pushes 15 samples every 15 s. After half a minute of steady load all channels are closed and reopened at the same
moment, and every agent pushes a heartbeat and three batches of backlog; a minute of steady load follows. Then the same
agents do the same with a bare gRPC server (`bench.reference_collector`): the goals are ratios of the two.

A reply time runs from the call to the committed receipt as seen by the agent; the first one after the storm includes
TCP and TLS, and retries are included. `storm_p99_ms` covers all pushes of the minute after the storm, half of which are
the storm's own; `storm_over_s` is when the last of those was answered, at most twice as late as by the bare server.
`reply_p99_ms` is the p99 of the worst five seconds from then on, and at least from the fifteenth second, to the end of
the minute; `steady_p99_ms` covers the half minute before. All pushes must have been stored: the ledger is compared with
what was sent. Agents, server and PostgreSQL share this machine.

usage: fleet.py [--agents N] [--plain] prints a RESULT line; exit 1 when a goal is missed or a batch is missing
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

import psycopg

from bench.processes import RunningServer, cpu_seconds, rss_mb, running_collector
from bench.reference_collector import reference_collector
from bench.result import at_most, conclude
from bench.simulated_agents import BACKLOG_BATCHES, EVERY_SECONDS, vantage_name
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire.address import parse_address
from isochrone_wire.channel import open_channel
from isochrone_wire.credentials import Credential, hash_secret
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc, operations_pb2, operations_pb2_grpc

MAX_STORM_RATIO = 2
GOALS = {
    "reply_p99_ratio": at_most(4),
    "storm_p99_ratio": at_most(3),
    "storm_over_ratio": at_most(MAX_STORM_RATIO),
    "lost_batches": at_most(0),
}
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
    """The start of a push (seconds since the storm), the duration until its reply in seconds, and its attempts."""

    began: float
    took: float
    attempts: int


def main() -> int:
    """Return 0 if the goal is met and nothing is missing."""
    parser = argparse.ArgumentParser(description="A fleet on one collector.")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--plain", action="store_true", help="without TLS and credentials")
    options = parser.parse_args()
    raise_limit(options.agents * DESCRIPTORS_PER_AGENT + 500)
    # On SIGTERM, exit normally, so that child processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as name, EmbeddedPostgres(Path(name, "postgres")) as postgres:
        credentials = _credentials(postgres.conninfo, options.agents)
        agents = [(number, credentials[vantage_name(number)]) for number in range(options.agents)]
        with running_collector(Path(name), postgres.conninfo, *(() if options.plain else ("--tls",))) as collector:
            targets = _apply(collector, credentials["operator"], credentials[vantage_name(0)])
            figures, pushes = _storm(collector, agents, targets)
        sent, stored = len(pushes) - len(agents), _batches(postgres.conninfo)
        with reference_collector(postgres.conninfo, Path(name), tls=not options.plain) as reference:
            expected, expected_pushes = _storm(reference, agents, targets)
    settled = max(SETTLED_SECONDS, MAX_STORM_RATIO * expected["storm_over_s"])
    for server, own in ((figures, pushes), (expected, expected_pushes)):
        server["reply_p99_ms"] = _worst_p99_ms(own, settled)
    ratios = {f"{name}_ratio": figures[f"{name}_ms"] / expected[f"{name}_ms"] for name in ("reply_p99", "storm_p99")}
    ratios["storm_over_ratio"] = figures["storm_over_s"] / expected["storm_over_s"]
    references = {f"reference_{name}": value for name, value in expected.items()}
    counts = {"agents": options.agents, "batches": sent, "lost_batches": sent - stored}
    return conclude(ratios | counts | figures | references, GOALS)


def _storm(
    server: RunningServer, agents: Sequence[tuple[int, str]], targets: Sequence[int]
) -> tuple[dict[str, float], list[Push]]:
    """Run the whole timeline; return the figures and all pushes."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_start_process(server, agents[n::PROCESSES], targets, len(agents)))
            for n in range(PROCESSES)
        ]
        begin = time.monotonic() + 1
        timeline = {"begin": begin, "storm": begin + EVERY_SECONDS + STEADY_SECONDS}
        timeline["end"] = timeline["storm"] + STORM_SECONDS
        for process in processes:
            _send(process, timeline)
        time.sleep(timeline["begin"] + EVERY_SECONDS - time.monotonic())
        before = cpu_seconds(server.pid)
        time.sleep(timeline["storm"] - time.monotonic())
        storm_begins = cpu_seconds(server.pid)
        pushes = [
            Push(began - timeline["storm"], took, int(attempts))
            for process in processes
            for began, took, attempts in _receive_pushes(process)
        ]
        return _reply_times(pushes, agents=len(agents)) | {
            "cpu_pct": 100 * (storm_begins - before) / STEADY_SECONDS,
            "storm_cpu_s": cpu_seconds(server.pid) - storm_begins,
            "rss_mb": rss_mb(server.pid),
        }, pushes


def _reply_times(pushes: Sequence[Push], *, agents: int) -> dict[str, float]:
    steady = [push for push in pushes if -STEADY_SECONDS <= push.began < 0]
    after = [push for push in pushes if push.began >= 0]
    backlog = sorted(push.began + push.took for push in after)[: agents * (BACKLOG_BATCHES + 1)]
    return {
        "storm_p99_ms": _p99_ms(after),
        "storm_p50_ms": _p50_ms(after),
        "slowest_ms": 1000 * max(push.took for push in after),
        "steady_p99_ms": _p99_ms(steady),
        "steady_p50_ms": _p50_ms(steady),
        "storm_over_s": backlog[-1],
        "retries": float(sum(push.attempts - 1 for push in pushes)),
    }


def _worst_p99_ms(pushes: Sequence[Push], settled: float) -> float:
    """Return the p99 of the worst window from `settled` seconds after the beginning of the storm."""
    starts = [settled + second for second in range(0, int(STORM_SECONDS - settled), WINDOW_SECONDS)]
    windows = [[push for push in pushes if start <= push.began < start + WINDOW_SECONDS] for start in starts]
    return max(_p99_ms(window) for window in windows)


def _p99_ms(pushes: Sequence[Push]) -> float:
    return 1000 * quantiles([push.took for push in pushes], n=100)[98]


def _p50_ms(pushes: Sequence[Push]) -> float:
    return 1000 * median(push.took for push in pushes)


@contextlib.contextmanager
def _start_process(
    server: RunningServer, agents: Sequence[tuple[int, str]], targets: Sequence[int], fleet: int
) -> Iterator[subprocess.Popen[str]]:
    """Start a process with some of the agents, and wait until it is ready."""
    command = [sys.executable, "-m", "bench.simulated_agents"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    trust = server.trust
    address = {"address": server.address, "certificate": trust.roots, "server_name": trust.server_name}
    try:
        _send(process, {"collector": address, "targets": targets, "region": REGION, "agents": agents, "fleet": fleet})
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the agents did not start"
        yield process
    finally:
        process.kill()
        process.wait()


def _send(process: subprocess.Popen[str], what: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()


def _receive_pushes(process: subprocess.Popen[str]) -> list[list[float]]:
    assert process.stdout is not None
    pushes: list[list[float]] = json.loads(process.stdout.readline())
    return pushes


def _credentials(conninfo: str, agents: int) -> dict[str, str]:
    """Insert a credential per agent and one for the operator into the database directly: enrolment is not measured."""
    schema.migrate(conninfo)
    names = [("operator", "operator", None), *((vantage_name(n), "vantage", REGION) for n in range(agents))]
    made = {}
    with psycopg.connect(conninfo) as connection:
        for number, (name, role, region) in enumerate(names, 1):
            credential = Credential(id=number, secret=secrets.token_bytes(32))
            made[name] = str(credential)
            connection.execute(INSERT, (number, name, role, region, hash_secret(credential.secret)))
    return made


def _apply(collector: RunningServer, operator: str, agent: str) -> list[int]:
    """Apply a plan and return the ids of its targets."""
    targets = [
        {"provider": "bench", "model": f"model-{number}", "base_url": "http://nowhere"} for number in range(TARGETS)
    ]
    document = json.dumps({"baseline": REGION, "targets": targets})
    address = parse_address(collector.address)
    with open_channel(address, collector.trust, operator if collector.trust.tls else None) as channel:
        operations_pb2_grpc.OperationsStub(channel).ApplyPlan(
            operations_pb2.ApplyPlanRequest(document=document, applied_by="bench"), timeout=30
        )
    with open_channel(address, collector.trust, agent if collector.trust.tls else None) as channel:
        request = fleet_pb2.FetchPlanRequest()
        request.vantage.name, request.vantage.region = vantage_name(0), REGION
        plan = fleet_pb2_grpc.FleetStub(channel).FetchPlan(request, timeout=30).plan
    return [target.id for target in plan.targets]


def _batches(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("select count(*) from ingest_batch").fetchone()
        return int(row[0]) if row else 0


def raise_limit(descriptors: int) -> None:
    """Raise the limit of open files for one socket per agent, here and in child processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


if __name__ == "__main__":
    sys.exit(main())
