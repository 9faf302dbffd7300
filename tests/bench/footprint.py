"""Memory and CPU of a real agent process at one probe per second, from /proc.

The setup is a collector on an embedded database, the simulator with one steady model (150 tokens at 100 tokens/s), and
one agent that probes it every second and pushes the samples. Beside it, a typical script (`bench.references`)
sends the same request every second; the goals are ratios to this script.

usage: footprint.py [--seconds N] prints a RESULT line; exit 1 when a goal is missed
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.processes import Chain, cpu_seconds, rss_mb
from bench.result import at_least, at_most, conclude
from bench.simulator import MODEL, TOKENS, Simulator

# A cheap agent that measures nothing must fail.
GOALS = {"rss_ratio": at_most(1.35), "cpu_ratio": at_most(0.75), "probes_ok": at_least(0.8)}
SETTLE_SECONDS = 10


def run(folder: Path, chain: Chain, seconds: int) -> dict[str, float]:
    simulator = Simulator(folder)
    chain.callback(simulator.stop)
    url = simulator.base_url
    target = {"provider": "sim", "model": MODEL, "base_url": url, "workload": {"max_output_tokens": TOKENS}}
    chain.apply({"baseline": "us-east-2", "every": "1s", "overlap": "allow", "targets": [target]})
    agent = chain.start_agent("bench-1", "us-east-2").pid
    script = chain.start("bench.references", "client", url, MODEL, str(TOKENS)).pid
    time.sleep(SETTLE_SECONDS)
    before = [cpu_seconds(pid) for pid in (agent, script)]
    started = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - started
    cpu_pct, script_cpu_pct = (
        100 * (cpu_seconds(pid) - used) / elapsed for pid, used in zip((agent, script), before, strict=True)
    )
    rows = chain.samples()
    failed = {str(row["error"]) for row in rows if row["outcome"] != "ok"}
    if failed:
        sys.stderr.write(f"failed probes: {'; '.join(sorted(failed))}\n")
    return {
        "rss_ratio": rss_mb(agent) / rss_mb(script),
        "cpu_ratio": cpu_pct / script_cpu_pct,
        "rss_mb": rss_mb(agent),
        "cpu_pct": cpu_pct,
        "reference_rss_mb": rss_mb(script),
        "reference_cpu_pct": script_cpu_pct,
        "probes_ok": sum(row["outcome"] == "ok" for row in rows) / (seconds + SETTLE_SECONDS),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory and CPU of an agent.")
    parser.add_argument("--seconds", type=int, default=60, help="duration of the measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Chain(Path(folder)) as chain:
        return conclude(run(Path(folder), chain, options.seconds), GOALS)


if __name__ == "__main__":
    sys.exit(main())
