"""Time from the commit of samples to all watchers of the changed route tables.

One collector with its own PostgreSQL; a thousand consumers in a few processes, half over gRPC and half over server-sent
events, each with its own connection; six vantages in three regions. Once per second all vantages push rounds in which
the first choice fails and the previously failed one answers again, so that the table of every region makes a hard
switch. A change has arrived at a watcher with the first table whose first choice is not the failing target; its time
starts with the *first* of the six receipts, although a switch requires two vantages.

Every change must arrive at every watcher. Watchers, collector and PostgreSQL share this machine.

usage: routes.py [--watchers N] [--changes N] [--grpc-only] prints a RESULT line; exit 1 when the p99 is over 1000 ms
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

from bench.fleet import raise_limit
from bench.footprint import cpu_seconds, ready, rss_mb
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire import codec
from isochrone_wire.address import parse_address
from isochrone_wire.channel import PLAIN, open_channel
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, Vantage
from isochrone_wire.v1 import (
    fleet_pb2_grpc,
    observatory_pb2,
    observatory_pb2_grpc,
    operations_pb2,
    operations_pb2_grpc,
)

GOAL_MS = 1000.0
PROCESSES = 2
EVERY_SECONDS = 1.0
SETTLE_SECONDS = 5.0
ROUND_US = 2 * SECOND_US
REGIONS = ("us-east-2", "eu-west-1", "ap-southeast-1")
VANTAGES = tuple(Vantage(name=f"{region}-{n}", region=region) for region in REGIONS for n in (1, 2))
TARGETS = {"alpha/m": 200_000, "beta/m": 300_000, "gamma/m": 400_000, "delta/m": 500_000}
# The route has only these two members, so that when one fails the other always takes over.
ROUTE_MEMBERS = ("alpha/m", "beta/m")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCollector:
    """A running collector."""

    process: subprocess.Popen[bytes]
    address: str
    http: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Rounds in which `dead` failed, committed at `at`, in seconds of CLOCK_MONOTONIC."""

    dead: str
    at: float


class Fleet:
    """Vantages that push simultaneously."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(parse_address(address), PLAIN)
        self._fleet = fleet_pb2_grpc.FleetStub(self._channel)
        self._targets = _applied(self._channel)
        self._threads = ThreadPoolExecutor(len(VANTAGES))
        self._rng = Random(6)
        self._seq = 0

    def push(self, rounds: Sequence[int], dead: str = "") -> float:
        """Push rounds from every vantage; return the instant of the first receipt."""
        self._seq += 1
        batches = [
            Batch(vantage=vantage, epoch=1, seq=self._seq, samples=tuple(self._samples(rounds, dead)))
            for vantage in VANTAGES
        ]
        return min(self._threads.map(self._push, batches))

    def _push(self, batch: Batch) -> float:
        receipt = self._fleet.Push(codec.encode(batch), timeout=30)
        at = time.monotonic()
        assert receipt.stored == len(batch.samples), receipt
        return at

    def _samples(self, rounds: Sequence[int], dead: str) -> Iterator[Sample]:
        for at in rounds:
            for name, ttft_us in TARGETS.items():
                sample = Sample(
                    target_id=self._targets[name], round_at=at, dispatched_at=at, outcome=Outcome.HTTP_ERROR
                )
                if name != dead:
                    seen_us = round(ttft_us * self._rng.lognormvariate(0, 0.1))
                    sample = Sample(
                        target_id=self._targets[name],
                        round_at=at,
                        dispatched_at=at,
                        outcome=Outcome.OK,
                        ttft_us=seen_us,
                        e2e_us=2 * seen_us,
                        tokens_per_second=50.0,
                    )
                yield sample


def main() -> int:
    """Return 0 if the goal is met and nothing is missing."""
    parser = argparse.ArgumentParser(description="Time from commit to consumer.")
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=30)
    parser.add_argument("--grpc-only", action="store_true", help="no watchers over HTTP")
    options = parser.parse_args()
    raise_limit(2 * options.watchers + 500)
    # On SIGTERM, exit normally, so that child processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        postgres = stack.enter_context(EmbeddedPostgres(Path(name, "postgres")))
        collector = stack.enter_context(_collector(Path(name), postgres.conninfo))
        fleet = Fleet(collector.address)
        now_at = time.time_ns() // 1000
        fleet.push([now_at - place * ROUND_US for place in range(60, 0, -1)])
        time.sleep(SETTLE_SECONDS)
        watchers = [
            (number, REGIONS[number % len(REGIONS)], bool(number // 3 % 2) and not options.grpc_only)
            for number in range(options.watchers)
        ]
        processes = [stack.enter_context(_start_process(collector, watchers[n::PROCESSES])) for n in range(PROCESSES)]
        before = cpu_seconds(collector.process.pid)
        changes = _changed(fleet, options.changes)
        figures = {
            "collector_cpu_pct": 100 * (cpu_seconds(collector.process.pid) - before) / (options.changes * EVERY_SECONDS)
        }
        figures["collector_rss_mb"] = rss_mb(collector.process.pid)
        seen = [_seen(process) for process in processes]
        return _conclude(changes, seen, figures, watchers=options.watchers)


def _changed(fleet: Fleet, count: int) -> list[Change]:
    """Make `count` changes, one per second."""
    changes: list[Change] = []
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number * EVERY_SECONDS - time.monotonic()))
        dead = ROUTE_MEMBERS[number % len(ROUTE_MEMBERS)]
        at = time.time_ns() // 1000
        changes.append(Change(dead=dead, at=fleet.push([at - 3, at - 2, at - 1, at], dead)))
    time.sleep(SETTLE_SECONDS)
    return changes


def _conclude(
    changes: Sequence[Change], seen: Sequence[dict[str, Any]], figures: dict[str, float], *, watchers: int
) -> int:
    took_ms = sorted(1000 * took for process in seen for took in _delays(process, changes))
    tables = {table["generation"] for process in seen for table in process["tables"]}
    missing = watchers * len(changes) - len(took_ms)
    p99_ms = quantiles(took_ms, n=100)[98] if len(took_ms) > 1 else float("inf")
    details = {"p50_ms": median(took_ms or [0.0]), "slowest_ms": max(took_ms, default=0.0), **figures}
    shown = " ".join(f"{name}={value:.1f}" for name, value in details.items())
    print(  # noqa: T201  # a bench prints
        f"RESULT commit_to_consumer_p99_ms={p99_ms:.1f} watchers={watchers} changes={len(changes)} "
        f"generations={len(tables)} missing={missing} {shown}"
    )
    return int(p99_ms > GOAL_MS or missing > 0)


def _delays(process: dict[str, Any], changes: Sequence[Change]) -> Iterator[float]:
    """Yield the delay of each change at each watcher that it reached."""
    arrivals: dict[int, list[tuple[float, str]]] = {}
    for place, number, at in process["arrivals"]:
        arrivals.setdefault(number, []).append((at, process["tables"][place]["first"]))
    for own in arrivals.values():
        place = 0
        for change in changes:
            while place < len(own) and (own[place][0] < change.at or own[place][1] == change.dead):
                place += 1
            if place < len(own):
                yield own[place][0] - change.at


@contextlib.contextmanager
def _collector(folder: Path, conninfo: str) -> Iterator[RunningCollector]:
    parts = {key: value for key, value in conninfo_to_dict(conninfo).items() if value}
    where = ("--database-url", f"postgresql:///?{urlencode(parts)}", "--data-dir", str(folder / "collector"))
    listen = ("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--metrics-listen", "off")
    with (folder / "collector.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "isochrone_collector", "serve", *listen, *where], stdout=subprocess.PIPE, stderr=log
        )
    try:
        endpoints = ready(process)
        yield RunningCollector(process=process, address=endpoints["listen"], http=endpoints["http"])
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def _start_process(
    collector: RunningCollector, watchers: Sequence[tuple[int, str, bool]]
) -> Iterator[subprocess.Popen[str]]:
    """Start a process with some of the watchers, and wait until it is ready."""
    command = [sys.executable, "-m", "bench.watchers"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        config = {"address": collector.address, "http": collector.http, "watchers": watchers}
        process.stdin.write(json.dumps(config) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n", "the watchers did not start"
        yield process
    finally:
        process.kill()
        process.wait()


def _seen(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    seen: dict[str, Any] = json.loads(process.stdout.readline())
    return seen


def _applied(channel: Any) -> dict[str, int]:
    """Apply a plan; return the ids of its targets by name."""
    targets = [
        {"provider": name.partition("/")[0], "model": "m", "base_url": f"http://{name.partition('/')[0]}"}
        for name in TARGETS
    ]
    routes = [{"name": "chat", "members": list(ROUTE_MEMBERS)}]
    document = {"baseline": REGIONS[0], "every": f"{ROUND_US // SECOND_US}s", "targets": targets, "routes": routes}
    request = operations_pb2.ApplyPlanRequest(document=json.dumps(document), applied_by="bench")
    change = operations_pb2_grpc.OperationsStub(channel).ApplyPlan(request, timeout=30)
    assert not change.problems, change.problems
    listed = observatory_pb2_grpc.ObservatoryStub(channel).ListTargets(observatory_pb2.ListTargetsRequest(), timeout=30)
    return {target.name: target.id for target in listed.targets}


if __name__ == "__main__":
    sys.exit(main())
