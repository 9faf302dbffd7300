"""Punctuality of rounds: real agents of two vantages, a collector on an embedded database, and the simulator.

The start error is the delay of a dispatch after its planned instant; the slot skew is the difference between the
dispatches of the same round and target by the two vantages. Both agents use one machine's clock, so the skew is that of
the agents: between two machines, the error of their clocks is added.

Beside the agents, two plain asyncio programs sleep until as many instants (`bench.references`); the goals are
ratios to their delays.

usage: schedule.py [--seconds N] [--targets N] prints a RESULT line; exit 1 when a goal is missed
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.processes import Chain, start
from bench.result import at_least, at_most, conclude, percentile
from bench.simulator import MODEL, Simulator

GOALS = {
    "start_error_p99_ratio": at_most(10),
    "slot_skew_p99_ratio": at_most(10),
    # The share of planned rounds that both vantages have probed.
    "pairs_share": at_least(0.9),
}
VANTAGES = {"bench-1": "us-east-2", "bench-2": "ap-southeast-1"}
EVERY_SECONDS = 2
SETTLE_SECONDS = 3


def plan(base_url: str, targets: int) -> dict[str, Any]:
    probed = [
        {"provider": f"sim-{n}", "model": MODEL, "base_url": base_url, "workload": {"max_output_tokens": 5}}
        for n in range(targets)
    ]
    return {"baseline": "us-east-2", "every": f"{EVERY_SECONDS}s", "targets": probed}


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the start errors of all probes, and the skews of rounds that both vantages probed, in milliseconds."""
    late_ms = [row["late_us"] / 1000 for row in rows]
    begun: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        begun.setdefault((row["target"], row["round_at"]), []).append(row["late_us"] / 1000)
    skew_ms = [max(both) - min(both) for both in begun.values() if len(both) == len(VANTAGES)]
    if not skew_ms:
        raise SystemExit("no round was probed by both vantages")
    return {"pairs": len(skew_ms)} | percentiles(late_ms, skew_ms)


def percentiles(late_ms: Sequence[float], skew_ms: Sequence[float]) -> dict[str, float]:
    return {
        "start_error_p50_ms": percentile(late_ms, 0.5),
        "start_error_p99_ms": percentile(late_ms, 0.99),
        "slot_skew_p50_ms": percentile(skew_ms, 0.5),
        "slot_skew_p99_ms": percentile(skew_ms, 0.99),
    }


def reference_figures(timers: Sequence[subprocess.Popen[bytes]]) -> dict[str, float]:
    delays: list[list[float]] = [json.loads(timer.communicate()[0]) for timer in timers]
    skew_ms = [max(pair) - min(pair) for pair in zip(*delays, strict=True)]
    return percentiles([delay for own in delays for delay in own], skew_ms)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the punctuality of rounds.")
    parser.add_argument("--seconds", type=int, default=60, help="duration of the measurement")
    parser.add_argument("--targets", type=int, default=10, help="number of targets, each probed every 2 s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Chain(Path(name)) as chain:
        simulator = Simulator(Path(name))
        chain.callback(simulator.stop)
        chain.apply(plan(simulator.base_url, options.targets))
        for vantage, region in VANTAGES.items():
            chain.start_agent(vantage, region)
        until = time.monotonic() + options.seconds + SETTLE_SECONDS
        # One reference per vantage, each with as many instants per second as a vantage has probes.
        per_second = max(1, options.targets // EVERY_SECONDS)
        timer = ("bench.references", "timer", str(options.seconds), str(per_second))
        expected = reference_figures([start(*timer) for _ in VANTAGES])
        time.sleep(max(0.0, until - time.monotonic()))
        found = figures([row for row in chain.samples() if not row["outcome"].startswith("skipped")])
    found["pairs_share"] = found["pairs"] / (options.targets * options.seconds / EVERY_SECONDS)
    ratios = {
        f"{name}_ratio": found[f"{name}_ms"] / expected[f"{name}_ms"] for name in ("start_error_p99", "slot_skew_p99")
    }
    return conclude(ratios | found | {f"reference_{name}": value for name, value in expected.items()}, GOALS)


if __name__ == "__main__":
    sys.exit(main())
