"""Ingest throughput compared with a raw COPY of the same rows, and push latency.

One PostgreSQL with fsync and synchronous_commit on; the real `isochrone-collector serve` with TLS, credentials and the
ledger; agents in separate processes with prepared requests in batches of 500. Raw is psycopg's binary COPY of the same
rows in the same batches, each in its own transaction on one connection, alternating with the collector.

The reply time at half load is compared with that of a bare gRPC server (`bench.reference_collector`) under the same
load, right after the collector has ended; the reply time of live pushes beside a backlog with that without one.

All of it is measured on an idle machine, and then with a busy process on each core (`bench.neighbours`).

usage: ingest.py [--quick] [--part idle|busy] prints a RESULT line; exit 1 when a goal is missed
"""

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psycopg
from psycopg import sql

from bench import pusher
from bench.neighbours import add_part, goals_of, measured, prefixes_of
from bench.processes import Dialog, apply_plan, running_collector
from bench.pusher import BATCH_SAMPLES, LoadSpec, PusherConfig, Report
from bench.reference_collector import reference_collector
from bench.result import at_least, at_most, conclude, log, percentile
from isochrone_collector.store.batches import Origin
from isochrone_collector.store.postgres import values
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_collector.store.samples import COLUMNS
from isochrone_common import enrolment, identity_file
from isochrone_common.channel import open_channel
from isochrone_common.identity_file import Identity
from isochrone_common.trust import PLAIN, Trust
from isochrone_wire.v1 import operations_pb2, operations_pb2_grpc

REGION = "us-east-2"
TARGETS = 100
FLOODING = 2
IN_FLIGHT = 8
DRAINING = 2
LIVE_SAMPLES = 20
LIVE_PER_SECOND = 40.0
GOALS = {"ratio_to_raw_copy": at_least(0.75), "reply_p99_ratio": at_most(4), "backlog_p99_ratio": at_most(2)}
SETTLE_SECONDS = 1.0
REFERENCE_WARM_SECONDS = 5.0
TOKEN_US = 600_000_000
LOG_FILES = 256
# Of `BackgroundIngest`.
PUSHED_PER_SECOND = 1_000
AGENTS, PUSHED_SAMPLES = 2, 100

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The length of the turns of raw copy (batches) and collector (seconds), of half load, idle, and a backlog."""

    turns: int
    raw_batches: int
    flood_seconds: float
    warm_seconds: float
    half_seconds: float
    idle_seconds: float
    backlog_samples: int


FULL = Size(
    turns=3,
    raw_batches=300,
    flood_seconds=5,
    warm_seconds=40,
    half_seconds=40,
    idle_seconds=15,
    backlog_samples=500_000,
)
QUICK = Size(
    turns=3, raw_batches=150, flood_seconds=3, warm_seconds=2, half_seconds=8, idle_seconds=6, backlog_samples=150_000
)


class PusherPool:
    def __init__(self, configs: Sequence[PusherConfig]) -> None:
        self._dialogs = [Dialog("bench.pusher", config) for config in configs]
        for dialog in self._dialogs:
            dialog.receive()

    def send(self, load: LoadSpec) -> None:
        for dialog in self._dialogs:
            dialog.send(load)

    def reports(self) -> list[Report]:
        found = [Report(**dialog.receive()) for dialog in self._dialogs]
        refused = [reason for report in found for reason in report.refused]
        if refused:
            raise SystemExit(f"{len(refused)} pushes were rejected: {refused[0]}")
        return found

    def run_load(self, load: LoadSpec) -> list[Report]:
        self.send(load)
        return self.reports()

    def end(self) -> None:
        for dialog in self._dialogs:
            dialog.end()


class RawCopy:
    """psycopg's binary COPY of prepared rows into `sample`, one transaction per batch, on one connection."""

    def __init__(self, conninfo: str, targets: list[int]) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        values.register(self._connection)
        for name in ("fsync", "synchronous_commit"):
            if self._connection.execute(f"SHOW {name}").fetchone() != ("on",):
                raise SystemExit(f"{name} is off: results would not be comparable")
        now_at = time.time_ns() // 1000
        self._made_at = now_at
        self._bodies = pusher.bodies(targets, now_at=now_at, seed=99)
        self._origin = Origin(vantage_id=1, region=REGION, epoch=1, seq=0, received_at=now_at)
        self._seq = 0
        names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
        self._statement = sql.SQL("COPY sample ({}) FROM STDIN (FORMAT BINARY)").format(names)

    def close(self) -> None:
        self._connection.close()

    def recycle_wal(self) -> None:
        """Cycle the server through its write-ahead log once: a new one fills each file with zeros, in some commit."""
        for _ in range(LOG_FILES):
            self._connection.execute("SELECT pg_logical_emit_message(false, 'bench', 'new file')")
            self._connection.execute("SELECT pg_switch_wal()")
        self.checkpoint()

    def checkpoint(self) -> None:
        self._connection.execute("CHECKPOINT")

    def rows_per_second(self, batches: int) -> float:
        spent = 0.0
        for _ in range(batches):
            self._seq += 1
            now_at = time.time_ns() // 1000
            samples, by_us = self._bodies[pusher.current_body(now_at)], pusher.shift_us(self._made_at, now_at)
            prepared = pusher.rows(samples, self._origin, self._seq, by_us=by_us)
            begun = time.monotonic()
            with self._connection.cursor() as cursor, cursor.copy(self._statement) as copy:
                copy.set_types(list(COLUMNS.values()))
                for row in prepared:
                    copy.write_row(row)
            spent += time.monotonic() - begun
        return batches * BATCH_SAMPLES / spent


class BackgroundIngest:
    """A load of a thousand samples per second, pushed by `AGENTS`, while something is measured."""

    def __init__(self, agents: PusherPool) -> None:
        self._agents = agents
        self.reports: list[Report] = []
        agents.run_load(LoadSpec(samples=PUSHED_SAMPLES, begin_at=start_time(), seconds=1, per_second=1))

    def during(self, work: Callable[[], Result], *, seconds: float) -> Result:
        """Push while `work` runs, which should take at most `seconds`, and return its result."""
        per_second = PUSHED_PER_SECOND / PUSHED_SAMPLES / AGENTS
        self._agents.send(
            LoadSpec(samples=PUSHED_SAMPLES, begin_at=start_time(), seconds=seconds, per_second=per_second)
        )
        begun = time.monotonic()
        result = work()
        took = time.monotonic() - begun
        self.reports += self._agents.reports()
        if took > seconds:
            log(f"samples arrived during {seconds:.0f} of {took:.0f} s")
        return result

    @property
    def per_second(self) -> float:
        """Samples stored per second, from the first push of each period to its last reply."""
        spans: dict[float, float] = {}
        for report in self.reports:
            begun_at = round(report.begun_at)
            spans[begun_at] = max(spans.get(begun_at, 0.0), report.ended_at - report.begun_at)
        return sum(report.stored for report in self.reports) / sum(spans.values())


def start_time() -> float:
    """Return an instant on the monotonic clock by which every process has received its load."""
    return time.monotonic() + 0.3


def rate(reports: Sequence[Report]) -> float:
    """Return the samples stored per second, from the first push to the last reply."""
    span = max(report.ended_at for report in reports) - min(report.begun_at for report in reports)
    return sum(report.stored for report in reports) / span


def p99_ms(reports: Sequence[Report]) -> float:
    """Return the 99th percentile of the reply times, in milliseconds."""
    return 1000 * percentile([wait for report in reports for wait in report.waits], 0.99)


def plan_targets(operator: Identity) -> list[int]:
    targets = [{"provider": "sim", "model": f"m{n}", "base_url": "http://h"} for n in range(TARGETS)]
    with open_channel(operator.address, operator.trust, operator.credential) as channel:
        return list(apply_plan(channel, {"baseline": REGION, "targets": targets}).values())


def enrol_pusher(operator: Identity, name: str, targets: list[int], seed: int) -> PusherConfig:
    """Return the configuration of a new vantage, enrolled like an agent."""
    with open_channel(operator.address, operator.trust, operator.credential) as channel:
        asked = operations_pb2.InviteRequest(name=name, role="vantage", region=REGION, expires_us=TOKEN_US)
        token = operations_pb2_grpc.OperationsStub(channel).Invite(asked, timeout=30).token
    joined = enrolment.join(operator.address, token, version="bench")
    return pusher_config(str(joined.address), name, targets, seed, trust=joined.trust, credential=joined.credential)


def pusher_config(
    address: str, name: str, targets: list[int], seed: int, *, trust: Trust = PLAIN, credential: str | None = None
) -> PusherConfig:
    """Return the configuration of a vantage; without a credential, it need not be enrolled."""
    return PusherConfig(
        address=address,
        name=name,
        region=REGION,
        targets=targets,
        now_at=time.time_ns() // 1000,
        seed=seed,
        roots=trust.roots,
        server_name=trust.server_name,
        credential=credential,
    )


def in_turns(size: Size, raw: RawCopy, agents: PusherPool) -> tuple[float, float]:
    """Return rows per second of raw COPY and samples per second of the collector: the medians of alternating turns."""
    raws, collected = [], []
    agents.run_load(LoadSpec(samples=BATCH_SAMPLES, begin_at=start_time(), seconds=1, in_flight=IN_FLIGHT))
    for turn in range(1, size.turns + 1):
        raws.append(raw.rows_per_second(size.raw_batches))
        time.sleep(SETTLE_SECONDS)
        flood = LoadSpec(samples=BATCH_SAMPLES, begin_at=start_time(), seconds=size.flood_seconds, in_flight=IN_FLIGHT)
        collected.append(rate(agents.run_load(flood)))
        time.sleep(SETTLE_SECONDS)
        log(f"turn {turn}: raw COPY {raws[-1]:8.0f} rows/s, collector {collected[-1]:8.0f} samples/s")
    return statistics.median(raws), statistics.median(collected)


def at_half_load(size: Size, agents: PusherPool, full: float, *, of: str) -> float:
    """Return the p99 of the reply to 500 samples at half of the full rate, in milliseconds."""
    each = full / 2 / BATCH_SAMPLES / FLOODING
    warm, counted = (
        agents.run_load(LoadSpec(samples=BATCH_SAMPLES, begin_at=start_time(), seconds=seconds, per_second=each))
        for seconds in (size.warm_seconds, size.half_seconds)
    )
    log(f"half load on {of}: p99 {p99_ms(warm):.0f} ms during warm-up, {p99_ms(counted):.0f} ms measured")
    return p99_ms(counted)


def beside_backlog(size: Size, agents: PusherPool, live: PusherPool, full: float) -> dict[str, float]:
    """Measure small live pushes while a backlog is drained, and without one."""
    quiet = LoadSpec(samples=LIVE_SAMPLES, begin_at=start_time(), seconds=size.idle_seconds, per_second=LIVE_PER_SECOND)
    idle_ms = p99_ms(live.run_load(quiet))
    batches = math.ceil(size.backlog_samples / BATCH_SAMPLES / FLOODING)
    begin_at = start_time()
    agents.send(LoadSpec(samples=BATCH_SAMPLES, begin_at=begin_at, seconds=600, batches=batches, in_flight=DRAINING))
    # Only 70 % of the draining time, so that no live push arrives after it.
    during = 0.7 * size.backlog_samples / full
    busy = LoadSpec(samples=LIVE_SAMPLES, begin_at=begin_at, seconds=during, per_second=LIVE_PER_SECOND)
    busy_ms = p99_ms(live.run_load(busy))
    drained = agents.reports()
    return {
        "backlog_samples": sum(report.stored for report in drained),
        "backlog_samples_per_second": rate(drained),
        "live_idle_p99_ms": idle_ms,
        "live_busy_p99_ms": busy_ms,
        "backlog_p99_ratio": busy_ms / idle_ms,
    }


def collector_figures(
    size: Size, conninfo: str, folder: Path, prefixes: Sequence[str]
) -> tuple[dict[str, float], list[int]]:
    with ExitStack() as stack:
        running = stack.enter_context(running_collector(folder, conninfo, "--tls"))
        operator = identity_file.read(Path(running.reported["operator"]))
        targets = plan_targets(operator)
        agents = PusherPool([enrol_pusher(operator, f"flood-{nth}", targets, nth) for nth in range(FLOODING)])
        stack.callback(agents.end)
        live = PusherPool([enrol_pusher(operator, "live", targets, FLOODING)])
        stack.callback(live.end)
        raw = RawCopy(conninfo, targets)
        stack.callback(raw.close)
        raw.recycle_wal()

        def measure(_: str) -> dict[str, float]:
            copied, collected = in_turns(size, raw, agents)
            # Half load is a steady state: it must not include writes left over from the floods.
            raw.checkpoint()
            found = {
                "raw_rows_per_second": copied,
                "samples_per_second": collected,
                "ratio_to_raw_copy": collected / copied,
                "reply_p99_ms": at_half_load(size, agents, collected, of="the collector"),
                **beside_backlog(size, agents, live, collected),
            }
            raw.checkpoint()
            return found

        return measured(prefixes, measure), targets


def run(size: Size, prefixes: Sequence[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name, EmbeddedPostgres(Path(name, "postgres")) as postgres:
        figures, targets = collector_figures(size, postgres.conninfo, Path(name), prefixes)
        with ExitStack() as stack:
            server = stack.enter_context(reference_collector(postgres.conninfo, Path(name), tls=True))
            agents = PusherPool(
                [
                    pusher_config(server.address, f"flood-{nth}", targets, nth, trust=server.trust)
                    for nth in range(FLOODING)
                ]
            )
            stack.callback(agents.end)

            def compare(prefix: str) -> dict[str, float]:
                full, reply_ms = (figures[prefix + name] for name in ("samples_per_second", "reply_p99_ms"))
                warmed = replace(size, warm_seconds=REFERENCE_WARM_SECONDS)
                expected_ms = at_half_load(warmed, agents, full, of="the bare server")
                return {"reference_p99_ms": expected_ms, "reply_p99_ratio": reply_ms / expected_ms}

            return figures | measured(prefixes, compare)


def main() -> int:
    parser = argparse.ArgumentParser(description="Ingest compared with raw COPY and a bare server.")
    parser.add_argument("--quick", action="store_true", help="shorter, with larger errors")
    add_part(parser)
    options = parser.parse_args()
    prefixes = prefixes_of(options)
    return conclude(run(QUICK if options.quick else FULL, prefixes), goals_of(prefixes, GOALS))


if __name__ == "__main__":
    sys.exit(main())
