"""Attacks on a collector while live agents push: its memory, the delay of the pushes, and what was refused.

One collector with its own PostgreSQL, TLS on both ports and a plan; four vantages push 20 samples ten times per second.
Attackers (`bench.attackers`) come one after the other, from other addresses: 20 000 idle connections to both ports,
requests that arrive byte by byte on both, gzip bombs, fields of 8 MiB, costly cookies, HPACK bombs, calls without a
message on 4 000 connections, CONTINUATION without an end, calls that are reset at once, guesses of tokens and
credentials, junk joins at up to 1 000 per second, and plans of 4 MiB or full of mistakes with a stolen operator's
credential. An attack is repeated without a pause for 20 s, in which 800 pushes are due; before it, 400 pushes are due
in ten seconds.

`collector_peak_mb` is the most memory that the collector and its child process had. `push_p99_ratio` is the p99 of the
push reply during the worst attack by the p99 of all pushes without one, and no goal of --quick; the time of a push
begins when it is due, and a push that fails ends the benchmark. `refused_pct` is the share of attempts that were
refused, or closed in time.

Real attackers are on other machines. These prepare what they send, and run only while nobody else needs the processor
(SCHED_IDLE; not with --quick, whose machine may be busy). Where Linux divides the processor among sessions first
(autogroup), PostgreSQL would wait for attackers, because it has a session of its own; so root turns that off meanwhile.
What attackers cost nevertheless shows a process per core that computes at their priority: `busy_p99_ms` is the p99 of
the pushes beside it.

usage: attack.py [--quick] prints a line per attack and a RESULT line; exit 1 when a goal is missed
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from bench.attackers import AttackSpec, Tally
from bench.ingest import LIVE_PER_SECOND, LIVE_SAMPLES, PusherPool, enrol_pusher, p99_ms, plan_targets, start_time
from bench.processes import Dialog, RunningServer, exit_on_sigterm, peak_mb, raise_limit, running_collector
from bench.pusher import LoadSpec, Report
from bench.result import Goal, at_least, at_most, conclude
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_common import identity_file

GOALS = {"collector_peak_mb": at_most(600), "push_p99_ratio": at_most(3), "refused_pct": at_least(100)}
DESCRIPTORS = 20_000
REFERENCE = "computing"
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
# With one connection, more than the permitted 100 calls would wait at once if replies took 2.5 s.
LIVE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The goals, the phases, and the length of the live pushes before the first, before each, and during one.

    Attacks of one phase run at the same time: (name, connections or calls, seconds), see `AttackSpec`; `policy` is that
    of their processes.
    """

    goals: Mapping[str, Goal]
    phases: Mapping[str, Sequence[tuple[str, int, float]]]
    warm_seconds: float
    idle_seconds: float
    attacked_seconds: float
    policy: int


FULL = Size(
    goals=GOALS,
    phases={
        "idle connections": (("idle_grpc", 10_000, 40), ("idle_http", 10_000, 40)),
        "slow loris": (("slow_grpc", 200, 40), ("slow_http", 200, 40)),
        "gzip bombs": (("bombs", 20, 60),),
        "8 MiB fields": (("large_fields", 10, 60),),
        "cookies": (("cookies", 20, 60),),
        "header bombs": (("header_bombs", 60, 20),),
        "open calls": (("open_calls", 4_000, 40),),
        "CONTINUATION": (("continuations", 60, 20),),
        "rapid reset": (("resets", 60, 20),),
        "guesses": (("guesses", 0, 25),),
        "junk joins": (("junk_joins", 1_000, 25),),
        "4 MiB plans": (("plans", 4, 60),),
    },
    warm_seconds=5,
    idle_seconds=10,
    attacked_seconds=20,
    policy=os.SCHED_IDLE,
)
# The first phase takes as long as the collector allows a request head, 15 s; the large messages come meanwhile.
QUICK = Size(
    goals={name: goal for name, goal in GOALS.items() if name != "push_p99_ratio"},
    phases={
        "slow and large": (
            ("idle_grpc", 150, 40),
            ("idle_http", 150, 40),
            ("slow_grpc", 20, 40),
            ("slow_http", 20, 40),
            ("bombs", 10, 60),
            ("large_fields", 4, 60),
            ("cookies", 10, 60),
            ("header_bombs", 20, 20),
            ("open_calls", 50, 40),
            ("continuations", 10, 20),
            ("resets", 10, 20),
            ("plans", 1, 60),
        ),
        "guesses and joins": (("guesses", 0, 5), ("junk_joins", 300, 5)),
    },
    warm_seconds=1,
    idle_seconds=0.5,
    attacked_seconds=3,
    policy=os.SCHED_OTHER,
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Attacks on a collector.")
    parser.add_argument("--quick", action="store_true", help="fewer attempts, half a minute")
    size = QUICK if parser.parse_args(arguments).quick else FULL
    raise_limit(DESCRIPTORS)
    with (
        without_autogroup() if size.policy == os.SCHED_IDLE else nullcontext(),
        tempfile.TemporaryDirectory() as name,
        EmbeddedPostgres(Path(name, "postgres")) as postgres,
        running_collector(Path(name), postgres.conninfo, "--tls", "--http-listen", "127.0.0.1:0") as collector,
        ExitStack() as stack,
    ):
        spec, live = _prepared(collector, size, stack)
        live.run_load(_load(size.warm_seconds))
        idle, found = [], []
        for phase in size.phases:
            idle += live.run_load(_load(size.idle_seconds))
            found.append(_attacked(phase, size, spec, live, collector))
        busy, _ = _attacked(REFERENCE, size, spec, live, collector)
        _show("without an attack", idle, collector)
        peak = peak_mb(collector.pid)
    attempts = sum(tally.attempts for _, tally in found)
    figures = {
        "collector_peak_mb": peak,
        "push_p99_ratio": max(p99_ms(reports) for reports, _ in found) / p99_ms(idle),
        "refused_pct": 100 * sum(tally.refused for _, tally in found) / attempts,
        "attempts": attempts,
        "idle_p99_ms": p99_ms(idle),
        "busy_p99_ms": p99_ms(busy),
    }
    return conclude(figures, size.goals)


@contextmanager
def without_autogroup() -> Iterator[None]:
    """Let new processes compete directly within the block, not as sessions, if this user may."""
    try:
        before = AUTOGROUP.read_text()
        AUTOGROUP.write_text("0")
    except OSError:
        yield
        return
    try:
        yield
    finally:
        AUTOGROUP.write_text(before)


def _prepared(collector: RunningServer, size: Size, stack: ExitStack) -> tuple[AttackSpec, PusherPool]:
    """Return an attack without its name and size, and the live agents."""
    operator = identity_file.read(Path(collector.reported["operator"]))
    targets = plan_targets(operator)
    live = PusherPool([enrol_pusher(operator, f"live-{nth}", targets, nth) for nth in range(LIVE)])
    stack.callback(live.end)
    stolen = enrol_pusher(operator, "stolen", targets, LIVE)
    spec = AttackSpec(
        attack="",
        grpc=collector.address,
        http=collector.reported["http"].removeprefix("https://"),
        roots=collector.trust.roots or "",
        server_name=collector.trust.server_name or "",
        name=stolen.name,
        region=stolen.region,
        vantage=stolen.credential or "",
        operator=operator.credential or "",
        target=targets[0],
        count=0,
        seconds=0,
        policy=size.policy,
    )
    return spec, live


def _attacked(
    phase: str, size: Size, spec: AttackSpec, live: PusherPool, collector: RunningServer
) -> tuple[list[Report], Tally]:
    """Run the attacks of a phase; return the reports of the live pushes meanwhile, and what became of the attacks."""
    with ExitStack() as stack:
        attacks = size.phases.get(phase, [("busy", 0, 0)] * (os.cpu_count() or 1))
        specs = [replace(spec, attack=name, count=count, seconds=s) for name, count, s in attacks]
        attackers = [stack.enter_context(Dialog("bench.attackers", one)) for one in specs]
        for attacker in attackers:
            attacker.receive()
        _signal(attackers)
        reports = live.run_load(_load(size.attacked_seconds))
        _signal(attackers)
        tallies = [Tally(**attacker.receive()) for attacker in attackers]
    if not all(tally.attempts for tally in tallies):
        raise SystemExit("an attacker has failed")
    total = Tally(
        attempts=sum(tally.attempts for tally in tallies),
        refused=sum(tally.refused for tally in tallies),
        seconds=max(tally.seconds for tally in tallies),
        outcomes=sum((Counter(tally.outcomes) for tally in tallies), Counter()),
    )
    _show(phase, reports, collector, total)
    return reports, total


def _signal(attackers: Sequence[Dialog]) -> None:
    for attacker in attackers:
        attacker.send("next")


def _load(seconds: float) -> LoadSpec:
    return LoadSpec(samples=LIVE_SAMPLES, begin_at=start_time(), seconds=seconds, per_second=LIVE_PER_SECOND / LIVE)


def _show(phase: str, reports: Sequence[Report], collector: RunningServer, tally: Tally | None = None) -> None:
    pushes = f"p99 {p99_ms(reports):5.0f} ms of {sum(len(report.waits) for report in reports)} pushes"
    attempts = ""
    if tally is not None:
        outcomes = ", ".join(f"{number} {outcome}" for outcome, number in sorted(tally.outcomes.items()))
        attempts = f", refused {tally.refused} of {tally.attempts} in {tally.seconds:.0f} s ({outcomes})"
    print(f"{phase:18} {pushes}, peak {peak_mb(collector.pid):.0f} MB{attempts}", flush=True)  # noqa: T201  # a bench prints


if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(main())
