"""The relay forwards everything until it is cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from chaos.relay import HANDSHAKE_SECONDS, PUSH_BYTES, TLS_OVERHEAD_BYTES, Relay, TlsMeter

PUSH = b"p" * PUSH_BYTES


@pytest.fixture
async def echo_relay() -> AsyncIterator[tuple[Relay, list[bytes]]]:
    received: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        echoing.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                received.append(data)
                writer.write(data)
        writer.close()

    echoing: list[asyncio.Task[None] | None] = []
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    relay = Relay(server.sockets[0].getsockname()[1])
    await relay.start()
    yield relay, received
    await relay.stop()
    server.close()
    await asyncio.gather(*filter(None, echoing))


async def ask(relay: Relay, question: bytes) -> bytes:
    """Return the reply; empty if the connection is cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    try:
        writer.write(question)
        return await reader.readexactly(len(question))
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    finally:
        writer.close()


async def test_it_forwards_everything(echo_relay: tuple[Relay, list[bytes]]) -> None:
    """Without a fault, the relay changes nothing."""
    relay, _output_file = echo_relay
    assert await ask(relay, PUSH) == PUSH


async def test_a_cut_comes_between_push_and_reply(echo_relay: tuple[Relay, list[bytes]]) -> None:
    """The collector receives the whole push, the agent nothing of the reply; small frames do not trigger the cut."""
    relay, received = echo_relay
    cutting = asyncio.create_task(relay.cut_next_reply(10))
    assert await ask(relay, b"small") == b"small"
    assert await ask(relay, PUSH) == b""
    assert await cutting
    assert received == [b"small", PUSH]
    assert await ask(relay, PUSH) == PUSH


async def test_no_push_no_cut(echo_relay: tuple[Relay, list[bytes]]) -> None:
    """A cut without a push returns false and is disarmed."""
    relay, _output_file = echo_relay
    assert not await relay.cut_next_reply(0.01)
    assert await ask(relay, PUSH) == PUSH


async def test_a_partition_ends(echo_relay: tuple[Relay, list[bytes]]) -> None:
    """Nothing passes during a partition, and everything after it."""
    relay, received = echo_relay
    partition_task = asyncio.create_task(relay.partition(1.0))
    await asyncio.sleep(0.05)
    assert await ask(relay, PUSH) == b""
    assert received == []
    await partition_task
    assert await ask(relay, PUSH) == PUSH


def record(kind: int, size: int) -> bytes:
    return bytes([kind, 3, 3, *size.to_bytes(2, "big")]) + b"c" * size


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_under_tls_only_payload_counts(step: int) -> None:
    """For any chunking, handshake records count as 0 and the others as their payload."""
    handshake, alert, ping, push = record(22, 512), record(21, 2), record(23, TLS_OVERHEAD_BYTES + 17), record(23, 300)
    received = handshake + ping + push + alert + push
    meter = TlsMeter()
    assert sum(meter.payload_bytes(received[at : at + step]) for at in range(0, len(received), step)) == 17 + 2 * (
        300 - TLS_OVERHEAD_BYTES
    )


async def test_under_tls_a_handshake_is_not_taken_for_a_push() -> None:
    """On a new connection nothing is cut, whatever its traffic; on an established one a push is."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    relay = Relay(server.sockets[0].getsockname()[1], tls=True)
    await relay.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    push = record(23, PUSH_BYTES + TLS_OVERHEAD_BYTES)
    cutting = asyncio.create_task(relay.cut_next_reply(10))
    for first in (record(22, 2 * PUSH_BYTES), push):
        writer.write(first)
        assert await reader.readexactly(len(first)) == first
    await asyncio.sleep(HANDSHAKE_SECONDS)
    small = record(23, TLS_OVERHEAD_BYTES + 17)
    writer.write(small)
    assert await reader.readexactly(len(small)) == small
    writer.write(push)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    assert await cutting
    writer.close()
    await relay.stop()
    server.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()
