"""Consumers of `bench.routes` in one process, each with its own connection, on which it watches a region.

The process reads one line of JSON, prints `ready` when every watcher has its first table, and after the next line
prints what arrived: the generation of each table, and per arrival the table, the watcher, and the instant
(CLOCK_MONOTONIC, seconds).

Real consumers run on separate machines; these share the cores with the collector. So both kinds only read their bytes
and look for the end of a table: a client of gRPC would take more of the cores than the collector's whole work.

usage: python -m bench.watchers started by bench.routes
"""

import asyncio
import json
import struct
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bench import http2
from isochrone_wire.v1 import routes_pb2

WATCH = "/isochrone.v1.Routes/WatchTables"
_OPENING_AT_ONCE = 20
# So much that a watcher need not tell what it has read.
_MAX_WINDOW, _FIRST_WINDOW = (1 << 31) - 1, (1 << 16) - 1
_WINDOW_SETTING = 4
# Of a message of gRPC: whether it is compressed, and its length.
_HEAD = struct.Struct(">BI")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherConfig:
    """The address of the collector, and the watchers of this process: (number, region, true for HTTP)."""

    address: str
    http: str
    watchers: list[tuple[int, str, bool]]


@dataclass(slots=True)
class Watchers:
    """The watchers of one process. Each distinct table is parsed once; real consumers run on separate machines."""

    config: WatcherConfig
    tables: dict[bytes, int] = field(default_factory=dict)
    tables_seen: list[dict[str, Any]] = field(default_factory=list)
    arrivals: list[tuple[int, int, float]] = field(default_factory=list)
    started: set[int] = field(default_factory=set)
    opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_OPENING_AT_ONCE))

    async def watch(self, number: int, region: str, *, is_http: bool) -> None:
        """Watch a region until the process ends."""
        stream, read = (self._events, _event) if is_http else (self._messages, _message)
        async for content in stream(number, region):
            at = time.monotonic()
            place = self.tables.get(content)
            if place is None:
                table = read(content)
                place = self.tables[content] = len(self.tables_seen) if table else -1
                self.tables_seen.extend([table] if table else [])
            if place >= 0:
                self.started.add(number)
                self.arrivals.append((place, number, at))

    async def _messages(self, number: int, region: str) -> AsyncIterator[bytes]:
        host, _, port = self.config.address.rpartition(":")
        async with self.opening:
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
            request = routes_pb2.WatchTablesRequest(client_region=region).SerializeToString()
            writer.write(_grpc_call(WATCH, request))
            messages = _grpc_messages(reader, writer)
            yield await anext(messages)
        async for message in messages:
            yield message
        raise SystemExit(f"watcher {number} was disconnected")

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


def _grpc_call(method: str, request: bytes) -> bytes:
    """Return the bytes of a connection with one call."""
    window = struct.pack(">HI", _WINDOW_SETTING, _MAX_WINDOW)
    headers = http2.call_headers(method, tls=False)
    return b"".join(
        [
            http2.PREFACE,
            http2.frame(http2.SETTINGS, window),
            http2.frame(http2.WINDOW_UPDATE, struct.pack(">I", _MAX_WINDOW - _FIRST_WINDOW)),
            http2.frame(http2.HEADERS, headers, flags=http2.END_HEADERS, stream=1),
            http2.frame(http2.DATA, _HEAD.pack(0, len(request)) + request, flags=http2.END_STREAM, stream=1),
        ]
    )


async def _grpc_messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncGenerator[bytes, None]:
    """Yield the messages of the only call of a connection, until it ends."""
    pending = b""
    while True:
        kind, flags, content = await http2.read_frame(reader)
        if kind in (http2.RESET, http2.GOAWAY) or (kind == http2.HEADERS and flags & http2.END_STREAM):
            return
        if kind in (http2.SETTINGS, http2.PING) and not flags & http2.ACK:
            writer.write(http2.frame(kind, content if kind == http2.PING else b"", flags=http2.ACK))
        pending += content if kind == http2.DATA else b""
        while len(pending) >= _HEAD.size and len(pending) >= (end := _HEAD.size + _HEAD.unpack_from(pending)[1]):
            yield pending[_HEAD.size : end]
            pending = pending[end:]


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
    """Run the watchers and print what arrived."""
    ask: Callable[[], str] = sys.stdin.readline
    config = WatcherConfig(**json.loads(await asyncio.to_thread(ask)))
    watchers = Watchers(config)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(watchers.watch(number, region, is_http=is_http))
            for number, region, is_http in config.watchers
        ]
        while len(watchers.started) < len(config.watchers):
            await asyncio.sleep(0.1)
        print("ready", flush=True)  # noqa: T201  # the reply to the configuration
        await asyncio.to_thread(ask)
        print(json.dumps({"tables": watchers.tables_seen, "arrivals": watchers.arrivals}), flush=True)  # noqa: T201  # as above
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
