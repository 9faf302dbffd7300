"""Requests through the transports of `isochrone.routing`: hedged and unhedged ones in turn, in the same seconds."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import httpx2

from isochrone.routing import Routes
from isochrone.routing.httpx2 import AsyncTransport

_TIMEOUT_S = 30.0


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


async def send(streams: Sequence[Stream], *, seconds: float, per_second: float) -> None:
    """Send `per_second` requests of each stream, one stream after the other, without waiting for responses."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        clients = [
            await stack.enter_async_context(
                httpx2.AsyncClient(transport=AsyncTransport(stream.routes), timeout=_TIMEOUT_S)
            )
            for stream in streams
        ]
        began, every_s = loop.time(), 1 / per_second / len(streams)
        for number in range(round(seconds * per_second) * len(streams)):
            await asyncio.sleep(max(0.0, began + number * every_s - loop.time()))
            place = number % len(streams)
            tasks.create_task(_send_one(clients[place], streams[place], number))


async def _send_one(client: httpx2.AsyncClient, stream: Stream, number: int) -> None:
    """The transport returns a stream with its first content."""
    document = {
        "model": stream.route,
        "stream": True,
        "max_tokens": 1,
        "messages": [{"role": "user", "content": f"Request {number}"}],
    }
    began = time.perf_counter()
    async with client.stream("POST", "http://127.0.0.1:1/v1/chat/completions", json=document) as response:
        stream.ttft_ms.append(1000 * (time.perf_counter() - began))
        response.raise_for_status()
        async for _ in response.aiter_bytes():
            pass
