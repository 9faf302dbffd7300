"""The time in which a changed table moves the traffic of Envoy, configured by a collector over gRPC (xDS).

Vantages push rounds in which the first choice fails, although it answers Envoy's requests, so that only the table can
move them. The time starts with the commit of these rounds: the collector's decision is a part of it, and so is the
share of `move_within_us` that the id of Envoy's node gives.
"""

import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.processes import running_collector
from bench.routes import REGIONS, ROUND_US, ROUTE_MEMBERS, SETTLE_SECONDS, Fleet
from fixtures.envoy import ENVOY, Envoy, Provider, StartEnvoy, example
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_common.address import parse_address

BETWEEN_S = 1.0


def envoy_moved_ms(changes: int) -> float | str:
    """Return the median time in milliseconds of so many changes; `skipped` without Envoy."""
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
        stack.callback(_stop, start)
        envoy = start(example("grpc.yaml", port=parse_address(collector.address).port, region=REGIONS[0]))
        return median(1000 * took for took in asyncio.run(_moves(envoy, fleet, changes)))


async def _moves(envoy: Envoy, fleet: Fleet, changes: int) -> list[float]:
    """The seconds of each change."""
    found = []
    for number in range(changes):
        dead, alive = ROUTE_MEMBERS[number % 2], ROUTE_MEMBERS[1 - number % 2]
        at = time.time_ns() // 1000
        committed = await asyncio.to_thread(fleet.push, [at - 3, at - 2, at - 1, at], dead)
        await envoy.until(lambda answer, alive=alive: answer[:2] == (200, alive))  # type: ignore[misc]  # a default
        found.append(time.monotonic() - committed)
        await asyncio.sleep(BETWEEN_S)
    return found


def _stop(start: StartEnvoy) -> None:
    for process in start.running:
        process.terminate()
        process.wait()
