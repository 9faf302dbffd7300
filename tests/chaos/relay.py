"""A relay between one agent and the collector: a wire that can be cut, before or right after a reply was due."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from chaos.records import Ciphered, Plain, Scale

# A push of samples is larger than the small frames by which HTTP/2 keeps house, and so is the reply to one.
PUSH_BYTES = 200
REPLY_BYTES = 60
REPLY_SECONDS = 2.0
# In so long a TLS connection is past its handshake and the tickets that follow it, which could be taken for a reply.
SETTLED_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class _Pair:
    """One connection through the relay. When `muted`, what the collector says no longer reaches the agent."""

    agent: asyncio.StreamWriter
    collector: asyncio.StreamWriter
    upwards: Scale
    downwards: Scale
    settled_at_s: float
    muted: bool = False
    swallowed: int = 0
    replied: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self) -> None:
        self.agent.transport.abort()
        self.collector.transport.abort()


class Relay:
    """Listens on a port of its own and passes everything on to `upstream_port`, both on 127.0.0.1. With `tls` that is
    what passes, and the relay, which has no key, goes by the sizes of its records.
    """

    def __init__(self, upstream_port: int, *, tls: bool = False) -> None:
        self.port = 0
        self._upstream_port = upstream_port
        self._tls = tls
        self._pairs: set[_Pair] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._armed: asyncio.Future[bool] | None = None
        self._one_cut = asyncio.Lock()
        self._cutting: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut everything and listen no longer."""
        assert self._server is not None
        self._server.close()
        self._cut_all()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def partition(self, seconds: float) -> None:
        """For so long cut every connection."""
        self._refusing = True
        self._cut_all()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._refusing = False

    async def cut_next_reply(self, patience_s: float) -> bool:
        """Let the next push through and cut its connection instead of the reply; whether one came and was replied to
        within `patience_s` seconds.
        """
        async with self._one_cut:
            self._armed = asyncio.get_running_loop().create_future()
            try:
                return await asyncio.wait_for(self._armed, patience_s)
            except TimeoutError:
                return False
            finally:
                self._armed = None

    def _cut_all(self) -> None:
        for pair in self._pairs:
            pair.cut()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing = asyncio.create_task(self._pass_on(reader, writer))
        self._passing.add(passing)
        passing.add_done_callback(self._passing.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            collector_says, to_collector = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.transport.abort()
            return
        pair = self._pair(writer, to_collector)
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._upwards(pair, reader), self._downwards(pair, collector_says))
        finally:
            self._pairs.discard(pair)
            pair.cut()

    def _pair(self, agent: asyncio.StreamWriter, collector: asyncio.StreamWriter) -> _Pair:
        if self._tls:
            return _Pair(agent, collector, Ciphered(), Ciphered(), time.monotonic() + SETTLED_SECONDS)
        return _Pair(agent, collector, Plain(), Plain(), 0.0)

    async def _upwards(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                heavy = pair.upwards.weigh(data) >= PUSH_BYTES and time.monotonic() >= pair.settled_at_s
                if heavy and self._armed is not None and self._cutting is None:
                    pair.muted = True
                    self._cutting = asyncio.create_task(self._cut_when_replied(pair, self._armed))
                pair.collector.write(data)
                await pair.collector.drain()
        pair.cut()

    async def _downwards(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                weight = pair.downwards.weigh(data)
                if pair.muted:
                    pair.swallowed += weight
                    if pair.swallowed >= REPLY_BYTES:
                        pair.replied.set()
                    continue
                pair.agent.write(data)
                await pair.agent.drain()
        pair.cut()

    async def _cut_when_replied(self, pair: _Pair, done: asyncio.Future[bool]) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pair.replied.wait(), REPLY_SECONDS)
        pair.cut()
        self._cutting = None
        if not done.done():
            done.set_result(pair.replied.is_set())
