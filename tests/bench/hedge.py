"""Consumers of route tables against stalls, changes and dead members.

Providers stall in 3 % of requests; some stalls are shared by both members of the route. An agent probes them, a
collector publishes the hedge, and requests go through the transports of `isochrone.routing`, hedged and unhedged in
turn. The members of a second route share all their stalls, so no request of that route may be doubled.

Then a collector's tables move the traffic of the real Envoy over gRPC (xDS): vantages push rounds in which the first
choice fails, although it answers Envoy's requests. The time begins with the commit of these rounds, so it includes the
collector's decision and the share of `move_within_us` that the id of Envoy's node gives. At last, requests go through
LiteLLM's real proxy with a dead first choice. Without one of the two programs its figure is `skipped`, and its goal
missed.

usage: hedge [--seconds N] [--changes N] [--seed N] prints a RESULT line; exit 1 when a goal is missed
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import httpx2

from bench.processes import Chain, running_collector
from bench.result import Figure, Goal, Tally, at_least, at_most, conclude, log, percentile
from bench.routes import REGIONS, ROUND_US, ROUTE_MEMBERS, SETTLE_SECONDS, Fleet
from bench.simulator import WORLD, Simulator
from fixtures import simulator as fault_simulator
from fixtures.envoy import ENVOY, Envoy, Provider, StartEnvoy, example
from fixtures.litellm import Tables, deployment, has_proxy, plugin_settings, proxy
from isochrone.routing import Routes
from isochrone.routing.httpx2 import AsyncTransport
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_common.address import parse_address
from testdata.ports import dead_url
from testdata.waiting import eventually

PER_SECOND = 12.0
MOST_EXTRA_PCT = 6.0
MOST_HEDGED = 0.5
"""The hedged p99 over the unhedged one."""
REGION = "us-east-2"
PART, SHARED = "part", "shared"
"""The routes: one whose members share a part of their stalls, and one whose members share all."""
PROVIDERS = {PART: ("alpha", "beta"), SHARED: ("gamma", "delta")}
# The first choices stall in 3 % of requests. A hedge is published once the p99 with it is certainly shorter, which 299
# to 600 joint rounds allow if at most one of them has two stalls.
OWN_STALLS = {"alpha": 0.0294, "beta": 0.01, "gamma": 0.0, "delta": 0.0}
SHARED_STALLS = {PART: 0.0006, SHARED: 0.03}
STALL_MS, SPAN_S = 8000.0, 0.1
TTFT_MS = (1000, 1400)
# More than the noise of a busy machine, which delays both members.
JITTER_MS = 400
MODEL = "m"
# A p99 needs 299 joint rounds, a minute, which are counted when they are as old as a timeout, another minute.
LEARNING_S = 360.0
DEAD, SECOND, OTHER = "sim/dead", "sim/none", "sim/crlf"
LITELLM_REQUESTS = 10
_BETWEEN_CHANGES_S = 1.0
_TIMEOUT_S = 30.0
_PATIENCE_S = 10.0
_NO_HEDGE = {"reason": "a member fails", "delay_us": None}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Hedged requests, and gateways that follow tables.")
    parser.add_argument("--seconds", type=float, default=150, help="duration of the hedged and unhedged requests")
    parser.add_argument("--changes", type=int, default=9, help="number of changes for Envoy")
    parser.add_argument("--seed", type=int, default=1, help="another seed has other stalls")
    options = parser.parse_args(words)
    hedged, unhedged, shared = measured_streams(options.seconds, options.seed)
    unhedged_p99_ms = percentile(unhedged.ttft_ms, 0.99)
    figures: dict[str, Figure] = {
        "litellm_dead_first_choice": litellm_dead_first_choice(),
        "envoy_moved_ms": envoy_moved_ms(options.changes),
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


@dataclass(slots=True)
class Stream:
    """Requests for one route by one client. `ttft_ms` are their times to the first content, in milliseconds."""

    routes: Routes
    route: str
    ttft_ms: list[float] = field(default_factory=list)

    @property
    def extra_pct(self) -> float:
        """Second requests per hundred requests."""
        return 100 * self.routes.counters["hedges"] / max(1, self.routes.counters["requests"])

    async def send(self, client: httpx2.AsyncClient, number: int) -> None:
        message = {"role": "user", "content": f"Request {number}"}
        document = {"model": self.route, "stream": True, "max_tokens": 1, "messages": [message]}
        began = time.perf_counter()
        async with client.stream("POST", "http://127.0.0.1:1/v1/chat/completions", json=document) as response:
            self.ttft_ms.append(1000 * (time.perf_counter() - began))
            response.raise_for_status()
            async for _ in response.aiter_bytes():
                pass


def measured_streams(seconds: float, seed: int) -> tuple[Stream, Stream, Stream]:
    """Return the requests that were hedged, those that were not, and those of members that share their stalls."""
    with (
        tempfile.TemporaryDirectory() as name,
        _running(Path(name), seconds=LEARNING_S + seconds, seed=seed) as url,
        Routes(url, REGION, cache_folder=None) as hedging,
        Routes(url, REGION, cache_folder=None, hedge_ratio=0) as waiting,
        Routes(url, REGION, cache_folder=None) as sharing,
    ):
        found = Stream(hedging, PART), Stream(waiting, PART), Stream(sharing, SHARED)
        _wait_for_hedge(hedging)
        hedges = asyncio.run(_send(found, seconds, url))
        for stream in found:
            log(f"{stream.route} {dict(stream.routes.counters)}")
        for route in (PART, SHARED):
            log(f"tables of {route}: {_summary([hedge for _, hedge in sorted(hedges.get(route, {}).items())])}")
        return found


async def _send(streams: Sequence[Stream], seconds: float, url: str) -> "_Hedges":
    """Send the requests of one stream after the other, without waiting for responses; return the hedges meanwhile."""
    hedges: _Hedges = {}
    loop = asyncio.get_running_loop()
    following = asyncio.create_task(_follow(url, hedges))
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        transports = [AsyncTransport(stream.routes) for stream in streams]
        clients = [
            await stack.enter_async_context(httpx2.AsyncClient(transport=transport, timeout=_TIMEOUT_S))
            for transport in transports
        ]
        began, every_s = loop.time(), 1 / PER_SECOND / len(streams)
        for number in range(round(seconds * PER_SECOND) * len(streams)):
            await asyncio.sleep(max(0.0, began + number * every_s - loop.time()))
            place = number % len(streams)
            tasks.create_task(streams[place].send(clients[place], number))
    following.cancel()
    return hedges


_Hedges = dict[str, dict[int, Mapping[str, Any]]]
"""The hedge of each generation of each route."""


async def _follow(url: str, hedges: _Hedges) -> None:
    """Note the published hedges every second until cancelled: the shortest epoch has five."""
    async with httpx2.AsyncClient() as client:
        while True:
            answer = await client.get(f"{url}/v1/routes/{REGION}")
            for table in answer.json()["tables"]:
                hedge = table["entries"][0]["hedge"] if table["entries"] else None
                hedges.setdefault(table["route"], {})[table["generation"]] = hedge or _NO_HEDGE
            await asyncio.sleep(1)


def _summary(hedges: Sequence[Mapping[str, Any]]) -> str:
    """Return how many tables had a hedge, and how many none for which reason; the changes between these; delays."""
    delays_ms = [hedge["delay_us"] / 1000 for hedge in hedges if hedge["delay_us"] is not None]
    reasons = Counter(re.split("[,:]", hedge["reason"])[0] or "published" for hedge in hedges)
    changes = sum(bool(one["reason"]) != bool(other["reason"]) for one, other in pairwise(hedges))
    delay = f", after {min(delays_ms):.0f} to {max(delays_ms):.0f} ms" if delays_ms else ""
    return f"{dict(reasons)}, {changes} changes{delay}"


@contextmanager
def _running(folder: Path, *, seconds: float, seed: int) -> Iterator[str]:
    """Run everything; yield the HTTP address of the collector. The stalls go on for `seconds`."""
    with Chain(folder) as chain:
        words = [
            word
            for route in PROVIDERS
            for episode in _episodes(route, seconds=seconds, seed=seed)
            for word in ("--episode", *episode)
        ]
        simulator = Simulator(folder, *words, world=_world())
        chain.callback(simulator.stop)
        chain.apply(_plan(simulator.base_url))
        chain.start_agent(f"{REGION}-1", REGION, "--concurrency", "1000")
        yield chain.reported["http"]


def _episodes(route: str, *, seconds: float, seed: int) -> Iterator[tuple[str, ...]]:
    """Yield the words after `isochrone-sim serve --episode` for stalls of each member in a share of the time, and for
    those that both have at once. One span lies somewhere in each period of which it is that share.
    """
    providers = PROVIDERS[route]
    random = Random(f"{seed} {sorted(providers)}")
    own = [((name,), OWN_STALLS[name]) for name in providers]
    for group, share in [*own, (providers, SHARED_STALLS[route])]:
        period_s = SPAN_S / share if share else seconds + 1
        for nth in range(int(seconds / period_s)):
            after_s = (nth + random.random()) * period_s
            for provider in group:
                yield provider, REGION, f"{STALL_MS:g}", f"{after_s:.3f}", f"{SPAN_S:g}"


def _world() -> dict[str, Any]:
    """The providers: the first of each route is certainly faster than the second."""
    common = {"jitter_ms": JITTER_MS, "tokens_per_second": 1000}
    models = [
        {"id": f"{provider}-{MODEL}", "provider": provider, "ttft_ms": ttft_ms, **common}
        for providers in PROVIDERS.values()
        for provider, ttft_ms in zip(providers, TTFT_MS, strict=True)
    ]
    return dict(WORLD) | {"models": models}


def _plan(base_url: str) -> dict[str, Any]:
    """The plan with both routes. A probe that stalls delays no other one."""
    common = {"base_url": base_url, "workload": {"max_output_tokens": 1}}
    routes = {route: [(name, f"{name}-{MODEL}") for name in providers] for route, providers in PROVIDERS.items()}
    return {
        "baseline": REGION,
        "every": "200ms",
        "overlap": "allow",
        "targets": [{"provider": p, "model": m, **common} for members in routes.values() for p, m in members],
        "routes": [{"name": name, "members": [f"{p}/{m}" for p, m in members]} for name, members in routes.items()],
    }


def _wait_for_hedge(routes: Routes) -> None:
    """Wait until the table of the route `part` has a hedge delay. Exits the benchmark if none is published."""
    until = time.monotonic() + LEARNING_S
    while time.monotonic() < until:
        table = routes.table(PART)
        hedge = table.entries[0].hedge if table else None
        if hedge is not None and hedge.delay_us is not None:
            log(f"hedge after {hedge.delay_us / 1000:.0f} ms")
            return
        time.sleep(1)
    raise SystemExit("no hedge was published")


def envoy_moved_ms(changes: int) -> float | str:
    """Return the median time in milliseconds in which a table moves Envoy's traffic; `skipped` without Envoy."""
    if ENVOY is None:
        return "skipped"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        providers = {name: Provider(name) for name in ROUTE_MEMBERS}
        for provider in providers.values():
            stack.enter_context(provider.serving())
        postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres"))
        collector = stack.enter_context(running_collector(folder, postgres.conninfo))
        urls = {name: f"http://127.0.0.1:{provider.port}/v1" for name, provider in providers.items()}
        fleet = Fleet(collector.address, urls)
        now_at = time.time_ns() // 1000
        fleet.push([now_at - place * ROUND_US for place in range(60, 0, -1)])
        time.sleep(SETTLE_SECONDS)
        start = StartEnvoy(folder)
        stack.callback(_kill, start)
        envoy = start(example("grpc.yaml", port=parse_address(collector.address).port, region=REGIONS[0]))
        return median(1000 * took for took in asyncio.run(_moves(envoy, fleet, changes)))


def _kill(start: StartEnvoy) -> None:
    for process in start.running:
        process.kill()


async def _moves(envoy: Envoy, fleet: Fleet, changes: int) -> list[float]:
    found = []
    for number in range(changes):
        dead, alive = ROUTE_MEMBERS[number % 2], ROUTE_MEMBERS[1 - number % 2]
        at = time.time_ns() // 1000
        committed = await asyncio.to_thread(fleet.push, [at - 3, at - 2, at - 1, at], dead)
        await envoy.until(lambda answer, alive=alive: answer[:2] == (200, alive))  # type: ignore[misc]  # a default
        found.append(time.monotonic() - committed)
        await asyncio.sleep(_BETWEEN_CHANGES_S)
    return found


def litellm_dead_first_choice() -> Tally | str:
    """Return how many of ten requests the second choice served, if the first refuses; `skipped` without LiteLLM."""
    if not has_proxy():
        return "skipped"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(fault_simulator.running()).base_url
        tables = Tables()
        tables.server.start()
        stack.callback(tables.server.stop)
        tables.publish(OTHER, SECOND)
        good = [deployment("chat", name, name.removeprefix("sim/"), url) for name in (SECOND, OTHER)]
        models = [deployment("chat", DEAD, "none", dead_url()), *good]
        consumer = proxy(models, plugin_settings(tables, folder) | {"regions": []}, folder)
        stack.callback(consumer.stop)
        consumer.start()
        eventually(_PATIENCE_S, lambda: consumer.ask() == OTHER, "the first table is followed")
        tables.publish(DEAD, SECOND, OTHER)
        found = [OTHER]

        def is_followed() -> bool:
            found[0] = consumer.ask()
            return found[0] != OTHER

        eventually(_PATIENCE_S, is_followed, "the table with a dead first choice is followed")
        found += [consumer.ask() for _ in range(LITELLM_REQUESTS - 1)]
    return Tally(found.count(SECOND), LITELLM_REQUESTS)


if __name__ == "__main__":
    sys.exit(main())
