"""The front of a gRPC server over real sockets: what reaches gRPC, and which connections are closed."""

import asyncio
import socket
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, PingAckReceived, ResponseReceived
from hpack import Encoder
from hyperframe.frame import ContinuationFrame, ExtensionFrame, Frame, HeadersFrame, RstStreamFrame

from bench.processes import own_channel
from isochrone_collector.auth.limits import host_of
from isochrone_collector.grpc_api import front as front_module
from isochrone_collector.grpc_api.front import Front
from isochrone_collector.loop_share import LoopShare
from isochrone_collector.server.certificates import Certificates
from isochrone_collector.settings import Tls
from isochrone_common.address import Address
from isochrone_common.channel import CLIENT_OPTIONS, SERVER_OPTIONS

TIMEOUT_S = 20.0
GRACE_S = 5.0
SLOW = "/t.T/Slow"
# Decided by the head of the call.
EARLY, REFUSED = "/t.T/Early", "/t.T/Refused"
HEAD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/t.T/Call"),
    (":authority", "collector"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


@dataclass(slots=True)
class Served:
    """A front, and the numbers of header fields and the peers of the calls behind it."""

    front: Front
    fields: list[int] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    decide: asyncio.Event = field(default_factory=asyncio.Event)

    def service(self, details: Any) -> Any:
        """Return a handler that reads no request; `/t.T/Admitted` has a credential."""
        self.fields.append(len(details.invocation_metadata))

        async def call(content: bytes, context: Any) -> bytes:
            self.peers.append(context.peer())
            if details.method == "/t.T/Admitted":
                self.front.admit(context.peer())
            if details.method == SLOW:
                await asyncio.sleep(GRACE_S / 10)
            return content

        async def decided(requests: AsyncIterator[bytes], context: Any) -> bytes:
            await self.decide.wait()
            if details.method == REFUSED:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED)
            self.front.admit(context.peer())
            return b"".join([request async for request in requests])

        if details.method in (EARLY, REFUSED):
            return grpc.stream_unary_rpc_method_handler(decided)
        return grpc.unary_unary_rpc_method_handler(call)


@asynccontextmanager
async def serving(host: str = "127.0.0.1", certificates: Certificates | None = None) -> AsyncIterator[Served]:
    """Serve behind a front at this address, with TLS if there are certificates."""
    served = Served(Front(Address(host, 0), tls=partial(certificates.context, "h2") if certificates else None))
    server = grpc.aio.server(options=SERVER_OPTIONS)
    handlers: Any = (served,)
    server.add_generic_rpc_handlers(handlers)
    server.add_insecure_port(str(served.front.address))
    await server.start()
    served.front.start()
    yield served
    await server.stop(GRACE_S)
    await served.front.close()


@asynccontextmanager
async def channel_to(served: Served, roots: str | None = None) -> AsyncIterator[grpc.aio.Channel]:
    """Yield a channel with a connection of its own, with TLS if there are roots."""
    options = [*CLIENT_OPTIONS, ("grpc.enable_retries", 0)]
    async with own_channel(str(served.front.listen), roots=roots, server_name=None, options=options) as channel:
        yield channel


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.http2 = H2Connection()
        self.http2.initiate_connection()

    def send(self, content: bytes = b"") -> None:
        self.writer.write(self.http2.data_to_send() + content)

    async def event(self, kind: type) -> bool:
        with_end = (kind, ConnectionTerminated)
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while content := await self.reader.read(65_536):
                    found = [one for one in self.http2.receive_data(content) if isinstance(one, with_end)]
                    if found:
                        return isinstance(found[0], kind)
            except ConnectionError:
                pass
        return False

    async def is_served(self) -> bool:
        self.http2.ping(b"12345678")
        self.send()
        return await self.event(PingAckReceived)


@asynccontextmanager
async def client_of(served: Served, source: str = "127.0.0.1") -> AsyncIterator[Client]:
    """Yield a connection from this address."""
    at = served.front.listen
    reader, writer = await asyncio.open_connection(at.host, at.port, local_addr=(source, 0))
    yield Client(reader, writer)
    writer.transport.abort()


async def call(channel: grpc.aio.Channel, method: str = "/t.T/Call", content: bytes = b"x") -> bytes:
    method_call: Any = channel.unary_unary(method)
    answer: bytes = await method_call(content, timeout=TIMEOUT_S)
    return answer


async def test_calls_are_passed_on_with_the_address_of_the_caller() -> None:
    """In both directions, with messages of any size and many calls at once."""
    async with serving() as served, channel_to(served) as channel:
        await call(channel, "/t.T/Admitted")
        contents = [b"x" * size for size in (0, 1, 1_000, 100_000, 8_000_000)] * 4
        assert await asyncio.gather(*(call(channel, content=content) for content in contents)) == contents
        assert {host_of(peer) for peer in served.peers} == {"127.0.0.1"}
        assert len(set(served.peers)) == 1


def abandoned_in(parent: Path) -> None:
    """Make the folder of a killed collector, whose socket is left, and one of a collector that starts."""
    for name in ("killed", "starting"):
        (parent / f"isochrone-grpc-{name}").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(parent / "isochrone-grpc-killed" / "grpc"))
        server.listen()


def names_in(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


async def test_folders_of_killed_collectors_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front removes a folder whose socket nobody listens on, and no other one."""
    with tempfile.TemporaryDirectory() as parent:
        monkeypatch.setattr(front_module, "_PARENT", parent)
        abandoned_in(Path(parent))
        async with serving() as served:
            assert "isochrone-grpc-killed" not in names_in(parent)
            async with serving() as other, channel_to(served) as channel, channel_to(other) as another:
                assert {*await asyncio.gather(call(channel), call(another))} == {b"x"}
            assert len(names_in(parent)) == len(["starting", "served"])


FOUND = [
    (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    # Not of this machine.
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),
]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "both.example"])
async def test_every_address_is_that_of_both_families(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers over IPv4 and IPv6 reach the same port, and each has its own address; so do those of a name with both."""
    usual = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *a, **k: FOUND if "both" in name else usual(name, *a, **k))
    async with serving(host) as served:
        for address in ("127.0.0.1", "[::1]"):
            async with grpc.aio.insecure_channel(f"{address}:{served.front.listen.port}", CLIENT_OPTIONS) as channel:
                await call(channel)
        assert list(map(host_of, served.peers)) == ["127.0.0.1", "::1"]


def padded(block: bytes) -> Frame:
    """Return a call with the flag of padding, which gRPC ignores: its length and what follows are fields."""
    frame = ExtensionFrame(1, 1, flag_byte=0xD, body=block)
    frame.body_len = len(block)
    return frame


ATTACKS: dict[str, list[Frame]] = {
    "bomb": [
        HeadersFrame(stream, Encoder().encode([*HEAD, ("x", "")]) + b"\xbe" * 12_000, flags=["END_HEADERS"])
        for stream in range(1, 190, 2)
    ],
    "padded bomb": [padded(b"\x83" + Encoder().encode(HEAD[1:]) + b"\x8f" * 0x83)],
    "continuation": [
        HeadersFrame(1, Encoder().encode(HEAD)),
        *[ContinuationFrame(1, Encoder().encode([("x", "y" * 100)], huffman=False) * 100)] * 500,
    ],
    "rapid reset": [
        frame
        for stream in range(1, 2_000, 2)
        for frame in (
            HeadersFrame(stream, Encoder().encode(HEAD), flags=["END_HEADERS"]),
            RstStreamFrame(stream, error_code=8),
        )
    ],
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_ends_its_connection_only(attack: str) -> None:
    """The connection is closed, gRPC has decoded little of it, and another one goes on."""
    async with serving() as served, channel_to(served) as channel, client_of(served) as attacker:
        await call(channel)
        attacker.send(b"".join(frame.serialize() for frame in ATTACKS[attack]))
        assert not await attacker.event(PingAckReceived)
        assert await call(channel) == b"x"
        assert len(served.fields) < 50
        assert max(served.fields) < 20


@pytest.mark.parametrize("method", ["/t.T/Call", "/t.T/Admitted"])
async def test_a_connection_makes_a_request_in_time(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a complete request, and without a credential, is closed after a time; calls that end it stays."""
    monkeypatch.setattr(front_module, "_REQUEST_WITHIN_S", GRACE_S / 5)
    head = [(name, method if name == ":path" else value) for name, value in HEAD]
    async with (
        serving() as served,
        client_of(served) as silent,
        client_of(served) as client,
        client_of(served) as open_,
    ):
        assert await silent.is_served()
        client.http2.send_headers(1, head)
        client.http2.send_data(1, b"\x00\x00\x00\x00\x00", end_stream=True)
        client.send()
        open_.http2.send_headers(1, head)
        open_.send()
        assert not await silent.event(PingAckReceived)
        assert await client.event(ResponseReceived)
        assert await client.is_served()
        assert not await open_.event(PingAckReceived)


async def test_a_credential_lifts_the_limits_of_frames() -> None:
    """A caller that cancels many calls keeps its connection after the first call with a credential."""
    async with serving() as served:
        for method, is_kept in (("/t.T/Admitted", True), ("/t.T/Call", False)):
            async with client_of(served) as client:
                head = [(name, method if name == ":path" else value) for name, value in HEAD]
                client.http2.send_headers(1, head)
                client.http2.send_data(1, b"\x00\x00\x00\x00\x00", end_stream=True)
                client.send()
                assert await client.event(ResponseReceived)
                for stream in range(3, 103, 2):
                    client.http2.send_headers(stream, HEAD)
                    client.http2.reset_stream(stream)
                assert await client.is_served() is is_kept


@pytest.mark.parametrize("method", [EARLY, REFUSED])
async def test_a_large_request_waits_for_its_credential(method: str) -> None:
    """Only its beginning reaches gRPC until then; if it is refused, the connection goes on with the next call."""
    async with serving() as served, client_of(served) as client:
        assert [await client.is_served(), await client.is_served()] == [True, True]
        client.http2.send_headers(1, [(name, method if name == ":path" else value) for name, value in HEAD])
        content = b"\x00" + (30_000).to_bytes(4, "big") + b"x" * 30_000
        client.http2.send_data(1, content[:16_000])
        client.send()
        async with asyncio.timeout(TIMEOUT_S):
            while not served.fields:
                await asyncio.sleep(0.01)
        client.http2.send_data(1, content[16_000:], end_stream=True)
        client.http2.send_headers(3, HEAD, end_stream=True)
        client.http2.ping(b"12345678")
        client.send()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.event(PingAckReceived)
        served.decide.set()
        assert await client.event(ResponseReceived)
        assert await client.is_served()
        async with asyncio.timeout(TIMEOUT_S):
            while len(served.fields) < 2:
                await asyncio.sleep(0.01)


async def test_a_credential_ends_the_wait_for_a_share_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the share is spent, a connection with a credential is served, whatever it sends, and others wait."""
    certificates = Certificates(Tls(), data_dir=tmp_path, host="127.0.0.1")
    roots, waiting = certificates.current.certificate, list[Callable[[], None]]()
    async with serving(certificates=certificates) as served, channel_to(served, roots) as channel:
        await call(channel, "/t.T/Admitted")
        monkeypatch.setattr(LoopShare, "add", lambda _, work, **_is_new: waiting.append(work))
        async with channel_to(served, roots) as other:
            waits = asyncio.create_task(call(other))
            contents = [b"x" * size for size in (1, 8_000_000)] * 20
            assert await asyncio.gather(*(call(channel, content=content) for content in contents)) == contents
            assert not waits.done()
            monkeypatch.undo()
            for work in waiting:
                work()
            assert await waits == b"x"


async def test_the_calls_of_a_connection_without_a_credential_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred calls that arrive at once reach gRPC one at a time."""
    async with serving() as served, client_of(served) as client:
        # The second time sends what h2 answers the server's settings.
        assert [await client.is_served(), await client.is_served()] == [True, True]
        turns: deque[Callable[[], None]] = deque()
        monkeypatch.setattr(LoopShare, "add", lambda _, work, **_is_new: turns.append(work))
        for stream in range(1, 201, 2):
            client.http2.send_headers(stream, HEAD, end_stream=True)
        client.send()
        async with asyncio.timeout(TIMEOUT_S):
            for number in range(1, 101):
                while len(served.fields) < number:
                    await asyncio.sleep(0)
                assert (len(served.fields), len(turns)) == (number, int(number < 100))
                if turns:
                    turns.popleft()()


async def test_a_credential_passes_on_the_calls_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that came with the first one that has a credential need no turn."""
    async with serving() as served, client_of(served) as client:
        assert [await client.is_served(), await client.is_served()] == [True, True]
        monkeypatch.setattr(LoopShare, "add", lambda *_, **_is_new: None)
        client.http2.send_headers(1, [(name, "/t.T/Admitted" if name == ":path" else value) for name, value in HEAD])
        client.http2.send_data(1, b"\x00\x00\x00\x00\x00", end_stream=True)
        for stream in range(3, 43, 2):
            client.http2.send_headers(stream, HEAD, end_stream=True)
        client.send()
        async with asyncio.timeout(TIMEOUT_S):
            while len(served.fields) < 21:
                await asyncio.sleep(0.01)


async def test_connections_without_a_credential_are_counted_per_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address may have a quarter of all connections without a credential, and any number with one."""
    monkeypatch.setattr(front_module, "max_connections", lambda _: 8)
    async with serving() as served, AsyncExitStack() as stack:
        for _ in range(3):
            await call(await stack.enter_async_context(channel_to(served)), "/t.T/Admitted")
        for is_served in (True, True, False):
            assert await (await stack.enter_async_context(client_of(served))).is_served() is is_served
        assert await (await stack.enter_async_context(client_of(served, "127.0.0.2"))).is_served()


async def test_a_stop_ends_no_answer() -> None:
    """A call that is served within the grace of the stop is answered; connections without a call do not hold it up."""
    stack = AsyncExitStack()
    served = await stack.enter_async_context(serving())
    async with channel_to(served) as channel, client_of(served) as idle:
        assert await idle.is_served()
        answer = asyncio.create_task(call(channel, SLOW, b"x" * 10_000))
        async with asyncio.timeout(TIMEOUT_S):
            while not served.peers:
                await asyncio.sleep(0.01)
            await stack.aclose()
        assert len(await answer) == 10_000
