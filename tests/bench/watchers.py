"""Consumers of `bench.routes` in one process, each with its own connection, on which it watches a region over HTTP.

The process answers when every watcher has its first table, and the next line with what arrived: the generation of each
table, and per arrival the table, the watcher, and the instant (CLOCK_MONOTONIC, seconds).

Real consumers run on separate machines; these share the cores with the collector, so they only read the bytes of each
event, and parse each distinct table once.

usage: python -m bench.watchers started by bench.routes
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bench.processes import next_line, reply

_OPENING_AT_ONCE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherConfig:
    """The base URL of the collector, and the watchers of this process: (number, region)."""

    http: str
    watchers: list[tuple[int, str]]


@dataclass(slots=True)
class Watchers:
    config: WatcherConfig
    tables: dict[bytes, int] = field(default_factory=dict)
    tables_seen: list[dict[str, Any]] = field(default_factory=list)
    arrivals: list[tuple[int, int, float]] = field(default_factory=list)
    started: set[int] = field(default_factory=set)
    opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_OPENING_AT_ONCE))

    async def watch(self, number: int, region: str) -> None:
        async for content in self._events(number, region):
            at = time.monotonic()
            place = self.tables.get(content)
            if place is None:
                table = _event(content)
                place = self.tables[content] = len(self.tables_seen) if table else -1
                self.tables_seen.extend([table] if table else [])
            if place >= 0:
                self.started.add(number)
                self.arrivals.append((place, number, at))

    async def _events(self, number: int, region: str) -> AsyncIterator[bytes]:
        where = urlsplit(self.config.http)
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


def _event(content: bytes) -> dict[str, Any] | None:
    data = next((line[6:] for line in content.splitlines() if line.startswith(b"data: ")), b"")
    if not data:
        return None
    table = json.loads(data)
    entries = table["entries"]
    return {"generation": table["generation"], "first": entries[0]["target"] if entries else ""}


async def main() -> None:
    config = WatcherConfig(**await asyncio.to_thread(next_line))
    watchers = Watchers(config)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watchers.watch(number, region)) for number, region in config.watchers]
        while len(watchers.started) < len(config.watchers):
            await asyncio.sleep(0.1)
        reply()
        await asyncio.to_thread(next_line)
        reply({"tables": watchers.tables_seen, "arrivals": watchers.arrivals})
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
