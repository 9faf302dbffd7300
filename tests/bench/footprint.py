"""Memory and CPU of a real agent process at one probe per second, from /proc.

The setup is a collector on an embedded database, the simulator with one steady model (150 tokens at 100 tokens/s), and
one agent that probes it every second and pushes the samples. Beside it, a typical script (`bench.reference_client`)
sends the same request every second; the goals are ratios to this script.

usage: footprint.py [--seconds N] prints a RESULT line; exit 1 when a goal is missed
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.processes import cpu_seconds, ready, rss_mb, start
from bench.result import at_least, at_most, conclude
from bench.simulator import MODEL, TOKENS, WORLD

# A cheap agent that measures nothing must fail.
GOALS = {"rss_ratio": at_most(1.35), "cpu_ratio": at_most(0.75), "probes_ok": at_least(0.8)}
SETTLE_SECONDS = 10


def run(folder: Path, processes: list[subprocess.Popen[bytes]], seconds: int) -> dict[str, float]:
    """Run everything for `seconds`; return the figures of the agent."""
    world = folder / "world.json"
    world.write_text(json.dumps(WORLD))
    processes.append(start("isochrone_sim", "serve", "--listen", "127.0.0.1:0", "--world", str(world)))
    base_url = json.loads(json.dumps(ready(processes[-1])["endpoints"]))["us-east-2"]
    serve = ("serve", "--trust-loopback", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "c"))
    processes.append(start("isochrone_collector", *serve))
    collector = ready(processes[-1])["listen"]
    plan = folder / "plan.yaml"
    target = {"provider": "sim", "model": MODEL, "base_url": base_url, "workload": {"max_output_tokens": TOKENS}}
    plan.write_text(json.dumps({"baseline": "us-east-2", "every": "1s", "overlap": "allow", "targets": [target]}))
    start("isochrone_collector", "apply", str(plan), "--collector", collector, "--yes").wait(60)
    options = (
        "--vantage",
        "bench-1",
        "--region",
        "us-east-2",
        "--collector",
        collector,
        "--data-dir",
        str(folder / "a"),
    )
    processes.append(start("isochrone_agent", "run", *options))
    processes.append(start("bench.reference_client", base_url, MODEL, str(TOKENS)))
    agent, script = processes[-2].pid, processes[-1].pid
    time.sleep(SETTLE_SECONDS)
    before = [cpu_seconds(pid) for pid in (agent, script)]
    started = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - started
    cpu_pct, script_cpu_pct = (
        100 * (cpu_seconds(pid) - used) / elapsed for pid, used in zip((agent, script), before, strict=True)
    )
    return {
        "rss_ratio": rss_mb(agent) / rss_mb(script),
        "cpu_ratio": cpu_pct / script_cpu_pct,
        "rss_mb": rss_mb(agent),
        "cpu_pct": cpu_pct,
        "reference_rss_mb": rss_mb(script),
        "reference_cpu_pct": script_cpu_pct,
        "probes_ok": count_ok(f"unix:{folder / 'c' / 'collector.sock'}") / (seconds + SETTLE_SECONDS),
    }


def count_ok(collector: str) -> int:
    """Return the number of stored successful probes."""
    command = [sys.executable, "-m", "isochrone_client", "samples", "--collector", collector, "--output", "json"]
    done = subprocess.run([*command, "--limit", "10000"], capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    failed = {str(row["error"]) for row in rows if row["outcome"] != "ok"}
    if failed:
        sys.stderr.write(f"failed probes: {'; '.join(sorted(failed))}\n")
    return sum(row["outcome"] == "ok" for row in rows)


def main() -> int:
    """Return 0 if memory and CPU are within their goals."""
    seconds = int(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 60
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            figures = run(Path(folder), processes, seconds)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(20)
    return conclude(figures, GOALS)


if __name__ == "__main__":
    sys.exit(main())
