"""A process that attacks a collector from loopback addresses, as `bench.attack` asks.

It reads an `AttackSpec`, prepares what it sends, and answers. From the next line of its input until the one after it,
it repeats the attack, scheduled by `policy`; then it ends the last one and answers with a `Tally`.

usage: python -m bench.attackers started by bench.attack
"""

import asyncio
import hashlib
import os
import random
import secrets
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from typing import Any

import grpc
import grpc.aio
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamReset
from hpack import Encoder as HPack
from hpack import NeverIndexedHeaderTuple
from hyperframe.frame import ContinuationFrame, DataFrame, HeadersFrame, RstStreamFrame, SettingsFrame

from bench.processes import next_line, own_channel, reply
from isochrone_common.address import Address, parse_address
from isochrone_common.credentials import Credential, JoinToken
from isochrone_wire import codec
from isochrone_wire.model import Batch, Outcome, Sample, Vantage
from isochrone_wire.v1 import fleet_pb2, operations_pb2

JOIN, PUSH, APPLY = "/isochrone.v1.Fleet/Join", "/isochrone.v1.Fleet/Push", "/isochrone.v1.Operations/ApplyPlan"
FIELD_BYTES = 8 << 20
PLAN_BYTES = 4 << 20
CALL_SECONDS = 120.0
OWN_DEADLINE = "Deadline Exceeded"
"""What gRPC says when the caller's deadline passes; the collector says more."""
# A connection may have this many calls at once.
STREAMS = 100
JOIN_CONNECTIONS = 20
BOMB_FIELDS = 12_000
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SOURCES = [f"127.0.0.{number}" for number in range(2, 42)]
# Answers that refuse a call; a collector that is too slow or away would have other ones.
REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
# Of RFC 9113, as gRPC writes it.
REFUSED_STREAM = "RST_STREAM with error code 7"
# Of a connection that the collector has closed, as gRPC writes it; one that cannot be opened has other words.
CLOSED = "Connection reset by peer"
REFUSING = (ConnectionTerminated, ResponseReceived, StreamReset)
_READ_BYTES = 4096
_RESET_SECONDS = 5.0
# The limits of the collector count from the connection, which a busy machine makes late, and ends late.
_LATE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackSpec:
    """An attack by name, on the addresses of gRPC and HTTPS: `count` connections or calls, or `seconds` of them.

    `vantage`, of that `name` and `region`, and `operator` are stolen credentials; `target` is a target of the plan.
    """

    attack: str
    grpc: str
    http: str
    roots: str
    server_name: str
    name: str
    region: str
    vantage: str
    operator: str
    target: int
    count: int
    seconds: float
    policy: int


@dataclass(slots=True, kw_only=True)
class Tally:
    """The number of attempts and of those that were refused, the outcomes by name, and the duration."""

    attempts: int = 0
    refused: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: str, *, refused: bool) -> None:
        self.attempts += 1
        self.refused += refused
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


# Prepared: runs the attack once, and counts what became of it.
Attack = Callable[[Tally], Coroutine[Any, Any, None]]


def bombs(spec: AttackSpec) -> Attack:
    """Half a gigabyte of zeros as gzip in each call, with and without a credential."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(512)) + packer.flush()
    return partial(_calls, spec, [(JOIN, "", bomb), (PUSH, "", bomb), (PUSH, spec.vantage, bomb)])


def large_fields(spec: AttackSpec) -> Attack:
    """Fields of 8 MiB, within and above the limit of a message, and a head of 8 MiB over HTTPS."""
    at = time.time_ns() // 1000
    sample = Sample(target_id=spec.target, round_at=at, dispatched_at=at, outcome=Outcome.HTTP_ERROR, error="x")
    vantage = Vantage(name=spec.name, region=spec.region)
    push = codec.encode(Batch(vantage=vantage, epoch=1, seq=1, samples=(sample,)))
    calls = []
    for size in (FIELD_BYTES - 1024, FIELD_BYTES):
        push.samples[0].error = "x" * size
        join = fleet_pb2.JoinRequest(token="x" * size)
        calls += [(JOIN, "", join.SerializeToString()), (PUSH, spec.vantage, push.SerializeToString())]

    async def attack(tally: Tally) -> None:
        await _calls(spec, calls, tally)
        for number in range(spec.count):
            await _request(spec, number, tally, b"GET /healthz HTTP/1.1\r\nX: " + b"x" * FIELD_BYTES)

    return attack


def cookies(spec: AttackSpec) -> Attack:
    """Cookies as large as a head may be, whose quotes Python removes in quadratic time."""
    cookie = b'a="' + b"\\00" * 5_200 + b'"'
    head = b"GET /v1/routes HTTP/1.1\r\nHost: collector\r\nCookie: %s\r\n\r\n" % cookie
    return lambda tally: _each(spec.count, lambda number: _request(spec, number, tally, head))


def header_bombs(spec: AttackSpec) -> Attack:
    """Heads of one frame that repeat a header field 12 000 times, with a byte each, on almost all streams."""
    head = HeadersFrame(1, _head(HPack()) + b"\xbe" * BOMB_FIELDS, flags=["END_HEADERS"]).serialize()
    return _http2(spec, [_on_stream(head, number) for number in range(STREAMS - 5)])


def open_calls(spec: AttackSpec) -> Attack:
    """Heads of as many calls as a connection may have, and the beginning of a message of each."""
    head = HeadersFrame(1, _head(HPack()), flags=["END_HEADERS"]).serialize()
    begun = DataFrame(1, b"\x00" + struct.pack(">I", 1 << 20) + b"x" * 16_000).serialize()
    return _http2(spec, [_on_stream(frame, number) for number in range(95) for frame in (head, begun)])


def continuations(spec: AttackSpec) -> Attack:
    """Heads without an end: 8 MB of CONTINUATION with one field after the other."""
    fields = HPack().encode([NeverIndexedHeaderTuple("x", "y" * 100)], huffman=False) * 150
    return _http2(
        spec, [HeadersFrame(1, _head(HPack())).serialize(), *[ContinuationFrame(1, fields).serialize()] * 500]
    )


def resets(spec: AttackSpec) -> Attack:
    hpack = HPack()
    call = HeadersFrame(1, _head(hpack), flags=["END_HEADERS"]).serialize()
    again = HeadersFrame(1, _head(hpack), flags=["END_HEADERS"]).serialize()
    reset = RstStreamFrame(1, error_code=8).serialize()
    frames = [_on_stream(frame, number) for number in range(1, 20_000) for frame in (again, reset)]
    return _http2(spec, [call, reset, *frames])


def _head(hpack: HPack) -> bytes:
    path = [(":method", "POST"), (":scheme", "https"), (":path", JOIN), (":authority", "collector")]
    return hpack.encode([*path, ("content-type", "application/grpc"), ("te", "trailers"), ("x", "")])


def _on_stream(frame: bytes, number: int) -> bytes:
    """Return a frame with the identifier of the stream with this number, from 0."""
    return frame[:5] + struct.pack(">I", 2 * number + 1) + frame[9:]


def _http2(spec: AttackSpec, frames: Iterable[bytes]) -> Attack:
    """Send frames on each of `count` connections, which then stay open."""
    content = b"".join([H2_PREFACE, SettingsFrame().serialize(), *frames])

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(content)
        while await reader.read(_READ_BYTES):
            pass
        return "closed"

    grpc_address = parse_address(spec.grpc)
    return lambda tally: _each(spec.count, lambda number: _over_tls(grpc_address, spec, number, tally, send))


def guesses(spec: AttackSpec) -> Attack:
    """Tokens and credentials with the ids of real ones and random secrets."""

    def calls() -> Iterator[tuple[str, str, bytes]]:
        while True:
            number = random.randrange(1, 8)
            token = JoinToken(id=number, secret=secrets.token_bytes(32), fingerprint=secrets.token_bytes(32))
            yield JOIN, "", fleet_pb2.JoinRequest(token=str(token), client_key=bytes(32)).SerializeToString()
            yield PUSH, str(Credential(id=number, secret=secrets.token_bytes(32))), b""

    return lambda tally: _calls(spec, calls(), tally)


def junk_joins(spec: AttackSpec) -> Attack:
    """`count` calls of Join per second with random texts, over as many connections as they need."""

    async def attack(tally: Tally) -> None:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            channels = [await stack.enter_async_context(_channel(spec, "")) for _ in range(JOIN_CONNECTIONS)]
            waiting = asyncio.Semaphore(JOIN_CONNECTIONS * STREAMS)

            async def join(number: int) -> None:
                request = fleet_pb2.JoinRequest(token=secrets.token_urlsafe(90), client_key=bytes(32))
                await _call(channels[number % JOIN_CONNECTIONS], JOIN, request.SerializeToString(), tally)
                waiting.release()

            begin = time.monotonic()
            for number in range(int(spec.count * spec.seconds)):
                await asyncio.sleep(max(0.0, begin + number / spec.count - time.monotonic()))
                await waiting.acquire()
                if time.monotonic() > begin + spec.seconds:
                    break
                group.create_task(join(number))

    return attack


def plans(spec: AttackSpec) -> Attack:
    """Plans with a stolen operator's credential: of 4 MiB, above the limit and just below it with many parts; with as
    many unknown keys as there may be parts; and of 16 kB with names that are similar and numbers in base 60.
    """
    documents = ["a: [" + "0," * ((PLAN_BYTES - 300_000 * over) // 2) + "]" for over in (0, 1)]
    documents += [
        "".join(f"target{number}: 0\n" for number in range(99_000)),
        _misspelt_plan(),
        "a: " + "1:" * 8_000 + "1",
    ]
    requests = [operations_pb2.ApplyPlanRequest(document=text).SerializeToString() for text in documents]
    return partial(_calls, spec, [(APPLY, spec.operator, request) for request in requests])


def _misspelt_plan() -> str:
    """Return a plan of targets with unknown workloads, whose names are similar to those of all others."""
    workloads = "".join(f"  workload{number}a: {{}}\n" for number in range(400))
    targets = "".join(f"- {{model: m, provider: p, workload: workload{number}b}}\n" for number in range(160))
    return f"baseline: us\nworkloads:\n{workloads}targets:\n{targets}"


ATTACKS: dict[str, Callable[[AttackSpec], Attack]] = {
    # Connections that send nothing.
    "idle_grpc": lambda spec: partial(_idle, parse_address(spec.grpc), spec),
    "idle_http": lambda spec: partial(_idle, parse_address(spec.http), spec),
    # Requests whose head, and calls whose message, arrives one byte per second.
    "slow_http": lambda spec: lambda tally: _each(spec.count, lambda number: _slow_head(spec, number, tally)),
    "slow_grpc": lambda spec: lambda tally: _each(spec.count, lambda number: _slow_message(spec, number, tally)),
    "bombs": bombs,
    "large_fields": large_fields,
    "cookies": cookies,
    "header_bombs": header_bombs,
    "open_calls": open_calls,
    "continuations": continuations,
    "resets": resets,
    "guesses": guesses,
    "junk_joins": junk_joins,
    "plans": plans,
    # No attack: what attackers take from the processor.
    "busy": lambda _spec: _compute,
}


async def _compute(tally: Tally) -> None:
    await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha256", b"", b"", 10_000)
    tally.add("computed", refused=True)


async def _idle(address: Address, spec: AttackSpec, tally: Tally) -> None:
    async def hold(number: int) -> None:
        with socket.socket() as idle:
            idle.setblocking(False)
            idle.bind((SOURCES[number % len(SOURCES)], 0))
            outcome, is_held = "closed", False
            try:
                async with asyncio.timeout(spec.seconds):
                    await asyncio.get_running_loop().sock_connect(idle, (address.host, address.port))
                try:
                    async with asyncio.timeout(spec.seconds + _LATE_SECONDS):
                        await _until_closed(idle)
                except TimeoutError:
                    is_held = await _is_held(idle)
                    outcome = "open" if is_held else "lost"
            except OSError as error:
                outcome = type(error).__name__
            tally.add(outcome, refused=not is_held)

    await _each(spec.count, hold)


async def _until_closed(connection: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(connection, _READ_BYTES):
        pass


async def _is_held(connection: socket.socket) -> bool:
    """Send a byte, and return whether the collector takes it.

    While the queue of a listening socket is full, Linux drops the last packet of a handshake: the attacker then has a
    connection of which the collector knows nothing, and its next packet is answered with a reset.
    """
    try:
        async with asyncio.timeout(_RESET_SECONDS):
            await asyncio.get_running_loop().sock_sendall(connection, b"x")
            await _until_closed(connection)
    except TimeoutError:
        return True
    except OSError:
        return False
    return True


async def _slow_head(spec: AttackSpec, number: int, tally: Tally) -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
        return await _trickling(writer, reader.read())

    await _over_tls(parse_address(spec.http), spec, number, tally, trickle)


async def _slow_message(spec: AttackSpec, number: int, tally: Tally) -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        connection = H2Connection()
        connection.initiate_connection()
        path = [(":method", "POST"), (":scheme", "https"), (":path", JOIN), (":authority", spec.server_name)]
        connection.send_headers(1, [*path, ("content-type", "application/grpc"), ("te", "trailers")])
        connection.send_data(1, struct.pack(">BI", 0, 1000) + b"x" * 1000)
        # All but the content of the message, whose bytes arrive one by one.
        writer.write(connection.data_to_send()[:-1000])
        return await _trickling(writer, _until_refused(connection, reader))

    await _over_tls(parse_address(spec.grpc), spec, number, tally, trickle)


async def _request(spec: AttackSpec, number: int, tally: Tally, head: bytes) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(head)
        status = (await reader.readline()).split(b" ")
        return status[1].decode() if len(status) > 1 else "closed"

    await _over_tls(parse_address(spec.http), spec, number, tally, send)


async def _over_tls(
    address: Address,
    spec: AttackSpec,
    number: int,
    tally: Tally,
    work: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[str]],
) -> None:
    """Count what ended a connection; it is not refused if it outlives the attack or is answered with 200.

    One whose handshake does not end is lost: the attack has not begun.
    """
    context = _context(spec.roots, "h2" if address == parse_address(spec.grpc) else "http/1.1")
    writer = None
    try:
        async with asyncio.timeout(spec.seconds) as limit:
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, local_addr=(SOURCES[number % len(SOURCES)], 0)
            )
            limit.reschedule(asyncio.get_running_loop().time() + spec.seconds + _LATE_SECONDS)
            outcome = await work(reader, writer)
    except TimeoutError:
        outcome = "lost" if writer is None else "open"
    except OSError as error:
        outcome = type(error).__name__
    tally.add(outcome, refused=outcome not in ("open", "200"))
    if writer is not None:
        writer.transport.abort()


@lru_cache
def _context(roots: str, protocol: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=roots)
    context.check_hostname = False
    context.set_alpn_protocols([protocol])
    return context


async def _trickling(writer: asyncio.StreamWriter, end: Coroutine[Any, Any, object]) -> str:
    """Send one byte per second until `end`."""
    ended = asyncio.ensure_future(end)
    try:
        while not ended.done():
            writer.write(b"x")
            await asyncio.wait({ended}, timeout=1)
        ended.result()
    finally:
        ended.cancel()
    return "closed"


async def _until_refused(connection: H2Connection, reader: asyncio.StreamReader) -> None:
    """Read until an answer, a reset or the end of the connection."""
    while received := await reader.read(_READ_BYTES):
        if any(isinstance(event, REFUSING) for event in connection.receive_data(received)):
            return


async def _each(count: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(work(number))


async def _calls(spec: AttackSpec, calls: Iterable[tuple[str, str, bytes]], tally: Tally) -> None:
    """Make calls, eight at once, each on connections of its own: each of them `count` times if there is a count, else
    until the time is over.
    """
    until = time.monotonic() + spec.seconds
    queue = (call for call in calls for _ in range(spec.count or 1))

    async def worker() -> None:
        channels = {credential: _channel(spec, credential) for credential in ("", spec.vantage, spec.operator)}
        try:
            for method, credential, request in queue:
                if time.monotonic() >= until:
                    return
                metadata = () if credential in channels else (("authorization", f"Bearer {credential}"),)
                await _call(channels.get(credential, channels[""]), method, request, tally, metadata)
        finally:
            for channel in channels.values():
                await channel.close()

    await asyncio.gather(*(worker() for _ in range(8)))


async def _call(
    channel: grpc.aio.Channel, method: str, request: bytes, tally: Tally, metadata: tuple[tuple[str, str], ...] = ()
) -> None:
    """Make a call and count it; a push or plan of which nothing is stored is refused too."""
    call: Any = channel.unary_unary(method)
    try:
        answer = await call(request, timeout=CALL_SECONDS, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        # The collector refuses streams of a connection that has too many, and gives up work that takes too long.
        details = error.details() or ""
        is_refused_stream = REFUSED_STREAM in details
        is_given_up = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and details != OWN_DEADLINE
        is_closed = error.code() is grpc.StatusCode.UNAVAILABLE and CLOSED in details
        outcome = "REFUSED_STREAM" if is_refused_stream else "closed" if is_closed else error.code().name
        tally.add(outcome, refused=is_refused_stream or is_given_up or is_closed or error.code() in REFUSALS)
        return
    is_refused = (method == PUSH and not fleet_pb2.Receipt.FromString(answer).stored) or (
        method == APPLY and bool(operations_pb2.PlanChange.FromString(answer).problems)
    )
    tally.add("refused" if is_refused else "accepted", refused=is_refused)


def _channel(spec: AttackSpec, credential: str) -> grpc.aio.Channel:
    options = [("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0)]
    trust = {"roots": spec.roots, "server_name": spec.server_name}
    return own_channel(spec.grpc, **trust, credential=credential, options=options)


async def _run(attack: Attack) -> Tally:
    """Repeat the attack until the next line, or the end of the input."""
    tally, begun = Tally(), time.monotonic()
    stopped = asyncio.create_task(asyncio.to_thread(next_line))
    while not stopped.done():
        await attack(tally)
    tally.seconds = time.monotonic() - begun
    return tally


def main() -> None:
    """Run the attack of stdin, and print what became of it."""
    spec = AttackSpec(**next_line())
    attack = ATTACKS[spec.attack](spec)
    os.sched_setscheduler(0, spec.policy, os.sched_param(0))
    reply()
    next_line()
    reply(asdict(asyncio.run(_run(attack))))


if __name__ == "__main__":
    main()
