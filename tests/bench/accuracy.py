"""Measurement error of the agent against the simulator's ground truth, compared with a typical script in the same run.

Simulator and clients are separate processes and share no clock but CLOCK_MONOTONIC: the simulator records the kernel's
arrival timestamp of each request and the instant of each write, and a client's results are compared with that record,
never with the configuration.

`aiperf`, if installed (bench/aiperf.py), is measured with half as many requests. It starts a dozen processes, which
takes longer than the measurement; its CPU cost per probe is not comparable and left out.

The goals are ratios to the typical script.

usage: accuracy.py [--quick] prints a table and a RESULT line; exit 1 when a goal is missed
"""

import asyncio
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import aiperf, references
from bench.references import Measurement
from bench.result import at_most, conclude, percentile
from bench.simulator import MODEL, RATE, TOKENS, TTFT_MS, GroundTruth, Simulator, true_tokens_per_second, true_ttft_us
from isochrone_agent.clock import now_at
from isochrone_agent.probe.prober import Prober
from isochrone_wire.model import Outcome, Quality, Sample, Target, Workload

# Requests in flight and number of bursts: about three and a half minutes for two clients, five for three.
BURSTS = {1: 30, 8: 12, 20: 10, 100: 4}
GOALS = {
    "ttft_error_p99_ratio_20": at_most(0.25),
    "ttft_error_p50_ratio_100": at_most(0.25),
    "tps_error_ratio_20": at_most(1),
    "cpu_ratio": at_most(1.5),
}
AGENT, SCRIPT = "isochrone-agent", "a typical script"
TLS = ssl.create_default_context()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One client at one load: errors of TTFT and of tokens/s, and if known, CPU and the share that is `lagged`."""

    client: str
    in_flight: int
    probes: int
    ttft_error_p50_us: float
    ttft_error_p99_us: float
    tps_error_pct: float
    cpu_ms: float | None = None
    lagged: float | None = None


def compare(
    client: str,
    measurements: Sequence[Measurement],
    ground_truth: GroundTruth,
    *,
    in_flight: int,
    cpu_ms: float | None = None,
    lagged: float | None = None,
) -> Row:
    pairs = [(measurement, ground_truth[measurement.request_id]) for measurement in measurements]
    ttft = [abs(measurement.ttft_us - true_ttft_us(record)) for measurement, record in pairs]
    tps = [
        abs(measurement.tokens_per_second / true_tokens_per_second(record) - 1) * 100 for measurement, record in pairs
    ]
    return Row(
        client=client,
        in_flight=in_flight,
        probes=len(measurements),
        ttft_error_p50_us=statistics.median(ttft),
        ttft_error_p99_us=percentile(ttft, 0.99),
        tps_error_pct=statistics.median(tps),
        cpu_ms=cpu_ms,
        lagged=lagged,
    )


Measure = Callable[[Simulator, int, int], Row]


def measure_agent(simulator: Simulator, streams: int, bursts: int) -> Row:
    samples: list[Sample] = []
    cpu = time.process_time()
    for _ in range(bursts):
        samples += asyncio.run(_burst(simulator.base_url, streams))
    cpu_ms = (time.process_time() - cpu) * 1000 / len(samples)
    failed = [sample for sample in samples if sample.outcome is not Outcome.OK]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(samples)} probes failed: {failed[0].error}")
    lagged = sum(Quality.LAGGED in sample.quality for sample in samples) / len(samples)
    measurements = [
        Measurement(sample.request_id or "", sample.ttft_us or 0, sample.tokens_per_second or 0) for sample in samples
    ]
    return compare(AGENT, measurements, simulator.ground_truth(), in_flight=streams, cpu_ms=cpu_ms, lagged=lagged)


async def _burst(base_url: str, streams: int) -> list[Sample]:
    workload = Workload(max_output_tokens=TOKENS, concurrency=streams)
    target = Target(id=1, name=MODEL, provider="sim", model=MODEL, base_url=base_url, workload=workload)
    return await Prober(vantage="bench", tls=TLS).burst(target, round_at=now_at())


def measure_reference(simulator: Simulator, streams: int, bursts: int) -> Row:
    measurements: list[Measurement] = []
    cpu = time.process_time()
    for _ in range(bursts):
        measurements += asyncio.run(
            references.probe_many(simulator.base_url, MODEL, streams=streams, max_tokens=TOKENS)
        )
    cpu_ms = (time.process_time() - cpu) * 1000 / len(measurements)
    return compare(SCRIPT, measurements, simulator.ground_truth(), in_flight=streams, cpu_ms=cpu_ms)


def measure_aiperf(folder: Path, simulator: Simulator, streams: int, bursts: int) -> Row:
    """Measure aiperf's errors at one load. Raises `AiperfUnavailable`."""
    requests = streams * max(2, bursts // 2)
    measurements = aiperf.measure(aiperf.find(), simulator.base_url, folder, streams=streams, requests=requests)
    return compare("aiperf", measurements, simulator.ground_truth(), in_flight=streams)


def show(row: Row) -> None:
    cpu = "-" if row.cpu_ms is None else f"{row.cpu_ms:.1f}"
    lagged = "-" if row.lagged is None else f"{100 * row.lagged:.0f} %"
    print(  # noqa: T201  # a bench prints
        f"{row.client:17} {row.in_flight:>9} {row.probes:>7} {row.ttft_error_p50_us / 1000:>14.3f} "
        f"{row.ttft_error_p99_us / 1000:>14.3f} {row.tps_error_pct:>12.2f} {cpu:>9} {lagged:>8}",
        flush=True,
    )


def results(rows: Sequence[Row]) -> dict[str, float]:
    """Return the agent's figures and their ratios to the script's; "20" is the worst of 1, 8 and 20 in flight."""
    ours, theirs = (_figures([row for row in rows if row.client == client]) for client in (AGENT, SCRIPT))
    ratios = {goal: ours[name] / theirs[name] for goal, name in zip(GOALS, ours, strict=True)}
    return ratios | ours | {f"reference_{name}": value for name, value in theirs.items()}


def _figures(rows: Sequence[Row]) -> dict[str, float]:
    few = [row for row in rows if row.in_flight <= 20]  # the load of the goal
    many = next(row for row in rows if row.in_flight == 100)  # as above
    return {
        "ttft_error_p99_us_20": max(row.ttft_error_p99_us for row in few),
        "ttft_error_p50_us_100": many.ttft_error_p50_us,
        "tps_error_pct_20": max(row.tps_error_pct for row in few),
        "cpu_ms_per_probe": next(row.cpu_ms or 0 for row in rows if row.in_flight == 20),  # as above
    }


def attempt(measure: Measure, simulator: Simulator, streams: int, bursts: int) -> Row | None:
    """Return the row of this client at this load; print the reason and return `None` if it cannot be measured."""
    try:
        return measure(simulator, streams, bursts)
    except aiperf.AiperfUnavailable as reason:
        print(f"aiperf is left out: {reason}", flush=True)  # noqa: T201  # as above
        return None


def warm_up(simulator: Simulator, folder: Path) -> list[Measure]:
    """Return the clients that can be measured here, each after a first run that loads imports and caches."""
    measures: list[Measure] = [measure_agent, measure_reference, partial(measure_aiperf, folder)]
    return [measure for measure in measures if attempt(measure, simulator, 1, 2) is not None]


def run(share: int) -> list[Row]:
    """Measure every client at every load, with `share` times fewer bursts, and print the table."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(Path(folder))
        try:
            measures = warm_up(simulator, Path(folder))
            print("client            in flight  probes  ttft p50 [ms]  ttft p99 [ms]  tok/s [%]  CPU [ms]   lagged")  # noqa: T201  # as above
            for streams, bursts in BURSTS.items():
                for measure in measures:
                    row = attempt(measure, simulator, streams, max(2, bursts // share))
                    if row is not None:
                        rows.append(row)
                        show(row)
        finally:
            simulator.stop()
    return rows


def main() -> int:
    print(f"TTFT {TTFT_MS} ms, {TOKENS} tokens at {RATE}/s; errors against the simulator's record")  # noqa: T201  # as above
    return conclude(results(run(3 if "--quick" in sys.argv else 1)), GOALS)


if __name__ == "__main__":
    sys.exit(main())
