"""The relay is a wire: what goes in comes out, until it is cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from chaos.records import SEAL_BYTES, Ciphered
from chaos.relay import PUSH_BYTES, SETTLED_SECONDS, Relay

PUSH = b"p" * PUSH_BYTES


@pytest.fixture
async def heard() -> AsyncIterator[tuple[Relay, list[bytes]]]:
    """A relay before a server that answers whatever it is sent with the same, and what that server has heard."""
    said: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        echoing.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                said.append(data)
                writer.write(data)
        writer.close()

    echoing: list[asyncio.Task[None] | None] = []
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    relay = Relay(server.sockets[0].getsockname()[1])
    await relay.start()
    yield relay, said
    await relay.stop()
    server.close()
    await asyncio.gather(*filter(None, echoing))


async def ask(relay: Relay, question: bytes) -> bytes:
    """What comes back; nothing when the connection is cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    try:
        writer.write(question)
        return await reader.readexactly(len(question))
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    finally:
        writer.close()


async def test_it_passes_everything_on(heard: tuple[Relay, list[bytes]]) -> None:
    """Left alone it changes nothing."""
    relay, _said = heard
    assert await ask(relay, PUSH) == PUSH


async def test_a_cut_comes_between_push_and_reply(heard: tuple[Relay, list[bytes]]) -> None:
    """The collector has the whole push, the agent nothing of the reply; small frames do not set it off."""
    relay, said = heard
    cutting = asyncio.create_task(relay.cut_next_reply(10))
    assert await ask(relay, b"small") == b"small"
    assert await ask(relay, PUSH) == b""
    assert await cutting
    assert said == [b"small", PUSH]
    assert await ask(relay, PUSH) == PUSH


async def test_no_push_no_cut(heard: tuple[Relay, list[bytes]]) -> None:
    """A cut that found nothing to cut says so and is off again."""
    relay, _said = heard
    assert not await relay.cut_next_reply(0.01)
    assert await ask(relay, PUSH) == PUSH


async def test_a_partition_ends(heard: tuple[Relay, list[bytes]]) -> None:
    """Nothing passes during a partition, and everything after it."""
    relay, said = heard
    apart = asyncio.create_task(relay.partition(0.3))
    await asyncio.sleep(0.05)
    assert await ask(relay, PUSH) == b""
    assert said == []
    await apart
    assert await ask(relay, PUSH) == PUSH


def record(kind: int, size: int) -> bytes:
    """A TLS record with so many bytes in it."""
    return bytes([kind, 3, 3, *size.to_bytes(2, "big")]) + b"c" * size


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_under_tls_only_what_the_programs_say_weighs(step: int) -> None:
    """However the bytes come in, handshake records weigh nothing, and the others what they carry beside their seal."""
    handshake, alert, ping, push = record(22, 512), record(21, 2), record(23, SEAL_BYTES + 17), record(23, 300)
    said = handshake + ping + push + alert + push
    scale = Ciphered()
    assert sum(scale.weigh(said[at : at + step]) for at in range(0, len(said), step)) == 17 + 2 * (300 - SEAL_BYTES)


async def test_under_tls_a_handshake_is_not_taken_for_a_push() -> None:
    """On a new connection nothing is cut however much is said; on one that has stood for a while a push is."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    relay = Relay(server.sockets[0].getsockname()[1], tls=True)
    await relay.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    push = record(23, PUSH_BYTES + SEAL_BYTES)
    cutting = asyncio.create_task(relay.cut_next_reply(10))
    for first in (record(22, 2 * PUSH_BYTES), push):
        writer.write(first)
        assert await reader.readexactly(len(first)) == first
    await asyncio.sleep(SETTLED_SECONDS)
    small = record(23, SEAL_BYTES + 17)
    writer.write(small)
    assert await reader.readexactly(len(small)) == small
    writer.write(push)
    assert await _rest(reader) == b""
    assert await cutting
    writer.close()
    await relay.stop()
    server.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
