"""The whole chain to a published hedge: simulated providers that stall, an agent that probes them, and a collector."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.hedge.stalls import episodes
from bench.processes import ready, start
from bench.simulator import WORLD, Simulator
from isochrone.routing import Routes

REGION = "us-east-2"
PART, SHARED = "part", "shared"
"""The routes: one whose members share a part of their stalls, and one whose members share all."""
PROVIDERS = {PART: ("alpha", "beta"), SHARED: ("gamma", "delta")}
# The first choices stall in 3 % of requests. A hedge is published once the p99 with it is certainly shorter, which 299
# to 600 joint rounds allow if at most one of them has two stalls.
OWN_STALLS = {"alpha": 0.0294, "beta": 0.01, "gamma": 0.0, "delta": 0.0}
SHARED_STALLS = {PART: 0.0006, SHARED: 0.03}
TTFT_MS = (1000, 1400)
# More than the noise of a busy machine, which delays both members.
JITTER_MS = 400
EVERY = "200ms"
MODEL = "m"
# A p99 needs 299 joint rounds, a minute, which are counted when they are as old as a timeout, another minute.
LEARNING_S = 360.0


def world() -> dict[str, Any]:
    """The providers: the first of each route is certainly faster than the second."""
    models = [
        {
            "id": f"{provider}-{MODEL}",
            "provider": provider,
            "ttft_ms": ttft_ms,
            "jitter_ms": JITTER_MS,
            "tokens_per_second": 1000,
        }
        for providers in PROVIDERS.values()
        for provider, ttft_ms in zip(providers, TTFT_MS, strict=True)
    ]
    return dict(WORLD) | {"models": models}


def plan(base_url: str) -> dict[str, Any]:
    """The plan with both routes. A probe that stalls delays no other one."""
    workload = {"max_output_tokens": 1}
    members = {
        route: [
            {"provider": name, "model": f"{name}-{MODEL}", "base_url": base_url, "workload": workload}
            for name in providers
        ]
        for route, providers in PROVIDERS.items()
    }
    return {
        "baseline": REGION,
        "every": EVERY,
        "overlap": "allow",
        "targets": [target for targets in members.values() for target in targets],
        "routes": [
            {"name": route, "members": [f"{one['provider']}/{one['model']}" for one in targets]}
            for route, targets in members.items()
        ],
    }


@contextmanager
def running(folder: Path, *, seconds: float, seed: int) -> Iterator[str]:
    """Run everything; yield the HTTP address of the collector. The stalls go on for `seconds`."""
    with ExitStack() as stack:
        serve = ("serve", "--trust-loopback", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
        reported = ready(_started(stack, "isochrone_collector", *serve, "--data-dir", str(folder / "collector")))
        words = [
            word
            for route, providers in PROVIDERS.items()
            for episode in episodes(
                {name: OWN_STALLS[name] for name in providers},
                REGION,
                shared=SHARED_STALLS[route],
                seconds=seconds,
                seed=seed,
            )
            for word in ("--episode", *episode)
        ]
        simulator = Simulator(folder, *words, world=world())
        stack.callback(simulator.stop)
        document = folder / "plan.yaml"
        document.write_text(json.dumps(plan(simulator.base_url)))
        apply = ("apply", str(document), "--collector", reported["listen"], "--yes")
        with start("isochrone_collector", *apply) as applying:
            if applying.wait(60):
                raise SystemExit("the plan was not applied")
        where = ("--vantage", f"{REGION}-1", "--region", REGION, "--data-dir", str(folder / REGION))
        _started(stack, "isochrone_agent", "run", *where, "--collector", reported["listen"], "--concurrency", "1000")
        yield reported["http"]


def wait_for_hedge(routes: Routes) -> None:
    """Wait until the table of the route `part` has a hedge delay. Exits the benchmark if none is published."""
    until = time.monotonic() + LEARNING_S
    while time.monotonic() < until:
        table = routes.table(PART)
        hedge = table.entries[0].hedge if table else None
        if hedge is not None and hedge.delay_us is not None:
            print(f"hedge after {hedge.delay_us / 1000:.0f} ms", file=sys.stderr)  # noqa: T201  # a bench prints
            return
        time.sleep(1)
    raise SystemExit("no hedge was published")


def _started(stack: ExitStack, module: str, *options: str) -> subprocess.Popen[bytes]:
    process = stack.enter_context(start(module, *options))
    stack.callback(process.terminate)
    return process
