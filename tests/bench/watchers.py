"""Some of the consumers of `bench.routes`, in one process: each with its own connection, on which it watches a region.

Reads one line of JSON, says `ready` when every watcher has its first table, and prints what came when the next line
asks for it: per table its generation, and per arrival which table, which watcher, and when (CLOCK_MONOTONIC, seconds).

usage: python -m bench.watchers        started by bench.routes
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio

from isochrone_wire.grpc_options import CLIENT_OPTIONS
from isochrone_wire.v1 import routes_pb2

WATCH = "/isochrone.v1.Routes/WatchTables"
# A connection of one's own: gRPC would share one between channels that look the same.
OPTIONS: list[tuple[str, int]] = [*CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
_OPENING_AT_ONCE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Where the collector is, and which of the watchers are here: (number, region, whether over HTTP)."""

    address: str
    http: str
    watchers: list[tuple[int, str, bool]]


@dataclass(slots=True)
class Watchers:
    """The watchers of one process. A table's bytes are read once, for consumers live on machines of their own."""

    post: Post
    tables: dict[bytes, int] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)
    arrivals: list[tuple[int, int, float]] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_OPENING_AT_ONCE))

    async def watch(self, number: int, region: str, *, is_http: bool) -> None:
        """Watch a region until the process ends."""
        way, read = (self._events, _event) if is_http else (self._messages, _message)
        async for content in way(number, region):
            at = time.monotonic()
            place = self.tables.get(content)
            if place is None:
                table = read(content)
                place = self.tables[content] = len(self.told) if table else -1
                self.told.extend([table] if table else [])
            if place >= 0:
                self.begun.add(number)
                self.arrivals.append((place, number, at))

    async def _messages(self, number: int, region: str) -> AsyncIterator[bytes]:
        async with grpc.aio.insecure_channel(self.post.address, options=OPTIONS) as channel:
            call: Any = channel.unary_stream(WATCH)
            async with self.opening:
                messages = aiter(call(routes_pb2.WatchTablesRequest(client_region=region).SerializeToString()))
                yield await anext(messages)
            async for message in messages:
                yield message
        raise SystemExit(f"watcher {number} was sent away")

    async def _events(self, number: int, region: str) -> AsyncIterator[bytes]:
        where = urlsplit(self.post.http)
        async with self.opening:
            reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1 << 20)
            request = (
                f"GET /v1/routes/{region}/watch HTTP/1.1\r\nHost: {where.netloc}\r\nAccept: text/event-stream\r\n\r\n"
            )
            writer.write(request.encode())
            status = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in status:
                raise SystemExit(f"watcher {number} was refused: {status!r}")
        while True:
            size = int(await reader.readline(), 16)
            yield (await reader.readexactly(size + 2))[:-2]


def _message(content: bytes) -> dict[str, Any] | None:
    message = routes_pb2.WatchTablesResponse.FromString(content)
    return _shown(message.table.generation, [entry.target for entry in message.table.entries]) if content else None


def _event(content: bytes) -> dict[str, Any] | None:
    data = next((line[6:] for line in content.splitlines() if line.startswith(b"data: ")), b"")
    if not data:
        return None
    table = json.loads(data)
    return _shown(table["generation"], [entry["target"] for entry in table["entries"]])


def _shown(generation: int, targets: list[str]) -> dict[str, Any]:
    return {"generation": generation, "first": targets[0] if targets else ""}


async def main() -> None:
    """Watch, and tell."""
    ask: Callable[[], str] = sys.stdin.readline
    post = Post(**json.loads(await asyncio.to_thread(ask)))
    watchers = Watchers(post)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(watchers.watch(number, region, is_http=is_http))
            for number, region, is_http in post.watchers
        ]
        while len(watchers.begun) < len(post.watchers):
            await asyncio.sleep(0.1)
        print("ready", flush=True)  # noqa: T201  # the answer to the post
        await asyncio.to_thread(ask)
        print(json.dumps({"tables": watchers.told, "arrivals": watchers.arrivals}), flush=True)  # noqa: T201  # as above
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
