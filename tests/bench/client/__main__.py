"""The processor time of the transports of `isochrone.routing` beside plain httpx, and of `isochrone gateway` beside
LiteLLM's proxy.

Plain and routed requests alternate in one process, and a figure is the median of the ratios of the rounds. A stream has
400 chunks: all at once, or one after the other (`paced`), each of which is then a read of its own. A hedge is published
for every stream, but not needed. The gateway and the proxy get the same requests one after the other; their ratio is
the larger one of requests and of streams. Without LiteLLM that figure is `skipped`, and its goal missed.

usage: python -m bench.client [--quick] prints a RESULT line; exit 1 when a goal is missed
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import httpx

from bench.client.load import REGION
from bench.processes import Dialog, cpu_seconds, ready, start
from bench.result import Figure, Goal, at_most, conclude, log
from fixtures.litellm import Proxy, deployment, has_proxy
from fixtures.table_server import TableServer
from isochrone_wire.routes import Hedge
from testdata.ports import free_port
from testdata.routes import fresh, simulated_member
from testdata.waiting import eventually

CHUNKS, PAUSE_US = 400, 500
ROUTES = {"whole": (0, 0), "burst": (CHUNKS, 0), "paced": (CHUNKS, PAUSE_US)}
"""The chunks of the answers of a route, and the microseconds between them."""
ROUNDS = 9
AMOUNTS = {"rounds": ROUNDS, "requests": 300, "streams": 40, "paced": 2}
QUICK = {"rounds": 3, "requests": 100, "streams": 10, "paced": 1}
GOALS: dict[str, Goal] = {
    "async_request": at_most(1.15),
    "async_stream": at_most(1.15),
    "async_at_once": at_most(1.5),
    "sync_stream": at_most(1.5),
    "sync_at_once": at_most(1.5),
    "gateway_cpu_ratio": at_most(0.3),
}
_PATIENCE_S = 20.0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The processor time of clients and gateway.")
    parser.add_argument("--quick", action="store_true", help="fewer requests")
    amounts = QUICK if parser.parse_args(words).quick else AMOUNTS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        providers = stack.enter_context(_providers())
        tables = stack.enter_context(_tables(providers))
        load = stack.enter_context(
            Dialog("bench.client.load", {"providers": providers, "tables": tables.url, **amounts})
        )
        rounds: dict[str, list[list[float]]] = load.receive()
        for name, found in rounds.items():
            plain, routed = (median(values) for values in zip(*found, strict=True))
            log(f"{name}: {plain:.3f} ms plain, {routed:.3f} ms routed")
        figures: dict[str, Figure] = {
            name: median(routed / plain for plain, routed in found) for name, found in rounds.items()
        }
        figures |= _gateways(providers, tables, folder, amounts)
    return conclude(figures, GOALS)


@contextmanager
def _providers() -> Iterator[dict[str, str]]:
    """Run the provider; yield the base URL of each route."""
    process = start("bench.client.provider")
    try:
        port = ready(process)["port"]
        yield {name: f"http://127.0.0.1:{port}/{chunks}/{pause}/v1" for name, (chunks, pause) in ROUTES.items()}
    finally:
        with process:
            process.terminate()


@contextmanager
def _tables(providers: dict[str, str]) -> Iterator[TableServer]:
    """Serve a table for each route, with two members and a hedge."""
    server = TableServer()
    for generation, (route, url) in enumerate(providers.items(), start=1):
        first, second = (replace(simulated_member(url, rank=rank), credential_ref=None) for rank in (1, 2))
        first = replace(first, hedge=Hedge(target=second.target, delay_us=10_000_000))
        server.publish(replace(fresh(generation), client_region=REGION, route=route, entries=(first, second)))
    server.start()
    yield server
    server.stop()


def _gateways(
    providers: dict[str, str], tables: TableServer, folder: Path, amounts: dict[str, int]
) -> dict[str, Figure]:
    with _gateway(tables, folder) as (url, process):
        own = {route: _cost_ms(url, process.pid, route, amounts) for route in ("whole", "burst")}
    log(f"gateway: {own['whole']:.3f} ms per request, {own['burst']:.3f} ms per stream")
    if not has_proxy():
        return {"gateway_cpu_ratio": "skipped"}
    models = [deployment(route, None, "none", url) for route, url in providers.items()]
    proxy = Proxy({"model_list": models, "general_settings": {"master_key": "sk-master"}}, folder)
    try:
        proxy.start()
        assert proxy.process is not None
        url = f"http://127.0.0.1:{proxy.port}/v1"
        other = {route: _cost_ms(url, proxy.process.pid, route, amounts) for route in ("whole", "burst")}
    finally:
        proxy.stop()
    log(f"LiteLLM: {other['whole']:.3f} ms per request, {other['burst']:.3f} ms per stream")
    ratios = {route: own[route] / other[route] for route in own}
    chunk_us = 1000 * (own["burst"] - own["whole"]) / CHUNKS
    return {
        "gateway_cpu_ratio": max(ratios.values()),
        "gateway_request_ms": own["whole"],
        "gateway_chunk_us": chunk_us,
        "litellm_request_ms": other["whole"],
        "litellm_chunk_us": 1000 * (other["burst"] - other["whole"]) / CHUNKS,
    }


@contextmanager
def _gateway(tables: TableServer, folder: Path) -> "Iterator[tuple[str, subprocess.Popen[bytes]]]":
    listen = f"127.0.0.1:{free_port()}"
    words = ["--region", REGION, "--collector", tables.url.removeprefix("http://"), "--listen", listen]
    with (folder / "gateway.log").open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "isochrone_client", "gateway", *words], stderr=stderr)
    url = f"http://{listen}/v1"
    try:
        eventually(_PATIENCE_S, lambda: _is_ready(f"http://{listen}/readyz"), "the gateway is ready")
        yield url, process
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False


def _cost_ms(url: str, pid: int, route: str, amounts: dict[str, int]) -> float:
    """The processor time of a gateway per request for a route, in milliseconds, after some that are not counted."""
    count = amounts["requests"] if route == "whole" else amounts["streams"]
    document = {"model": route, "stream": route != "whole", "messages": [{"role": "user", "content": "Hello"}]}
    with httpx.Client(trust_env=False, timeout=60, headers={"authorization": "Bearer sk-master"}) as client:
        spent = []
        for _ in range(2):
            before_s = cpu_seconds(pid)
            for _ in range(count):
                answer = client.post(f"{url}/chat/completions", json=document)
                answer.raise_for_status()
            spent.append(cpu_seconds(pid) - before_s)
    return 1000 * spent[-1] / count


if __name__ == "__main__":
    sys.exit(main())
