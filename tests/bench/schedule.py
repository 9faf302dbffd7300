"""Punctuality of rounds: real agents of two vantages, a collector on an embedded database, and the simulator.

The start error is the delay of a dispatch after its planned instant; the slot skew is the difference between the
dispatches of the same round and target by the two vantages. Both agents use one machine's clock, so the skew is that of
the agents: between two machines, the error of their clocks is added.

usage: schedule.py [--seconds N] [--targets N] prints a RESULT line; exit 1 when a goal is missed
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.footprint import ready, start
from bench.simulator import MODEL, Simulator

GOALS = {"start_error_p99_ms": 50.0, "slot_skew_p99_ms": 250.0}
VANTAGES = {"bench-1": "us-east-2", "bench-2": "ap-southeast-1"}
EVERY_SECONDS = 2
SETTLE_SECONDS = 3
# The minimum share of planned rounds that both vantages must have probed.
MIN_SHARE = 0.9


@contextmanager
def fleet(folder: Path, targets: int) -> Iterator[str]:
    """Run everything; yield the collector's address."""
    processes: list[subprocess.Popen[bytes]] = []
    simulator = Simulator(folder)
    try:
        processes.append(
            start("isochrone_collector", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "c"))
        )
        collector = ready(processes[-1])["listen"]
        plan = folder / "plan.yaml"
        plan.write_text(json.dumps(document(simulator.base_url, targets)))
        applied = start("isochrone_collector", "apply", str(plan), "--collector", collector, "--yes").wait(60)
        if applied:
            raise SystemExit("the plan was not applied")
        for name, region in VANTAGES.items():
            options = (
                "--vantage",
                name,
                "--region",
                region,
                "--collector",
                collector,
                "--data-dir",
                str(folder / name),
            )
            processes.append(start("isochrone_agent", "run", *options))
        yield collector
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(20)
        simulator.stop()


def document(base_url: str, targets: int) -> dict[str, Any]:
    """Return a plan with this number of targets, each with its own phase."""
    probed = [
        {"provider": f"sim-{n}", "model": MODEL, "base_url": base_url, "workload": {"max_output_tokens": 5}}
        for n in range(targets)
    ]
    return {"baseline": "us-east-2", "every": f"{EVERY_SECONDS}s", "targets": probed}


def stored(collector: str) -> list[dict[str, Any]]:
    """Return the samples in the database."""
    command = [sys.executable, "-m", "isochrone_client", "samples", "--collector", collector, "--output", "json"]
    done = subprocess.run([*command, "--limit", "10000"], capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return [row for row in rows if not row["outcome"].startswith("skipped")]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the start errors of all probes, and the skews of rounds that both vantages probed, in milliseconds."""
    late_ms = [row["late_us"] / 1000 for row in rows]
    begun: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        begun.setdefault((row["target"], row["round_at"]), []).append(row["late_us"] / 1000)
    skew_ms = [max(both) - min(both) for both in begun.values() if len(both) == len(VANTAGES)]
    if not skew_ms:
        raise SystemExit("no round was probed by both vantages")
    return {
        "pairs": len(skew_ms),
        "start_error_p50_ms": percentile(late_ms, 0.5),
        "start_error_p99_ms": percentile(late_ms, 0.99),
        "slot_skew_p50_ms": percentile(skew_ms, 0.5),
        "slot_skew_p99_ms": percentile(skew_ms, 0.99),
    }


def main() -> int:
    """Return 0 if start error and skew are within their goals."""
    parser = argparse.ArgumentParser(description="Measure the punctuality of rounds.")
    parser.add_argument("--seconds", type=int, default=60, help="duration of the measurement")
    parser.add_argument("--targets", type=int, default=10, help="number of targets, each probed every 2 s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder), options.targets) as collector:
        time.sleep(options.seconds + SETTLE_SECONDS)
        found = figures(stored(collector))
    print("RESULT " + " ".join(f"{name}={value:.1f}" for name, value in found.items()))  # noqa: T201  # a bench prints
    planned = options.targets * options.seconds / EVERY_SECONDS
    if found["pairs"] < MIN_SHARE * planned:
        raise SystemExit(f"only {found['pairs']:.0f} of {planned:.0f} rounds were probed by both vantages")
    missed = [name for name, goal in GOALS.items() if found[name] > goal]
    if missed:
        sys.stderr.write(f"missed: {', '.join(f'{name} <= {GOALS[name]:g}' for name in missed)}\n")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
