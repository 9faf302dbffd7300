"""Open pages without a browser, in one process: each has the stream of notices and the requests of the matrix.

A visitor sends what the page sends: the same paths, Cache-Control, Accept-Encoding and If-None-Match, all paths at the
same time over connections that it keeps, and again by the rules of the page (`refresher.js` and `api.js`). It does not
read what an answer contains, because real pages are on other machines.

The process answers when every page has its first answers and its stream, and each further line with its counts so far.

usage: python -m bench.page.visitors started by bench.page
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from bench.processes import next_line, reply

_HEAD = "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nAccept-Encoding: gzip, deflate, br\r\n"
_MAX_LINE = 1 << 20

PLAN = "plan"
TOPICS = frozenset({"samples", PLAN})
"""The topics after which the matrix asks again."""

MIN_PAUSE_S = 1.0
PAUSE_SHARE = 20
MAX_AGE_S = 60

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitorsConfig:
    """The pages, opened over `opening_s`, and the paths of their requests; `planned` ones change with the plan only."""

    host: str
    port: int
    pages: int
    paths: list[str]
    planned: list[str]
    opening_s: float


@dataclass(slots=True)
class Pacing:
    """The state of a request of a page, sent when it is opened, and after notices of its `topics` and pauses."""

    topics: Collection[str] = TOPICS
    pause_s: float = MIN_PAUSE_S
    allowed_s: float = 0.0
    wanted_s: float | None = 0.0
    is_new: bool = True

    def hear(self, topics: Collection[str], refresh_s: float, now_s: float) -> None:
        """Note a notice, the first of which may follow missed ones."""
        self.pause_s = max(MIN_PAUSE_S, refresh_s)
        if self.is_new or not set(topics).isdisjoint(self.topics):
            self.wanted_s = now_s
        self.is_new = False

    def due_s(self) -> float | None:
        """Return when it is sent next; `None` if it waits for a notice."""
        return None if self.wanted_s is None else max(self.wanted_s, self.allowed_s)

    def end(self, began_s: float, now_s: float, as_of_s: float) -> None:
        """Note the answer to a request of `began_s`, as of `as_of_s`; what is newer is asked for again."""
        self.allowed_s = now_s + max(self.pause_s, PAUSE_SHARE * (now_s - began_s))
        if self.wanted_s is not None and as_of_s >= self.wanted_s:
            self.wanted_s = None


@dataclass(slots=True)
class _Repeated:
    """A request that is sent again by its pacing; `changed` is set when that may have changed."""

    pacing: Pacing = field(default_factory=Pacing)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Visitor:
    config: VisitorsConfig
    counts: Counter[str]
    requests: dict[str, _Repeated] = field(init=False)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    idle: list[Connection] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Each path is paced on its own."""
        planned = {path: _Repeated(Pacing(topics=(PLAN,))) for path in self.config.planned}
        self.requests = {path: _Repeated() for path in self.config.paths} | planned

    async def stay(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        async with asyncio.TaskGroup() as group:
            for path, repeated in self.requests.items():
                group.create_task(self._repeat(path, repeated))
            await self.asked.wait()
            group.create_task(self._listen())

    async def _repeat(self, path: str, repeated: _Repeated) -> None:
        pacing, changed = repeated.pacing, repeated.changed
        while True:
            changed.clear()
            due_s = pacing.due_s()
            if due_s is None:
                await changed.wait()
                continue
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            began_s = time.monotonic()
            age_s = await self._ask(path)
            pacing.end(began_s, time.monotonic(), began_s - age_s)
            if len(self.tags) == len(self.requests):
                self.asked.set()

    async def _listen(self) -> None:
        reader, writer = await self._connect()
        await self._send(writer, "/v1/changes", "text/event-stream", {"Cache-Control": "no-cache"})
        status, _ = await _head(reader)
        if status != 200:
            raise SystemExit(f"a stream was refused with {status}")
        while size := int(await reader.readline(), 16):
            for line in (await reader.readexactly(size + 2)).splitlines():
                if line.startswith(b"data: "):
                    notice = json.loads(line.removeprefix(b"data: "))
                    self.counts["notices"] += 1
                    for repeated in self.requests.values():
                        repeated.pacing.hear(notice["topics"], notice["refresh_us"] / 1e6, time.monotonic())
                        repeated.changed.set()
                    self.heard.set()
        raise SystemExit("a stream has ended")

    async def _ask(self, path: str) -> float:
        """Ask a path; return the age of its answer in seconds."""
        reader, writer = self._kept() or await self._connect()
        tag = {"If-None-Match": self.tags[path]} if path in self.tags else {}
        await self._send(writer, path, "*/*", {"Cache-Control": f"max-age={MAX_AGE_S}", **tag})
        status, headers = await _head(reader)
        if status not in (200, 304):
            raise SystemExit(f"{path} was answered with {status}")
        body = await reader.readexactly(int(headers.get("content-length", 0)) if status == 200 else 0)
        self.tags[path] = headers["etag"]
        self.idle.append((reader, writer))
        self.counts.update({"requests": 1, "unchanged": int(status == 304), "bytes": len(body)})
        return float(headers.get("age", 0))

    def _kept(self) -> Connection | None:
        while self.idle:
            reader, writer = self.idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def _connect(self) -> Connection:
        return await asyncio.open_connection(self.config.host, self.config.port, limit=_MAX_LINE)

    async def _send(self, writer: asyncio.StreamWriter, path: str, accept: str, more: dict[str, str]) -> None:
        head = _HEAD.format(path=path, host=f"{self.config.host}:{self.config.port}", accept=accept)
        writer.write((head + "".join(f"{name}: {value}\r\n" for name, value in more.items()) + "\r\n").encode())
        await writer.drain()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Read the head of a response: its status, and its headers by their names in lower case."""
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(status.split()[1]), headers


async def main() -> None:
    config = VisitorsConfig(**await asyncio.to_thread(next_line))
    counts: Counter[str] = Counter()
    rng = random.Random(1)
    async with asyncio.TaskGroup() as group:
        visitors = [Visitor(config, counts) for _ in range(config.pages)]
        tasks = [group.create_task(one.stay(rng.uniform(0, config.opening_s))) for one in visitors]
        for one in visitors:
            await one.heard.wait()
        reply()
        while await asyncio.to_thread(next_line):
            reply(counts)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
