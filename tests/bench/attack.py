"""Attacks on a collector while live agents push: its memory, the delay of the pushes, and what was refused.

One collector with its own PostgreSQL, TLS on both ports and a plan; four vantages push 20 samples ten times per second.
After ten seconds without an attack each, attackers (`bench.attackers`) run one after the other, from other addresses:
20 000 idle connections to both ports, requests that arrive byte by byte on both, gzip bombs, fields of 8 MiB, guesses
of tokens and credentials, 1 000 junk joins per second, and plans of 4 MiB with a stolen operator's credential.

`collector_peak_mb` is the most memory that the collector and its child process had. `push_p99_ratio` is the p99 of the
push reply during the worst attack by that of all times without one; a push that fails ends the benchmark. `refused_pct`
is the share of attempts that were refused, or closed in time. Attackers, at the lowest priority, share this machine.

usage: attack.py [--quick] prints a line per attack and a RESULT line; exit 1 when a goal is missed
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from bench.attackers import AttackSpec, Tally
from bench.fleet import raise_limit
from bench.ingest import LIVE_PER_SECOND, LIVE_SAMPLES, PusherPool, enrol_pusher, p99_ms, plan_targets, start_time
from bench.processes import RunningServer, peak_mb, running_collector
from bench.pusher import LoadSpec, Report
from bench.result import at_least, at_most, conclude
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_wire import identity_file

GOALS = {"collector_peak_mb": at_most(600), "push_p99_ratio": at_most(3), "refused_pct": at_least(100)}
WARM_SECONDS, IDLE_SECONDS = 5.0, 10.0
TURN_SECONDS = 5.0
QUICK_SHARE = 0.1
DESCRIPTORS = 20_000
# With one connection, more than the permitted 100 calls would wait at once if replies took 2.5 s.
LIVE = 4

# Attacks of one phase run at the same time: (name, connections or calls, seconds), see `AttackSpec`.
PHASES: dict[str, tuple[tuple[str, int, float], ...]] = {
    "idle connections": (("idle_grpc", 10_000, 40), ("idle_http", 10_000, 40)),
    "slow loris": (("slow_grpc", 200, 40), ("slow_http", 200, 40)),
    "gzip bombs": (("bombs", 20, 60),),
    "8 MiB fields": (("large_fields", 10, 60),),
    "guesses": (("guesses", 0, 15),),
    "junk joins": (("junk_joins", 1_000, 15),),
    "4 MiB plans": (("plans", 2, 60),),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the goals are met."""
    parser = argparse.ArgumentParser(description="Attacks on a collector.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the attempts")
    share = QUICK_SHARE if parser.parse_args(arguments).quick else 1.0
    raise_limit(DESCRIPTORS)
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedPostgres(Path(name, "postgres")) as postgres,
        running_collector(Path(name), postgres.conninfo, "--tls", "--http-listen", "127.0.0.1:0") as collector,
        ExitStack() as stack,
    ):
        spec, live = _prepared(collector, stack)
        live.run_load(_load(WARM_SECONDS))
        idle, found = [], []
        for phase in PHASES:
            idle += live.run_load(_load(IDLE_SECONDS))
            found.append(_attacked(phase, share, spec, live, collector))
        _show("without an attack", idle, collector)
        peak = peak_mb(collector.pid)
    attempts = sum(tally.attempts for _, tally in found)
    figures = {
        "collector_peak_mb": peak,
        "push_p99_ratio": max(p99_ms(reports) for reports, _ in found) / p99_ms(idle),
        "refused_pct": 100 * sum(tally.refused for _, tally in found) / attempts,
        "attempts": attempts,
        "idle_p99_ms": p99_ms(idle),
    }
    return conclude(figures, GOALS)


def _prepared(collector: RunningServer, stack: ExitStack) -> tuple[AttackSpec, PusherPool]:
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
    )
    return spec, live


def _attacked(
    phase: str, share: float, spec: AttackSpec, live: PusherPool, collector: RunningServer
) -> tuple[list[Report], Tally]:
    """Run the attacks of a phase; return the reports of the live pushes meanwhile, and what became of the attacks."""
    with ExitStack() as stack:
        attackers = []
        for attack, count, seconds in PHASES[phase]:
            size = max(1, round(count * share)) if count else 0
            own = replace(spec, attack=attack, count=size, seconds=seconds)
            attackers.append(stack.enter_context(_attacker(own)))
        reports = live.run_load(_load(TURN_SECONDS))
        while any(attacker.poll() is None for attacker in attackers):
            reports += live.run_load(_load(TURN_SECONDS))
        tallies = [_tally(attacker) for attacker in attackers]
    total = Tally(
        attempts=sum(tally.attempts for tally in tallies),
        refused=sum(tally.refused for tally in tallies),
        seconds=max(tally.seconds for tally in tallies),
        outcomes=sum((Counter(tally.outcomes) for tally in tallies), Counter()),
    )
    _show(phase, reports, collector, total)
    return reports, total


@contextmanager
def _attacker(spec: AttackSpec) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.attackers"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(spec)) + "\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()


def _tally(attacker: subprocess.Popen[str]) -> Tally:
    assert attacker.stdout is not None
    fields = json.loads(attacker.stdout.readline() or "{}")
    if not fields:
        raise SystemExit("an attacker has failed")
    return Tally(**fields)


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
    # On SIGTERM, exit normally, so that child processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
