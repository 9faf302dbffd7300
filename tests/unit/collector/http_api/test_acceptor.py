"""HTTP connections are counted when they are accepted, and have to go on in time."""

import asyncio
import errno
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from isochrone_agent.probe.socket_observer import read_tcp_info
from isochrone_collector import acceptor, loop_share
from isochrone_collector.acceptor import Acceptor, bound
from isochrone_collector.http_api import listener
from isochrone_collector.http_api.listener import listening
from isochrone_collector.loop_share import LoopShare
from isochrone_collector.server import certificates
from isochrone_common.address import Address

TIMEOUT_S = 10.0
GET = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
ANY_PORT = Address("127.0.0.1", 0)


async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    chain, key = certificates._self_signed("127.0.0.1")
    (tmp_path / "pair.pem").write_bytes(key + chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    return context


async def answer(at: Address, source: str = "127.0.0.1") -> bytes:
    """Return the first line of the response to a request from this address; nothing if the connection is closed."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(at.host, at.port, local_addr=(source, 0))
            writer.write(GET)
            line = await reader.readline()
    except ConnectionError:
        return b""
    writer.close()
    return line


@asynccontextmanager
async def connections(at: Address, count: int, source: str = "127.0.0.1") -> AsyncIterator[list[socket.socket]]:
    """Hold connections from this address that send nothing, accepted by the server."""
    with ExitStack() as stack:
        connect = partial(socket.create_connection, timeout=TIMEOUT_S, source_address=(source, 0))
        yield [stack.enter_context(connect((at.host, at.port))) for _ in range(count)]


async def test_connections_are_counted_in_total_and_per_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """One address may have a quarter of all connections; one above a limit gets 503, and freed ones are reused."""
    monkeypatch.setattr(listener, "max_connections", lambda _: 8)
    async with listening(app, ANY_PORT, tls=None) as at:
        async with connections(at, 2):
            assert await answer(at) == b"HTTP/1.1 503 Service Unavailable\r\n"
            assert await answer(at, "127.0.0.2") == b"HTTP/1.1 204 No Content\r\n"
            async with (
                connections(at, 2, "127.0.0.2"),
                connections(at, 2, "127.0.0.3"),
                connections(at, 2, "127.0.0.4"),
            ):
                assert await answer(at, "127.0.0.5") == b"HTTP/1.1 503 Service Unavailable\r\n"
        async with asyncio.timeout(TIMEOUT_S):
            while not (await answer(at)).startswith(b"HTTP/1.1 204"):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("sent", [b"", b"\x16"])
async def test_no_handshake_is_an_end(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """Neither silence nor a trickle before TLS holds a connection; one is closed without a word if it is too many."""
    monkeypatch.setattr(listener, "max_connections", lambda _: 4)
    monkeypatch.setattr(acceptor, "FIRST_BYTE_S", 0.3)
    monkeypatch.setattr(loop_share, "HANDSHAKE_S", 0.3)
    async with listening(app, ANY_PORT, tls=lambda: tls) as at:
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(sent)
        assert await answer(at) == b""
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.skipif(
    int(Path("/proc/sys/net/core/somaxconn").read_text()) < 4_096,
    reason="the kernel limits the queue of a socket to less",
)
async def test_connections_queue_while_the_event_loop_is_busy() -> None:
    """Two thousand connections that arrive at once are established with their first packets, and none is lost."""
    # The event loop accepts nothing meanwhile.
    async with (
        listening(app, ANY_PORT, tls=None) as at,
        connections(at, 1_000) as some,
        connections(at, 1_000, "127.0.0.2") as others,
    ):
        assert sum(read_tcp_info(each).retransmits or 0 for each in (*some, *others)) == 0


async def test_a_flood_does_not_keep_the_event_loop(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a turn of its share a few connections are accepted, begun or closed, however many there are."""
    turns: Counter[tuple[str, int]] = Counter()
    turn = 0

    def counted(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            turns[name, turn] += 1
            return usual(*arguments)

        return call

    def add(share: LoopShare, work: Callable[[], None], *, is_new: bool = False) -> None:
        def take_turn() -> None:
            nonlocal turn
            turn += 1
            work()

        usual_add(share, take_turn, is_new=is_new)

    usual_add = LoopShare.add
    monkeypatch.setattr(LoopShare, "add", add)
    monkeypatch.setattr(acceptor, "FIRST_BYTE_S", 0.3)
    for name in ("_admit", "_drop", "_serve"):
        monkeypatch.setattr(Acceptor, name, counted(name, getattr(Acceptor, name)))
    async with (
        listening(app, ANY_PORT, tls=lambda: tls) as at,
        connections(at, 100) as silent,
        connections(at, 50) as heard,
    ):
        for connection in heard:
            connection.send(b"\x16")
        async with asyncio.timeout(TIMEOUT_S):
            while sum(number for (name, _), number in turns.items() if name != "_admit") < 150:
                await asyncio.sleep(0.05)
        for connection in silent:
            assert connection.recv(1) == b""
    total: Counter[str] = Counter()
    for (name, _), number in turns.items():
        total[name] += number
    assert total == {"_admit": 150, "_drop": 100, "_serve": 50}
    assert max(turns.values()) <= 16
    assert max(number for (name, _), number in turns.items() if name == "_serve") == 1


async def test_without_open_files_it_accepts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """When no file can be opened, the listener pauses, and then serves the connections that waited."""
    monkeypatch.setattr(acceptor, "_PAUSE_S", 0.05)
    failures = [OSError(errno.EMFILE, "Too many open files")] * 2
    usual = socket.socket.accept

    def accept(own: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return usual(own)

    monkeypatch.setattr(socket.socket, "accept", accept)
    async with listening(app, ANY_PORT, tls=None) as at:
        assert await answer(at) == b"HTTP/1.1 204 No Content\r\n"
    assert not failures


async def test_a_stop_ends_connections_that_are_not_established() -> None:
    """A silent connection does not delay the stop."""
    async with listening(app, ANY_PORT, tls=None) as at:
        reader, writer = await asyncio.open_connection(at.host, at.port)
        assert (await answer(at)).startswith(b"HTTP/1.1 204")
    async with asyncio.timeout(TIMEOUT_S):
        assert await reader.read() == b""
    writer.close()


async def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Without Nagle's algorithm small writes leave at once: asyncio turns it off on sockets of TCP that say so."""
    [listening_at] = bound(Address(host="127.0.0.1", port=0))
    delays: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            delays.set_result(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with listening_at, socket.create_connection(listening_at.getsockname()):
        accepted, _ = await asyncio.get_running_loop().sock_accept(listening_at)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(Server, accepted)
        assert await delays == 1
        transport.close()
