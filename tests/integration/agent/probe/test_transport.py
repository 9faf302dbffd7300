"""Timed sockets: the time of the request, timestamps of reads, batching and bounded memory."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from isochrone_agent.probe import transport
from isochrone_agent.probe.transport import DialOptions, ProbeConnection, StampingBackend, StampingStream


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[ProbeConnection, StampingStream, socket.socket]]:
    """A stamping stream, its probe connection, and the peer's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = ProbeConnection(ssl.create_default_context(), DialOptions())
        stream = await StampingBackend(connection, DialOptions()).connect_tcp(*listener.getsockname())
        assert isinstance(stream, StampingStream)
        theirs, _ = listener.accept()
        with theirs:
            yield connection, stream, theirs
            await stream.aclose()


async def test_an_empty_write_has_no_effect() -> None:
    """The empty write at the end of a message does not change the time at which the request was sent."""
    async with connected() as (connection, stream, _):
        await stream.write(b"the request")
        sent_ns = connection.observer.sent_ns
        await asyncio.sleep(0.01)
        await stream.write(b"")
        assert connection.observer.sent_ns == sent_ns


async def test_a_read_has_the_stamp_of_its_bytes() -> None:
    """Bytes that waited while the loop was busy have the time of their arrival, and the wait is recorded."""
    async with connected() as (connection, stream, theirs):
        await stream.write(b"x")
        theirs.sendall(b"early")
        time.sleep(0.1)  # noqa: ASYNC251  # the point: the loop is blocked
        busy_until_ns = time.monotonic_ns()
        assert await stream.read(100) == b"early"
        if connection.observer.received.kernel:
            assert busy_until_ns - connection.observer.received.at_ns > 50_000_000
            assert connection.observer.max_waited_ns > 50_000_000


async def test_the_loop_is_watched_only_without_kernel_stamps() -> None:
    """Loop lag is monitored only without kernel timestamps, and only until the probe ends."""
    async with connected() as (connection, stream, theirs):
        with connection.use() as observer:
            await stream.write(b"x")
            theirs.sendall(b"bytes")
            await stream.read(100)
            assert (observer.lag_monitor is None) is observer.received.kernel
            observer.monitor_loop_lag()
        assert observer.lag_monitor is not None
        assert observer.lag_monitor._timer is None


async def test_reads_are_delivered_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of a stream are delivered in batches, in order, each with its own timestamp."""
    monkeypatch.setattr(transport, "READ_BATCH_SECONDS", 1.0)
    async with connected() as (connection, stream, theirs):
        connection.batch_reads = True
        stamps = []
        waiting = asyncio.create_task(stream.read(100))
        for word in (b"one", b"two", b"three"):
            theirs.sendall(word)
            await asyncio.sleep(0.005)
        assert not waiting.done()
        words = [await waiting]
        stamps.append(connection.observer.received.at_ns)
        for _ in range(2):
            words.append(await stream.read(100))
            stamps.append(connection.observer.received.at_ns)
        assert words == [b"one", b"two", b"three"]
        assert all(later - earlier > 3_000_000 for earlier, later in pairwise(stamps))


async def test_the_end_of_a_stream_is_delivered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the stream is delivered at once, without waiting for the batch."""
    monkeypatch.setattr(transport, "READ_BATCH_SECONDS", 600.0)
    async with connected() as (connection, stream, theirs):
        connection.batch_reads = True
        waiting = asyncio.create_task(stream.read(100))
        await asyncio.sleep(0)
        theirs.shutdown(socket.SHUT_WR)
        assert await asyncio.wait_for(waiting, 60) == b""


async def test_unread_bytes_are_bounded() -> None:
    """A peer that sends without end fills its own buffers, not our memory."""
    async with connected() as (_, stream, theirs):
        theirs.setblocking(False)
        sent = 0
        for _ in range(400):
            try:
                sent += theirs.send(b"x" * 65_536)
            except BlockingIOError:
                await asyncio.sleep(0.002)
        assert stream._waiting_bytes <= (1 << 20) + 65_536
        assert sent < 16 << 20
