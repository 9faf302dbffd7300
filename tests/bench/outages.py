"""Outages in which requests hang, against real processes: simulator, agents in two regions, collector, gRPC.

In every cycle of 600 s all requests of one region hang for 100 s (`--outage`). `coverage`, `leaderboard`, `slo` and the
evidence of the route must show that share at every interval of the probes, as the mean of the targets with this
interval. Each route has its own rounds, and the outages begin at places that are spread evenly over the longest
interval, so that the probes meet them as often as all requests do. The other region has no outage. `--speed` divides
all durations: the intervals, the limit of the first token, the outages.

usage: outages.py [--cycles N] [--routes N] [--outage S] [--speed N] prints a table and a RESULT line; exit 1 when a
goal is missed
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.processes import Chain
from bench.result import at_most, conclude
from bench.simulator import WORLD, Simulator
from fixtures.collector import Caller
from isochrone_wire.answers import Selection, Window
from isochrone_wire.model import SECOND_US
from testdata.outages import (
    CYCLE_US,
    OUTAGE_US,
    Shares,
    coverage_shares,
    leaderboard_shares,
    route_shares,
    slo_shares,
)

REGIONS = ("us-east-2", "ap-southeast-1")
HOST = "providers.example"
# Its answers end long before the next round, also at the highest speed.
MODEL = {"id": "quick", "provider": "sim", "ttft_ms": 20, "tokens_per_second": 1000, "jitter_ms": 1}
EVERY_S = (10, 30, 60)
# A member that is probed rarely gives the route an epoch of half an hour, and so a window longer than the bench.
RARE_S = 300
LIMIT_S = 60
# The agents start in this time; the first outage begins later.
START_SECONDS = 10
SETTLE_SECONDS = 8
# Outages begin from 200 to 260 s after the start of their cycle, so that each has ended within it.
FIRST_US = CYCLE_US // 3
GOAL_POINTS = 1.5


def target_of(route: str, every_s: int, speed: float) -> dict[str, Any]:
    """Return a target of a route. Its name is its provider in the plan, because one provider has a model only once."""
    return {
        "provider": f"{route}-{every_s}s",
        "model": MODEL["id"],
        "base_url": f"http://{HOST}/v1",
        "every": f"{every_s / speed:g}s",
        "workload": {"max_output_tokens": 1, "timeouts": {"first_token": f"{LIMIT_S / speed:g}s"}},
    }


def document(routes: int, speed: float) -> dict[str, Any]:
    members = {
        f"route-{number}": [target_of(f"route-{number}", every_s, speed) for every_s in (*EVERY_S, RARE_S)]
        for number in range(routes)
    }
    return {
        "baseline": REGIONS[0],
        "targets": [target for targets in members.values() for target in targets],
        "routes": [
            {"name": route, "members": [f"{target['provider']}/{target['model']}" for target in targets]}
            for route, targets in members.items()
        ],
    }


def episodes(cycles: int, speed: float, outage_s: float) -> Iterator[str]:
    """Yield the options of the simulator: a request that begins in an outage gets no token within any limit."""
    for nth in range(cycles):
        begin_us = nth * CYCLE_US + FIRST_US + nth * max(EVERY_S) * SECOND_US / cycles
        after_s = START_SECONDS + begin_us / SECOND_US / speed
        yield from ("--episode", "sim", REGIONS[0], "600000", f"{after_s:.3f}", f"{outage_s / speed:.3f}")


@contextmanager
def fleet(folder: Path, options: argparse.Namespace) -> Iterator[str]:
    """Run everything; yield the collector's address when the simulator has started."""
    with Chain(folder) as chain:
        chain.apply(document(options.routes, options.speed))
        world = dict(WORLD) | {"models": [MODEL], "regions": dict.fromkeys(REGIONS, "here")}
        simulator = Simulator(folder, *episodes(options.cycles, options.speed, options.outage), world=world)
        chain.callback(simulator.stop)
        for region, base_url in simulator.endpoints.items():
            address = base_url.removeprefix("http://").removesuffix("/v1")
            there = ("--connect-to", f"{HOST}:80:{address}", "--concurrency", "1000")
            chain.start_agent(f"{region}-1", region, *there)
        yield chain.socket


def answered(collector: str, window: Window) -> Mapping[str, Shares]:
    """Return the share of failures by surface and interval; last that of the other region."""
    here, there = (Selection(window=window, regions=(region,)) for region in REGIONS)
    with closing(Caller(collector)) as call:
        shares = {
            "coverage": coverage_shares(call, here),
            "leaderboard": leaderboard_shares(call, here),
            "slo": slo_shares(call, here),
            "route": route_shares(collector, REGIONS[0]),
            "no outage": coverage_shares(call, there),
        }
    return {surface: by_interval(found) for surface, found in shares.items()}


def by_interval(shares: Shares) -> Shares:
    """Return the mean share of the targets with the same interval; NaN without any."""
    found = {every_s: [share for name, share in shares.items() if f"-{every_s}s/" in name] for every_s in EVERY_S}
    return {f"every {every_s} s": fmean(some) if some else math.nan for every_s, some in found.items()}


def errors(found: Mapping[str, Shares], share_of_outages: float) -> dict[str, float]:
    """Return the error of each surface at its worst interval, in percentage points."""
    truth = dict.fromkeys(found, share_of_outages) | {"no outage": 0.0}
    return {
        f"{surface.replace(' ', '_')}_error_points": max(
            abs(100 * (share - truth[surface])) for share in shares.values()
        )
        for surface, shares in found.items()
    }


def show(found: Mapping[str, Shares]) -> None:
    """Print a line per surface."""
    headings = next(iter(found.values()))
    lines = [f"{'share of failures, %':<22}" + "".join(f"{heading:>12}" for heading in headings)]
    for surface, shares in found.items():
        lines.append(f"{surface:<22}" + "".join(f"{100 * share:>12.2f}" for share in shares.values()))
    sys.stdout.write("\n".join(lines) + "\n")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Shares of outages in which requests hang.")
    parser.add_argument("--cycles", type=int, default=8, help="number of outages, one in 600 s")
    parser.add_argument("--routes", type=int, default=4, help="number of routes, with a target of each interval")
    parser.add_argument("--outage", type=float, default=OUTAGE_US / SECOND_US, help="seconds of an outage")
    parser.add_argument("--speed", type=float, default=1, help="divides all durations, at most 40")
    parser.add_argument("--points", type=float, default=GOAL_POINTS, help="the error that is allowed")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder), options) as collector:
        span_s = options.cycles * CYCLE_US / SECOND_US / options.speed
        time.sleep(START_SECONDS + span_s)
        until_at = time.time_ns() // 1000
        time.sleep(SETTLE_SECONDS)
        found = answered(collector, Window(from_at=until_at - round(span_s * SECOND_US), until_at=until_at))
    show(found)
    figures = errors(found, options.outage * SECOND_US / CYCLE_US)
    return conclude({"cycles": float(options.cycles), **figures}, dict.fromkeys(figures, at_most(options.points)))


if __name__ == "__main__":
    sys.exit(main())
