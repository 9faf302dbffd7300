"""Time from the commit of samples to all watchers of the changed route tables.

One collector with its own PostgreSQL; a thousand consumers of server-sent events in a few processes, each with
its own connection; six vantages in three regions. Once per second all vantages push rounds in which
the first choice fails and the previously failed one answers again, so that the table of every region makes a hard
switch. A change has arrived at a watcher with the first table whose first choice is not the failing target; its time
starts with the *first* of the six receipts, although a switch requires two vantages.

Every change must arrive at every watcher. Then a plain asyncio server (`bench.reference_fan_out`) sends the same bytes
to as many watchers; the goal is the ratio of the two. Watchers, collector and PostgreSQL share this machine. All of it
is measured on an idle machine, and then with a busy process on each core (`bench.neighbours`).

usage: routes.py [--watchers N] [--changes N] [--part idle|busy] prints a RESULT line; exit 1 when a goal
is missed
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

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
from bench.reference_fan_out import recorded_event
from bench.result import at_most, conclude
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_common.address import parse_address
from isochrone_common.channel import open_channel
from isochrone_common.trust import PLAIN
from isochrone_wire import codec
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, Vantage
from isochrone_wire.v1 import fleet_pb2_grpc

GOALS = {"commit_to_consumer_p99_ratio": at_most(2), "missing": at_most(0), "reference_missing": at_most(0)}
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
class Change:
    """Rounds in which `dead` failed, committed at `at`, in seconds of CLOCK_MONOTONIC."""

    dead: str
    at: float


class Arrivals:
    """The durations from each change to its arrival at each watcher, in milliseconds."""

    def __init__(self, changes: Sequence[Change], seen: Sequence[dict[str, Any]], watchers: int) -> None:
        self.changes, self.watchers = changes, watchers
        self.took_ms = sorted(1000 * took for process in seen for took in _delays(process, changes))
        self.generations = len({table["generation"] for process in seen for table in process["tables"]})
        self.missing = watchers * len(changes) - len(self.took_ms)

    @property
    def p99_ms(self) -> float:
        """The 99th percentile; infinite if nothing arrived."""
        return quantiles(self.took_ms, n=100)[98] if len(self.took_ms) > 1 else float("inf")


class Fleet:
    """Vantages that push simultaneously. `urls` are the base URLs of targets that are to be called, too."""

    def __init__(self, address: str, urls: Mapping[str, str] | None = None) -> None:
        self._channel = open_channel(parse_address(address), PLAIN)
        self._fleet = fleet_pb2_grpc.FleetStub(self._channel)
        providers = {name: name.partition("/")[0] for name in TARGETS}
        plan = {
            "baseline": REGIONS[0],
            "every": f"{ROUND_US // SECOND_US}s",
            "targets": [
                {"provider": provider, "model": "m", "base_url": (urls or {}).get(name, f"http://{provider}")}
                for name, provider in providers.items()
            ],
            "routes": [{"name": "chat", "members": list(ROUTE_MEMBERS)}],
        }
        self._targets = apply_plan(self._channel, plan)
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
                own: dict[str, Any] = {"target_id": self._targets[name], "round_at": at, "dispatched_at": at}
                seen_us = round(ttft_us * self._rng.lognormvariate(0, 0.1))
                answer: dict[str, Any] = {"ttft_us": seen_us, "e2e_us": 2 * seen_us, "tokens_per_second": 50.0}
                failed = Sample(**own, outcome=Outcome.HTTP_ERROR)
                yield failed if name == dead else Sample(**own, outcome=Outcome.OK, **answer)


def main() -> int:
    parser = argparse.ArgumentParser(description="Time from commit to consumer.")
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=30)
    add_part(parser)
    options = parser.parse_args()
    prefixes = prefixes_of(options)
    raise_limit(2 * options.watchers + 500)
    exit_on_sigterm()
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedPostgres(Path(name, "postgres")) as postgres,
        running_collector(Path(name), postgres.conninfo, "--http-listen", "127.0.0.1:0") as collector,
    ):
        fleet = Fleet(collector.address)
        now_at = time.time_ns() // 1000
        fleet.push([now_at - place * ROUND_US for place in range(60, 0, -1)])
        time.sleep(SETTLE_SECONDS)
        event = recorded_event(collector.reported["http"], REGIONS[0])
        figures = measured(prefixes, lambda _: _collected(collector, fleet, options))

    def compare(prefix: str) -> dict[str, float]:
        reference = _reference(event, options)
        return {
            "commit_to_consumer_p99_ratio": figures[f"{prefix}commit_to_consumer_p99_ms"] / reference.p99_ms,
            "reference_p99_ms": reference.p99_ms,
            "reference_missing": reference.missing,
        }

    return conclude(figures | measured(prefixes, compare), goals_of(prefixes, GOALS))


def _collected(collector: RunningServer, fleet: Fleet, options: argparse.Namespace) -> dict[str, float]:
    watchers = [(number, REGIONS[number % len(REGIONS)]) for number in range(options.watchers)]
    with _watchers(collector.reported["http"], watchers) as dialogs:
        before = cpu_seconds(collector.pid)
        changes = _changed(options.changes, partial(_push_failure, fleet))
        used = cpu_seconds(collector.pid) - before
        arrivals = Arrivals(changes, [dialog.ask() for dialog in dialogs], options.watchers)
    return {
        "commit_to_consumer_p99_ms": arrivals.p99_ms,
        "missing": arrivals.missing,
        "p50_ms": median(arrivals.took_ms or [0.0]),
        "slowest_ms": max(arrivals.took_ms, default=0.0),
        "watchers": options.watchers,
        "changes": len(changes),
        "generations": arrivals.generations,
        "collector_cpu_pct": 100 * used / (len(changes) * EVERY_SECONDS),
        "collector_rss_mb": rss_mb(collector.pid),
    }


def _reference(event: bytes, options: argparse.Namespace) -> Arrivals:
    """Return what arrived from a plain server that sends the same bytes to as many watchers."""
    watchers = [(number, REGIONS[0]) for number in range(options.watchers)]
    with (
        Dialog("bench.reference_fan_out", {"event": event.decode(), "firsts": ROUTE_MEMBERS}) as server,
        _watchers(server.receive(), watchers) as dialogs,
    ):
        changes = _changed(options.changes, lambda _: float(server.ask("next")))
        return Arrivals(changes, [dialog.ask() for dialog in dialogs], options.watchers)


def _push_failure(fleet: Fleet, dead: str) -> float:
    at = time.time_ns() // 1000
    return fleet.push([at - 3, at - 2, at - 1, at], dead)


def _changed(count: int, change: Callable[[str], float]) -> list[Change]:
    """Make `count` changes, one per second; `change` takes the failing member and returns the instant."""
    changes: list[Change] = []
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number * EVERY_SECONDS - time.monotonic()))
        dead = ROUTE_MEMBERS[number % len(ROUTE_MEMBERS)]
        changes.append(Change(dead=dead, at=change(dead)))
    time.sleep(SETTLE_SECONDS)
    return changes


def _delays(process: dict[str, Any], changes: Sequence[Change]) -> Iterator[float]:
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


@contextmanager
def _watchers(http: str, watchers: Sequence[tuple[int, str]]) -> Iterator[list[Dialog]]:
    with ExitStack() as stack:
        configs = [{"http": http, "watchers": watchers[n::PROCESSES]} for n in range(PROCESSES)]
        dialogs = [stack.enter_context(Dialog("bench.watchers", config)) for config in configs]
        for dialog in dialogs:
            dialog.receive()
        yield dialogs


if __name__ == "__main__":
    sys.exit(main())
