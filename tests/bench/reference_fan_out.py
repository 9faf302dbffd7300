"""The reference of publishing: a plain asyncio server that writes one event to every connection, without a database.

It sends server-sent events of the collector's own bytes to as many watchers, from the same machine to the same watcher
processes. The collector's time also covers the commit, the decision and the signature of the tables.

usage: python -m bench.reference_fan_out started by bench.routes, with one line of JSON on stdin; each further line
sends the next event, and is answered with the instant (CLOCK_MONOTONIC, seconds) before the first write
"""

import asyncio
import json
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from bench.processes import next_line, reply

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def recorded_event(http: str, region: str) -> bytes:
    """Return the first event that a collector sends to a watcher of this region."""
    url = f"{http}/v1/routes/{region}/watch"
    request = urllib.request.Request(url, headers={"accept": "text/event-stream"})
    with urllib.request.urlopen(request, timeout=10) as stream:
        lines: list[bytes] = []
        while (line := stream.readline()) != b"\n" or not any(part.startswith(b"data:") for part in lines):
            lines = [*lines, line] if line != b"\n" else []
        return b"".join([*lines, b"\n"])


def with_first(event: bytes, first: str, generation: int) -> bytes:
    """Return the event with this generation and with `first` as the first choice."""
    lines = event.splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if line.startswith(b"data: "))
    table: dict[str, Any] = json.loads(lines[place][6:])
    table["generation"] = generation
    table["entries"].sort(key=lambda entry: entry["target"] != first)
    lines[place] = b"data: " + json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return b"".join(lines)


class FanOut:
    """Open connections, each of which gets the newest event."""

    def __init__(self, event: str, firsts: Sequence[str]) -> None:
        self._event, self._firsts = event.encode(), firsts
        self._generation = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a watcher's request with the current event, and keep the connection."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + self._chunk())
        self._writers.add(writer)

    def send_next(self) -> float:
        """Send the next event to every connection; return the instant before the first write."""
        self._generation += 1
        begun = time.monotonic()
        chunk = self._chunk()
        for writer in self._writers:
            writer.write(chunk)
        return begun

    def _chunk(self) -> bytes:
        first = self._firsts[self._generation % len(self._firsts)]
        content = with_first(self._event, first, self._generation)
        return b"%x\r\n%s\r\n" % (len(content), content)


async def serve(event: str, firsts: Sequence[str]) -> None:
    """Serve until stdin ends; print the address when ready."""
    fan_out = FanOut(event, firsts)
    server = await asyncio.start_server(fan_out.connected, "127.0.0.1", 0, backlog=1000)
    port = server.sockets[0].getsockname()[1]
    reply(f"http://127.0.0.1:{port}")
    while await asyncio.to_thread(next_line):
        reply(fan_out.send_next())


if __name__ == "__main__":
    asyncio.run(serve(**next_line()))
