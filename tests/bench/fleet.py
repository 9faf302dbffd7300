"""A fleet of simulated agents on one collector: steady load, then a reconnect of all agents at once.

Real gRPC over real TLS: every agent has its own connection and credential; a few processes hold all agents. An agent
pushes 15 samples every 15 s. After half a minute of steady load all channels are closed and reopened at the same
moment, and every agent pushes a heartbeat and three batches of backlog; a minute of steady load follows. Then the same
agents do the same with two bare gRPC servers (`bench.reference_collector`), of which one commits each push and the
other one, `echo`, only answers: the goals are ratios to them.

A reply time runs from the call to the committed receipt as seen by the agent; the first one after the storm includes
TCP and TLS, and retries are included. `storm_p99_ms` covers all pushes of the minute after the storm, half of which are
the storm's own, and is compared with that of the echo server; the other figures are compared with those of the server
that commits. `storm_over_s` is when the last of the storm's pushes was answered, at most twice as late.
`reply_p99_ms` is the p99 of the worst five seconds from then on, and at least from the fifteenth second, to the end of
the minute; `steady_p99_ms` covers the half minute before. All pushes must have been stored: the ledger is compared with
what was sent. Agents, server and PostgreSQL share this machine. All of it is measured on an idle machine, and then with
a busy process on each core (`bench.neighbours`).

The phases of a reconnect are printed as a table: TCP and TLS with the settings of HTTP/2 (`handshake`); of the
heartbeat, the time until the server has read and authenticated it (`admission`), until its commit, and until the agent
has the reply; and a plan fetch, which is an authenticated call without a commit.

usage: fleet.py [--agents N] [--plain] [--part idle|busy] prints a RESULT line; exit 1 when a goal is missed or a batch
is missing
"""

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import psycopg

from bench.neighbours import add_part, goals_of, measured, prefixes_of
from bench.processes import (
    Dialog,
    RunningServer,
    apply_plan,
    cpu_seconds,
    exit_on_sigterm,
    raise_limit,
    rss_mb,
    running_collector,
)
from bench.reference_collector import reference_collector
from bench.result import at_most, conclude
from bench.simulated_agents import BACKLOG_BATCHES, EVERY_SECONDS, vantage_name
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_common.address import parse_address
from isochrone_common.channel import open_channel
from isochrone_common.credentials import Credential, hash_secret

MAX_STORM_RATIO = 2
PHASES = ("handshake", "admission", "commit", "reply", "plan_fetch")
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


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one server, all pushes, and the durations in seconds of each phase of the reconnects."""

    figures: dict[str, float]
    pushes: Sequence[Push]
    phases: Mapping[str, Sequence[float]]


def main() -> int:
    parser = argparse.ArgumentParser(description="A fleet on one collector.")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--plain", action="store_true", help="without TLS and credentials")
    add_part(parser)
    options = parser.parse_args()
    raise_limit(options.agents * DESCRIPTORS_PER_AGENT + 500)
    exit_on_sigterm()
    prefixes = prefixes_of(options)
    return conclude(measured(prefixes, lambda prefix: _measured(options, prefix)), goals_of(prefixes, GOALS))


def _measured(options: argparse.Namespace, prefix: str) -> dict[str, float]:
    """Return the figures of a collector and of both bare servers, on a database of their own."""
    with tempfile.TemporaryDirectory() as name, EmbeddedPostgres(Path(name, "postgres")) as postgres:
        credentials = _credentials(postgres.conninfo, options.agents)
        agents = [(number, credentials[vantage_name(number)]) for number in range(options.agents)]
        with running_collector(Path(name), postgres.conninfo, *(() if options.plain else ("--tls",))) as collector:
            targets = _apply(collector, credentials["operator"])
            own = _storm(collector, agents, targets)
        sent, stored = len(own.pushes) - len(agents), _batches(postgres.conninfo)
        bare = {}
        for server, conninfo in (("reference", postgres.conninfo), ("echo", None)):
            with reference_collector(conninfo, Path(name), tls=not options.plain) as running:
                bare[server] = _storm(running, agents, targets)
    _print_phases({f"{prefix}collector": own, **bare})
    committing, echo = bare["reference"].figures, bare["echo"].figures
    settled = max(SETTLED_SECONDS, MAX_STORM_RATIO * committing["storm_over_s"])
    settled = min(settled, STORM_SECONDS - WINDOW_SECONDS)
    for run in (own, bare["reference"]):
        run.figures["reply_p99_ms"] = _worst_p99_ms(run.pushes, settled)
    ratios = {
        "reply_p99_ratio": own.figures["reply_p99_ms"] / committing["reply_p99_ms"],
        "storm_p99_ratio": own.figures["storm_p99_ms"] / echo["storm_p99_ms"],
        "storm_over_ratio": own.figures["storm_over_s"] / committing["storm_over_s"],
    }
    references = {f"{server}_{name}": value for server, run in bare.items() for name, value in run.figures.items()}
    counts = {"agents": options.agents, "batches": sent, "lost_batches": sent - stored}
    return ratios | counts | own.figures | references


def _print_phases(runs: Mapping[str, Run]) -> None:
    """Print the median and the p99 of each phase, in milliseconds, by server."""
    print(f"{'ms':12}" + "".join(f"{server:>22}" for server in runs))  # noqa: T201  # a bench prints
    for phase in PHASES:
        durations = [run.phases[phase] for run in runs.values()]
        cells = [f"{1000 * median(each):>12.1f}{_p99_ms(each):>10.1f}" for each in durations]
        print(f"{phase:12}" + "".join(cells))  # noqa: T201  # a bench prints


def _storm(server: RunningServer, agents: Sequence[tuple[int, str]], targets: Sequence[int]) -> Run:
    with ExitStack() as stack:
        trust = server.trust
        address = {"address": server.address, "certificate": trust.roots, "server_name": trust.server_name}
        common = {"collector": address, "targets": targets, "region": REGION, "fleet": len(agents)}
        configs = [common | {"agents": agents[n::PROCESSES]} for n in range(PROCESSES)]
        dialogs = [stack.enter_context(Dialog("bench.simulated_agents", config)) for config in configs]
        for dialog in dialogs:
            dialog.receive()
        begin = time.monotonic() + 1
        timeline = {"begin": begin, "storm": begin + EVERY_SECONDS + STEADY_SECONDS}
        timeline["end"] = timeline["storm"] + STORM_SECONDS
        for dialog in dialogs:
            dialog.send(timeline)
        time.sleep(timeline["begin"] + EVERY_SECONDS - time.monotonic())
        before = cpu_seconds(server.pid)
        time.sleep(timeline["storm"] - time.monotonic())
        storm_begins = cpu_seconds(server.pid)
        answers = [dialog.receive() for dialog in dialogs]
        pushes = [
            Push(began - timeline["storm"], took, int(attempts))
            for answer in answers
            for began, took, attempts in answer["pushes"]
        ]
        parts = [phases for answer in answers for phases in answer["phases"]]
        figures = _reply_times(pushes, agents=len(agents)) | {
            "cpu_pct": 100 * (storm_begins - before) / STEADY_SECONDS,
            "storm_cpu_s": cpu_seconds(server.pid) - storm_begins,
            "rss_mb": rss_mb(server.pid),
        }
        return Run(figures, pushes, {name: [part[name] for part in parts if name in part] for name in PHASES})


def _reply_times(pushes: Sequence[Push], *, agents: int) -> dict[str, float]:
    steady = [push for push in pushes if -STEADY_SECONDS <= push.began < 0]
    after = [push for push in pushes if push.began >= 0]
    backlog = sorted(push.began + push.took for push in after)[: agents * (BACKLOG_BATCHES + 1)]
    return {
        "storm_p99_ms": _p99_ms([push.took for push in after]),
        "storm_p50_ms": 1000 * median(push.took for push in after),
        "slowest_ms": 1000 * max(push.took for push in after),
        "steady_p99_ms": _p99_ms([push.took for push in steady]),
        "steady_p50_ms": 1000 * median(push.took for push in steady),
        "storm_over_s": backlog[-1],
        "retries": float(sum(push.attempts - 1 for push in pushes)),
    }


def _worst_p99_ms(pushes: Sequence[Push], settled: float) -> float:
    """Return the p99 of the worst window from `settled` seconds after the beginning of the storm."""
    starts = [settled + second for second in range(0, int(STORM_SECONDS - settled), WINDOW_SECONDS)]
    windows = [[push.took for push in pushes if start <= push.began < start + WINDOW_SECONDS] for start in starts]
    return max(_p99_ms(window) for window in windows)


def _p99_ms(durations: Sequence[float]) -> float:
    return 1000 * quantiles(durations, n=100)[98]


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


def _apply(collector: RunningServer, operator: str) -> list[int]:
    targets = [{"provider": "bench", "model": f"model-{n}", "base_url": "http://nowhere"} for n in range(TARGETS)]
    address, trust = parse_address(collector.address), collector.trust
    with open_channel(address, trust, operator if trust.tls else None) as channel:
        return list(apply_plan(channel, {"baseline": REGION, "targets": targets}).values())


def _batches(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("select count(*) from ingest_batch").fetchone()
        return int(row[0]) if row else 0


if __name__ == "__main__":
    sys.exit(main())
