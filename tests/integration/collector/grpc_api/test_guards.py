"""Guards of calls over a real socket: what is read, how long streams last, how many there may be, and refusals."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, ResponseReceived, StreamEnded

from isochrone_collector.auth import authenticator, limits
from isochrone_collector.auth.authenticator import Principal
from isochrone_collector.auth.limits import CallSlots
from isochrone_collector.errors import (
    BadRequest,
    CollectorError,
    DatabaseUnavailable,
    ResourceExhausted,
    Unauthenticated,
)
from isochrone_collector.grpc_api import guards
from isochrone_collector.grpc_api.guards import Caller, CallGuard
from isochrone_collector.grpc_api.responses import Context, refuse
from isochrone_collector.store import audit
from isochrone_common.channel import CLIENT_OPTIONS, MAX_MESSAGE_BYTES, SERVER_OPTIONS
from isochrone_wire.operations import Role
from isochrone_wire.text import MAX_SHOWN_CHARS

TIMEOUT_S = 20.0
HEALTH = "/grpc.health.v1.Health/Check"
PUSH = "/isochrone.v1.Fleet/Push"
# Without it channels to the same address share a connection.
SEPARATE = [("grpc.use_local_subchannel_pool", 1)]
OPEN = {"/t.T/Open", "/t.T/TooOften", HEALTH}
REFUSED = {
    "/t.T/Refused": Unauthenticated("no credential was sent"),
    "/t.T/Guessed": ResourceExhausted("too many unknown credentials at once"),
}
IDA = Principal(role=Role.READER, name="ida")
PRINCIPALS = {PUSH: Principal(role=Role.VANTAGE, name="us-1", region="us")}


async def _length(content: bytes, _context: Any) -> bytes:
    return str(len(content)).encode()


async def _endless(_content: bytes, _context: Any) -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0.01)


async def _echo(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def _too_often(_content: bytes, _context: Any) -> bytes:
    raise ResourceExhausted("too many joins from this address")


HANDLERS: dict[str, Any] = {
    "/t.T/Length": grpc.unary_unary_rpc_method_handler(_length),
    "/t.T/Open": grpc.unary_unary_rpc_method_handler(_length),
    HEALTH: grpc.unary_unary_rpc_method_handler(_length),
    PUSH: grpc.unary_unary_rpc_method_handler(_length),
    "/t.T/Follow": grpc.unary_stream_rpc_method_handler(_endless),
    "/t.T/Converse": grpc.stream_stream_rpc_method_handler(_echo),
    "/t.T/TooOften": grpc.unary_unary_rpc_method_handler(_too_often),
}


class Guarded:
    """The handlers above under guard."""

    def __init__(self, recheck: Callable[[], Awaitable[object]] | None) -> None:
        self.guard, self.recheck = CallGuard(), recheck

    def service(self, details: Any) -> Any:
        if details.method in REFUSED:
            return self.guard.refusing(REFUSED[details.method])
        handler = HANDLERS[details.method]
        principal = None if details.method in OPEN else PRINCIPALS.get(details.method, IDA)
        return self.guard.guarded(handler, Caller(method=details.method, principal=principal, recheck=self.recheck))


@asynccontextmanager
async def listening(recheck: Callable[[], Awaitable[object]] | None = None) -> AsyncIterator[str]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    handlers: Any = (Guarded(recheck),)
    server.add_generic_rpc_handlers(handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@asynccontextmanager
async def serving(
    recheck: Callable[[], Awaitable[object]] | None = None, compression: grpc.Compression | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    options = [("grpc.max_send_message_length", -1), *CLIENT_OPTIONS[1:]]
    async with (
        listening(recheck) as address,
        grpc.aio.insecure_channel(address, options=options, compression=compression) as channel,
    ):
        yield channel


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
async def test_requests_are_read_in_every_encoding(compression: grpc.Compression) -> None:
    """Clients may compress as gRPC offers; the size limit is on the inflated request."""
    async with serving(compression=compression) as channel:
        length: Any = channel.unary_unary("/t.T/Length")
        for size in (0, 1000, 300_000, MAX_MESSAGE_BYTES):
            assert await length(b"\x0a" * size, timeout=TIMEOUT_S) == str(size).encode()
        status, details = await status_of(length(b"\x0a" * (MAX_MESSAGE_BYTES + 1), timeout=TIMEOUT_S))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in details


async def test_a_request_without_a_credential_is_small() -> None:
    """Without a credential a method takes 8 KiB, and a request that never ends is refused at once."""
    async with serving(compression=grpc.Compression.Gzip) as channel:
        length: Any = channel.unary_unary("/t.T/Open")
        assert await length(b"\x0a" * (8 << 10), timeout=TIMEOUT_S) == b"8192"
        status, _ = await status_of(length(b"\x0a" * (4 << 20), timeout=TIMEOUT_S))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    async with serving() as channel:
        call: Any = channel.stream_unary("/t.T/Refused")
        refused = call(timeout=TIMEOUT_S)  # its request is never sent
        status, details = await status_of(refused)
        assert (status, details) == (grpc.StatusCode.UNAUTHENTICATED, "no credential was sent")


async def test_a_refusal_is_trailers_only() -> None:
    """One frame of headers ends the call, without a message: a client of a stream would take it for an answer."""
    async with listening() as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        connection = H2Connection(H2Configuration(header_encoding="utf-8"))
        connection.initiate_connection()
        fixed = {":method": "POST", ":scheme": "http", ":authority": address, ":path": "/t.T/Refused"}
        headers = {**fixed, "te": "trailers", "content-type": "application/grpc"}
        connection.send_headers(1, headers.items(), end_stream=True)
        writer.write(connection.data_to_send())
        events = list[Event]()
        async with asyncio.timeout(TIMEOUT_S):
            while not any(isinstance(event, StreamEnded) for event in events):
                events += connection.receive_data(await reader.read(65_536))
        writer.close()
        answers = [event for event in events if getattr(event, "stream_id", None) == 1]
        assert [type(event) for event in answers] == [ResponseReceived, StreamEnded]
        assert ("grpc-status", "16") in vars(answers[0])["headers"]


@pytest.mark.parametrize("method", ["/t.T/TooOften", "/t.T/Guessed"])
async def test_callers_that_call_too_often_wait_for_no_slot(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Twenty of them wait for a second each, more than there are slots; other callers are answered meanwhile."""
    begun = time.monotonic()
    async with serving() as channel:
        too_often: Any = channel.unary_unary(method)
        refused = [too_often(b"", timeout=TIMEOUT_S) for _ in range(20)]
        monkeypatch.setattr(limits, "_PAUSE_S", 1.0)
        for call in refused:
            status, details = await status_of(call)
            assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert details.startswith("too many")
        assert time.monotonic() - begun > 1.0
        monkeypatch.setattr(limits, "_PAUSE_S", TIMEOUT_S * 2)
        waiting = [too_often(b"", timeout=TIMEOUT_S * 2) for _ in range(20)]
        for name in ("/t.T/Open", "/t.T/Length"):
            answered: Any = channel.unary_unary(name)
            assert await answered(b"x", timeout=TIMEOUT_S) == b"1"
        assert not any(call.done() for call in waiting)
        for call in waiting:
            call.cancel()


async def test_an_address_that_joins_too_often_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused unread after a pause, with a delay; health checks and callers with a credential are not."""
    monkeypatch.setattr(guards, "_OPEN_PER_SECOND", 0.25)
    monkeypatch.setattr(limits, "_PAUSE_S", 0.2)
    async with serving() as channel:
        join: Any = channel.unary_unary("/t.T/Open")
        assert await join(b"x", timeout=TIMEOUT_S) == b"1"
        unsent: Any = channel.stream_unary("/t.T/Open")
        began = time.monotonic()
        refused = unsent(timeout=TIMEOUT_S)
        status, details = await status_of(refused)
        assert (status, details.partition(";")[0]) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "too many joins from this address",
        )
        assert 0.2 <= time.monotonic() - began < limits._ARRIVAL_S / 2
        assert "grpc-retry-pushback-ms" in dict(await refused.trailing_metadata())
        for method in (HEALTH, "/t.T/Length"):
            free: Any = channel.unary_unary(method)
            assert {await free(b"x", timeout=TIMEOUT_S) for _ in range(5)} == {b"1"}


@pytest.mark.parametrize("method", ["/t.T/Refused", "/t.T/Failing"])
async def test_a_connection_survives_refusals(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A refused call is gone at once: three hundred of them on a connection are answered without garbage collection."""

    async def fail(_content: bytes, context: Any) -> bytes:
        await refuse(context, Unauthenticated("no"))
        return b""

    monkeypatch.setitem(HANDLERS, "/t.T/Failing", grpc.unary_unary_rpc_method_handler(fail))
    gc.disable()
    try:
        async with serving() as channel:
            call: Any = channel.unary_unary(method)
            statuses = {(await status_of(call(b"", timeout=TIMEOUT_S)))[0] for _ in range(300)}
    finally:
        gc.enable()
    assert statuses == {grpc.StatusCode.UNAUTHENTICATED}


async def test_an_endless_request_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that does not arrive in time is refused."""
    monkeypatch.setattr(guards, "_READ_S", 0.1)
    async with serving() as channel:
        call: Any = channel.stream_unary("/t.T/Length")
        status, details = await status_of(call(timeout=TIMEOUT_S))
        assert (status, details) == (grpc.StatusCode.DEADLINE_EXCEEDED, "the request did not arrive in time")


@pytest.mark.parametrize("method", ["/t.T/Open", HEALTH])
async def test_requests_that_never_arrive_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Ninety calls of thirty addresses without requests delay a join or a health check by a second at most."""
    peers: dict[str, int] = {}
    monkeypatch.setattr(limits, "address_key", lambda peer: str(peers.setdefault(peer, len(peers)) // 3))
    async with (
        listening() as address,
        grpc.aio.insecure_channel(address, options=SEPARATE) as channel,
        AsyncExitStack() as stack,
    ):
        for _ in range(90):
            other = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=SEPARATE))
            stalled: Any = other.stream_unary(method)
            stack.callback(stalled(timeout=TIMEOUT_S).cancel)
        await asyncio.sleep(0.5)
        length: Any = channel.unary_unary(method)
        began = time.monotonic()
        assert await length(b"xy", timeout=TIMEOUT_S) == b"2"
        assert time.monotonic() - began < limits._ARRIVAL_S / 2


async def test_requests_of_a_caller_arrive_two_at_a_time() -> None:
    """A caller that sends large requests all at once delays the others by two of them."""
    async with serving() as channel:
        call: Any = channel.stream_unary(PUSH)
        stalled = [call(timeout=TIMEOUT_S) for _ in range(2)]
        await asyncio.sleep(0.3)
        push: Any = channel.unary_unary(PUSH)
        third = push(b"xy", timeout=TIMEOUT_S)
        await asyncio.sleep(0.3)
        assert not third.done()
        stalled[0].cancel()
        assert await third == b"2"
        stalled[1].cancel()


async def test_queries_leave_the_slots_of_pushes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """While readers hold all their slots, a push is read at once."""
    monkeypatch.setattr(limits, "CallSlots", lambda total, each, **_: CallSlots(total=min(total, 2), each=each))
    async with serving() as channel:
        asked: Any = channel.stream_unary("/t.T/Length")
        stalled = [asked(timeout=TIMEOUT_S) for _ in range(8)]
        await asyncio.sleep(0.3)
        push: Any = channel.unary_unary(PUSH)
        assert await push(b"xy", timeout=TIMEOUT_S / 4) == b"2"
        for call in stalled:
            call.cancel()


async def test_pushes_that_wait_are_served_in_order_and_others_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no slot and three waiting, pushes are refused, each with another delay; those that wait go in order."""
    order = list[bytes]()

    async def record(content: bytes, _context: Any) -> bytes:
        order.append(content)
        return b""

    monkeypatch.setitem(HANDLERS, PUSH, grpc.unary_unary_rpc_method_handler(record))
    monkeypatch.setattr(limits, "CallSlots", lambda **_: CallSlots(total=1, each=8, waiting=3))
    monkeypatch.setattr(limits, "_RETRIES_PER_S", 0.1)
    async with serving() as channel:
        endless: Any = channel.stream_unary(PUSH)
        held = endless(timeout=TIMEOUT_S)  # its request is never sent
        await asyncio.sleep(0.3)
        push: Any = channel.unary_unary(PUSH)
        waiting = [push(name, timeout=TIMEOUT_S) for name in (b"a", b"b", b"c")]
        await asyncio.sleep(0.3)
        refused = [push(b"late", timeout=TIMEOUT_S) for _ in range(3)]
        assert {(await status_of(call))[0] for call in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        trailers = [dict(await call.trailing_metadata()) for call in refused]
        delays_ms = sorted(int(trailer["grpc-retry-pushback-ms"]) for trailer in trailers)
        assert delays_ms[1] - delays_ms[0] > 5_000
        assert delays_ms[2] - delays_ms[1] > 5_000
        held.cancel()
        await asyncio.gather(*waiting)
    assert order == [b"a", b"b", b"c"]


async def test_a_stream_ends_when_access_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream goes on while the credential cannot be checked, and ends once it is known to be revoked."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.05)
    answers: list[Exception] = [
        DatabaseUnavailable("away"),
        Unauthenticated("the credential of 'ida' has been revoked"),
    ]

    async def recheck() -> None:
        raise answers.pop(0) if len(answers) > 1 else answers[0]

    async with serving(recheck) as channel:
        follow: Any = channel.unary_stream("/t.T/Follow")
        stream = follow(b"", timeout=TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stream:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "revoked" in (caught.value.details() or "")
        assert len(answers) == 1


async def test_a_stream_that_is_not_read_ends_when_access_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Revocation reaches a stream that waits for its reader, too."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.3)
    ended = asyncio.Event()

    async def stuck(_content: bytes, _context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1 << 20)
        finally:
            ended.set()

    async def recheck() -> None:
        raise Unauthenticated("revoked")

    monkeypatch.setitem(HANDLERS, "/t.T/Follow", grpc.unary_stream_rpc_method_handler(stuck))
    async with serving(recheck) as channel:
        follow: Any = channel.unary_stream("/t.T/Follow")
        stream = follow(b"", timeout=TIMEOUT_S)
        assert await stream.read()
        await asyncio.wait_for(ended.wait(), TIMEOUT_S)
        stream.cancel()


async def test_a_caller_has_a_number_of_streams() -> None:
    """The seventeenth stream of a caller is refused; a stream that its reader left makes room."""
    async with serving() as channel:
        follow: Any = channel.unary_stream("/t.T/Follow")
        streams = [follow(b"", timeout=TIMEOUT_S) for _ in range(16)]
        for stream in streams:
            assert await stream.read() == b"x"
        status, details = await status_of(follow(b"", timeout=TIMEOUT_S).read())
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "limit of 16 open streams" in details
        streams[0].cancel()
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                again = follow(b"", timeout=TIMEOUT_S)
                try:
                    assert await again.read() == b"x"
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)
                else:
                    break
        for stream in [*streams, again]:
            stream.cancel()


async def test_a_conversation_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of requests has a limit of size, a caller one of streams, and they end when access does."""
    answers: list[Exception] = []

    async def recheck() -> None:
        for error in answers:
            raise error

    monkeypatch.setattr(authenticator, "RECHECK_S", 0.05)
    async with serving(recheck, compression=grpc.Compression.Gzip) as channel:
        converse: Any = channel.stream_stream("/t.T/Converse")
        streams = [converse(timeout=TIMEOUT_S) for _ in range(16)]
        for stream in streams:
            for content in (b"one", b"x" * guards.MAX_STREAMED_MESSAGE_BYTES):
                await stream.write(content)
                assert await stream.read() == content
        status, details = await status_of(converse(timeout=TIMEOUT_S).read())
        assert (status, "16 open streams" in details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
        await streams[0].write(b"x" * (guards.MAX_STREAMED_MESSAGE_BYTES + 1))
        status, _ = await status_of(streams[0].read())
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        answers.append(Unauthenticated("the credential of 'ida' has been revoked"))
        for stream in streams[1:]:
            assert (await status_of(stream.read()))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_changes_are_recorded_with_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit trail has the name as it was authenticated, once, and the address without the port."""

    async def actor(_content: bytes, _context: Any) -> bytes:
        return repr(audit._actor.get()).encode()

    monkeypatch.setitem(HANDLERS, "/t.T/Length", grpc.unary_unary_rpc_method_handler(actor))
    async with serving() as channel:
        ask: Any = channel.unary_unary("/t.T/Length")
        assert await ask(b"", timeout=TIMEOUT_S) == b"Actor(principal='ida', address='127.0.0.1')"


async def refused(error: CollectorError) -> grpc.aio.AioRpcError:
    async def ask(_: bytes, context: Context) -> bytes:
        await refuse(context, error)
        return b""

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(ask)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Service", {"Ask": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/test.Service/Ask")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", timeout=10)
    await server.stop(None)
    return caught.value


async def test_too_many_carries_a_delay() -> None:
    """RESOURCE_EXHAUSTED carries the time to wait; an invalid request has no metadata that asks for a retry."""
    error = await refused(ResourceExhausted("crowded", delay_us=5_000_000))
    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "crowded")
    assert ("grpc-retry-pushback-ms", "5000") in list(error.trailing_metadata())
    error = await refused(BadRequest("impossible"))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [key for key, _ in error.trailing_metadata() if "pushback" in key] == []


@pytest.mark.parametrize("text", ["x", "名", "😀"])
async def test_a_long_message_arrives_with_its_status(text: str) -> None:
    """A message is bounded as encoded in the metadata, of which clients accept 8 KiB."""
    error = await refused(BadRequest(text * 10_000))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert 500 < len(error.details() or "") <= MAX_SHOWN_CHARS
