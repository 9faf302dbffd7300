"""Consumers of route tables against stalls, changes and dead members.

Providers stall in 3 % of requests; some stalls are shared by both members of the route. An agent probes them, a
collector publishes the hedge, and requests go through the transports of `isochrone.routing`, hedged and unhedged in
turn. The members of a second route share all their stalls, so no request of that route may be doubled. Then a table
moves the traffic of the real Envoy, and requests go through LiteLLM's real proxy with a dead first choice. Without one
of the two programs its figure is `skipped`, and its goal missed.

usage: hedge [--seconds N] [--changes N] [--seed N] prints a RESULT line; exit 1 when a goal is missed
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.hedge.chain import LEARNING_S, PART, REGION, SHARED, running, wait_for_hedge
from bench.hedge.dead_first_choice import litellm_dead_first_choice
from bench.hedge.moved import envoy_moved_ms
from bench.hedge.published_hedges import PublishedHedges
from bench.hedge.requests import Stream, send
from bench.hedge.stalls import STALL_MS
from bench.result import Figure, Goal, at_least, at_most, conclude, percentile
from isochrone.routing import Routes

PER_SECOND = 12.0
MOST_EXTRA_PCT = 6.0
MOST_HEDGED = 0.5
"""The hedged p99 over the unhedged one."""


def main(words: Sequence[str] | None = None) -> int:
    """Return 0 if all goals are met."""
    parser = argparse.ArgumentParser(description="Hedged requests, and gateways that follow tables.")
    parser.add_argument("--seconds", type=float, default=150, help="duration of the hedged and unhedged requests")
    parser.add_argument("--changes", type=int, default=9, help="number of changes for Envoy")
    parser.add_argument("--seed", type=int, default=1, help="another seed has other stalls")
    options = parser.parse_args(words)
    hedged, unhedged, shared = streams(options.seconds, options.seed)
    moved_ms = envoy_moved_ms(options.changes)
    unhedged_p99_ms = percentile(unhedged.ttft_ms, 0.99)
    figures: dict[str, Figure] = {
        "litellm_dead_first_choice": litellm_dead_first_choice(),
        "envoy_moved_ms": moved_ms,
        "hedged_p99_ms": percentile(hedged.ttft_ms, 0.99),
        "unhedged_p99_ms": unhedged_p99_ms,
        "extra_requests_pct": hedged.extra_pct,
        "shared_extra_requests_pct": shared.extra_pct,
        "hedged_p50_ms": percentile(hedged.ttft_ms, 0.5),
        "unhedged_p50_ms": percentile(unhedged.ttft_ms, 0.5),
        "stalled_pct": 100 * sum(ms > STALL_MS for ms in unhedged.ttft_ms) / len(unhedged.ttft_ms),
        "requests": len(hedged.ttft_ms),
    }
    goals: dict[str, Goal] = {
        "litellm_dead_first_choice": at_least(1),
        "envoy_moved_ms": at_most(2000),
        "hedged_p99_ms": at_most(MOST_HEDGED * unhedged_p99_ms),
        "extra_requests_pct": at_most(MOST_EXTRA_PCT),
        "shared_extra_requests_pct": at_most(0),
    }
    return conclude(figures, goals)


def streams(seconds: float, seed: int) -> tuple[Stream, Stream, Stream]:
    """Return the requests that were hedged, those that were not, and those of members that share their stalls."""
    with (
        tempfile.TemporaryDirectory() as name,
        running(Path(name), seconds=LEARNING_S + seconds, seed=seed) as url,
        Routes(url, REGION, cache_folder=None) as hedging,
        Routes(url, REGION, cache_folder=None, hedge_ratio=0) as waiting,
        Routes(url, REGION, cache_folder=None) as sharing,
    ):
        found = Stream(hedging, PART), Stream(waiting, PART), Stream(sharing, SHARED)
        wait_for_hedge(hedging)
        hedges = asyncio.run(_send(found, seconds, url))
        for stream in found:
            print(stream.route, dict(stream.routes.counters), file=sys.stderr)  # noqa: T201  # a bench prints
        for route in (PART, SHARED):
            print(f"tables of {route}: {hedges.summary(route)}", file=sys.stderr)  # noqa: T201  # as above
        return found


async def _send(streams: Sequence[Stream], seconds: float, url: str) -> PublishedHedges:
    """Send the requests; return the hedges of the tables meanwhile."""
    hedges = PublishedHedges(url, REGION)
    following = asyncio.create_task(hedges.follow())
    await send(streams, seconds=seconds, per_second=PER_SECOND)
    following.cancel()
    return hedges


if __name__ == "__main__":
    sys.exit(main())
