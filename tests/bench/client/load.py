"""Requests by plain httpx and by a transport of `isochrone.routing` in turn, and the processor time of each.

A process of its own, so that its processor time is that of the clients. It reads a line of JSON with the addresses and
amounts, and answers with milliseconds per request, plain and routed, of each round of each workload.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import httpx

from bench.processes import next_line, raise_limit, reply
from isochrone.routing import Routes
from isochrone.routing.httpx import AsyncTransport, Transport

REGION = "us-east-2"
AT_ONCE = 200
# Those of OpenAI's SDK.
_LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
_PLAIN: dict[str, Any] = {"limits": _LIMITS, "trust_env": False, "timeout": 60}
_Work = Callable[[Any, str, int], None]
"""Sends so many requests for a route with a client."""


def main() -> None:
    raise_limit(4096)
    settings = next_line()
    with Routes(settings["tables"], REGION, cache_folder=None) as routes:
        routes.wait()
        found: dict[str, list[list[float]]] = {}
        with _async_clients(routes, settings) as (clients, in_turn, at_once):
            found |= {f"async_{name}": rounds for name, rounds in _measured(clients, in_turn, at_once, settings)}
        with _sync_clients(routes, settings) as (clients, in_turn, at_once):
            found |= {f"sync_{name}": rounds for name, rounds in _measured(clients, in_turn, at_once, settings)}
    reply(found)


def _measured(
    clients: tuple[Any, Any], in_turn: _Work, at_once: _Work, settings: Mapping[str, Any]
) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield the rounds of each workload after one that is not counted: milliseconds per request of each client."""
    workloads = (
        ("request", in_turn, "whole", settings["requests"]),
        ("stream", in_turn, "burst", settings["streams"]),
        ("paced_stream", in_turn, "paced", settings["paced"]),
        ("at_once", at_once, "burst", AT_ONCE),
    )
    for name, work, route, count in workloads:
        rounds = [[_spent_ms(work, client, route, count) for client in clients] for _ in range(settings["rounds"] + 1)]
        yield name, rounds[1:]


def _spent_ms(work: _Work, client: object, route: str, count: int) -> float:
    began_s = time.process_time()
    work(client, route, count)
    return 1000 * (time.process_time() - began_s) / count


def _request(settings: Mapping[str, Any], route: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello, how are you today?"}]
    document = {"model": route, "stream": route != "whole", "max_tokens": 400, "messages": messages}
    return {"method": "POST", "url": f"{settings['providers'][route]}/chat/completions", "json": document}


@contextmanager
def _async_clients(routes: Routes, settings: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, Any], _Work, _Work]]:
    async def ask(client: httpx.AsyncClient, route: str) -> None:
        async with client.stream(**_request(settings, route)) as answer:
            async for _ in answer.aiter_raw():
                pass

    async def in_turn(client: httpx.AsyncClient, route: str, count: int) -> None:
        for _ in range(count):
            await ask(client, route)

    async def at_once(client: httpx.AsyncClient, route: str, count: int) -> None:
        await asyncio.gather(*(ask(client, route) for _ in range(count)))

    with asyncio.Runner() as runner:
        plain, routed = httpx.AsyncClient(**_PLAIN), httpx.AsyncClient(transport=AsyncTransport(routes), timeout=60)
        yield (plain, routed), lambda *one: runner.run(in_turn(*one)), lambda *one: runner.run(at_once(*one))
        for client in (plain, routed):
            runner.run(client.aclose())


@contextmanager
def _sync_clients(routes: Routes, settings: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, Any], _Work, _Work]]:
    def ask(client: httpx.Client, route: str) -> None:
        with client.stream(**_request(settings, route)) as answer:
            for _ in answer.iter_raw():
                pass

    def in_turn(client: httpx.Client, route: str, count: int) -> None:
        for _ in range(count):
            ask(client, route)

    def at_once(client: httpx.Client, route: str, count: int) -> None:
        for done in [threads.submit(partial(ask, client, route)) for _ in range(count)]:
            done.result()

    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        plain = stack.enter_context(httpx.Client(**_PLAIN))
        routed = stack.enter_context(httpx.Client(transport=Transport(routes), timeout=60))
        yield (plain, routed), in_turn, at_once


if __name__ == "__main__":
    main()
