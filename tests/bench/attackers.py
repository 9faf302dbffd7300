"""A process that attacks a collector from loopback addresses, as `bench.attack` asks.

It reads one line of JSON, an `AttackSpec`, and prints one line of JSON, a `Tally`, when the attack is over. It runs at
the lowest priority, because attackers are on machines of their own.

usage: python -m bench.attackers started by bench.attack
"""

import asyncio
import json
import os
import random
import secrets
import socket
import ssl
import struct
import sys
import time
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc
import grpc.aio

from isochrone_wire import codec
from isochrone_wire.address import Address, parse_address
from isochrone_wire.credentials import Credential, JoinToken
from isochrone_wire.model import Batch, Outcome, Sample, Vantage
from isochrone_wire.v1 import fleet_pb2, operations_pb2

JOIN, PUSH, APPLY = "/isochrone.v1.Fleet/Join", "/isochrone.v1.Fleet/Push", "/isochrone.v1.Operations/ApplyPlan"
FIELD_BYTES = 8 << 20
PLAN_BYTES = 4 << 20
CALL_SECONDS = 60.0
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
_READ_BYTES = 4096
# Frame types of HTTP/2, RFC 9113 section 6.
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_HEADERS = 4


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


@dataclass(slots=True, kw_only=True)
class Tally:
    """The number of attempts and of those that were refused, the outcomes by name, and the duration."""

    attempts: int = 0
    refused: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: str, *, refused: bool) -> None:
        """Count an attempt."""
        self.attempts += 1
        self.refused += refused
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


Attack = Callable[[AttackSpec, Tally], Coroutine[Any, Any, None]]


async def idle_grpc(spec: AttackSpec, tally: Tally) -> None:
    """Connections to the gRPC port that send nothing."""
    await _idle(parse_address(spec.grpc), spec, tally)


async def idle_http(spec: AttackSpec, tally: Tally) -> None:
    """Connections to the HTTPS port that send nothing, or the first byte of TLS."""
    await _idle(parse_address(spec.http), spec, tally)


async def slow_http(spec: AttackSpec, tally: Tally) -> None:
    """Requests over HTTPS whose head arrives one byte per second."""
    await _each(spec.count, lambda number: _slow_head(spec, number, tally))


async def slow_grpc(spec: AttackSpec, tally: Tally) -> None:
    """Calls whose message arrives one byte per second."""
    await _each(spec.count, lambda number: _slow_message(spec, number, tally))


async def bombs(spec: AttackSpec, tally: Tally) -> None:
    """Half a gigabyte of zeros as gzip in each call, with and without a credential."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(512)) + packer.flush()
    await _calls(spec, tally, [(JOIN, "", bomb), (PUSH, "", bomb), (PUSH, spec.vantage, bomb)])


async def large_fields(spec: AttackSpec, tally: Tally) -> None:
    """Fields of 8 MiB, within and above the limit of a message, and a head of 8 MiB over HTTPS."""
    sample = Sample(
        target_id=spec.target, round_at=_now_at(), dispatched_at=_now_at(), outcome=Outcome.HTTP_ERROR, error="x"
    )
    vantage = Vantage(name=spec.name, region=spec.region)
    push = codec.encode(Batch(vantage=vantage, epoch=1, seq=1, samples=(sample,)))
    calls = []
    for size in (FIELD_BYTES - 1024, FIELD_BYTES):
        push.samples[0].error = "x" * size
        join = fleet_pb2.JoinRequest(token="x" * size)
        calls += [(JOIN, "", join.SerializeToString()), (PUSH, spec.vantage, push.SerializeToString())]
    await _calls(spec, tally, calls)
    for number in range(spec.count):
        await _large_head(spec, number, tally)


async def guesses(spec: AttackSpec, tally: Tally) -> None:
    """Tokens and credentials with the ids of real ones and random secrets."""

    def calls() -> Iterator[tuple[str, str, bytes]]:
        while True:
            number = random.randrange(1, 8)
            token = JoinToken(id=number, secret=secrets.token_bytes(32), fingerprint=secrets.token_bytes(32))
            yield JOIN, "", fleet_pb2.JoinRequest(token=str(token), client_key=bytes(32)).SerializeToString()
            yield PUSH, str(Credential(id=number, secret=secrets.token_bytes(32))), b""

    await _calls(spec, tally, calls())


async def junk_joins(spec: AttackSpec, tally: Tally) -> None:
    """`count` calls of Join per second with random texts, whether they are answered or not."""
    async with _channel(spec, "") as channel, asyncio.TaskGroup() as group:
        begin = time.monotonic()
        for number in range(int(spec.count * spec.seconds)):
            await asyncio.sleep(max(0.0, begin + number / spec.count - time.monotonic()))
            request = fleet_pb2.JoinRequest(token=secrets.token_urlsafe(90), client_key=bytes(32))
            group.create_task(_call(channel, JOIN, request.SerializeToString(), tally))


async def plans(spec: AttackSpec, tally: Tally) -> None:
    """Plans of 4 MiB with a stolen operator's credential: above the limit, and just below it with many parts."""
    documents = ["a: [" + "0," * ((PLAN_BYTES - 300_000 * over) // 2) + "]" for over in (0, 1)]
    requests = [operations_pb2.ApplyPlanRequest(document=text).SerializeToString() for text in documents]
    await _calls(spec, tally, [(APPLY, spec.operator, request) for request in requests])


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (idle_grpc, idle_http, slow_http, slow_grpc, bombs, large_fields, guesses, junk_joins, plans)
}


async def _idle(address: Address, spec: AttackSpec, tally: Tally) -> None:
    async def hold(number: int) -> None:
        with socket.socket() as idle:
            idle.setblocking(False)
            idle.bind((_source(number), 0))
            try:
                async with asyncio.timeout(spec.seconds):
                    await asyncio.get_running_loop().sock_connect(idle, (address.host, address.port))
                    while await asyncio.get_running_loop().sock_recv(idle, _READ_BYTES):
                        pass
            except TimeoutError:
                tally.add("open", refused=False)
            except OSError as error:
                tally.add(type(error).__name__, refused=True)
            else:
                tally.add("closed", refused=True)

    await _each(spec.count, hold)


async def _slow_head(spec: AttackSpec, number: int, tally: Tally) -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
        return await _trickling(writer, reader.read())

    await _over_tls(parse_address(spec.http), spec, number, tally, trickle)


async def _slow_message(spec: AttackSpec, number: int, tally: Tally) -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b""))
        writer.write(_frame(_HEADERS, _END_HEADERS, 1, _head(JOIN)))
        # The head of a message of 1 000 bytes in a DATA frame of as many; they arrive one by one.
        writer.write(struct.pack(">I", 1005)[1:] + struct.pack(">BBI", _DATA, 0, 1) + struct.pack(">BI", 0, 1000))
        return await _trickling(writer, _until_refused(reader))

    await _over_tls(parse_address(spec.grpc), spec, number, tally, trickle)


async def _large_head(spec: AttackSpec, number: int, tally: Tally) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * FIELD_BYTES)
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
    """Count what ended a connection; it is not refused if it outlives the attack or is answered with 200."""
    context = ssl.create_default_context(cadata=spec.roots)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"] if address == parse_address(spec.grpc) else ["http/1.1"])
    outcome, writer = "open", None
    try:
        async with asyncio.timeout(spec.seconds):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, local_addr=(_source(number), 0)
            )
            outcome = await work(reader, writer)
    except TimeoutError:
        pass
    except OSError as error:
        outcome = type(error).__name__
    tally.add(outcome, refused=outcome not in ("open", "200"))
    if writer is not None:
        writer.transport.abort()


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


async def _until_refused(reader: asyncio.StreamReader) -> None:
    """Read frames of HTTP/2 until one ends the call or the connection."""
    kind = _SETTINGS
    while kind not in (_HEADERS, _RESET, _GOAWAY):
        try:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3], "big"))
        except asyncio.IncompleteReadError:
            return
        kind = head[3]


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _head(method: str) -> bytes:
    """Return the headers of a call in HPACK, RFC 7541: POST, https, and literals that are not indexed."""

    def text(value: str) -> bytes:
        return bytes([len(value)]) + value.encode()

    named = {"content-type": "application/grpc", "te": "trailers"}
    literals = b"".join(b"\0" + text(name) + text(value) for name, value in named.items())
    return b"\x83\x87\x04" + text(method) + b"\x01" + text("collector") + literals


async def _each(count: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(work(number))


async def _calls(spec: AttackSpec, tally: Tally, calls: Iterable[tuple[str, str, bytes]]) -> None:
    """Make calls, eight at once: each of them `count` times if there is a count, else until the time is over."""
    until = time.monotonic() + spec.seconds
    queue = (call for call in calls for _ in range(spec.count or 1))
    channels = {credential: _channel(spec, credential) for credential in ("", spec.vantage, spec.operator)}

    async def worker() -> None:
        for method, credential, request in queue:
            if time.monotonic() >= until:
                return
            metadata = () if credential in channels else (("authorization", f"Bearer {credential}"),)
            await _call(channels.get(credential, channels[""]), method, request, tally, metadata)

    try:
        await asyncio.gather(*(worker() for _ in range(8)))
    finally:
        for channel in channels.values():
            await channel.close()


async def _call(
    channel: grpc.aio.Channel,
    method: str,
    request: bytes,
    tally: Tally,
    metadata: tuple[tuple[str, str], ...] = (),
) -> None:
    """Make a call and count it; a push or plan of which nothing is stored is refused too."""
    call: Any = channel.unary_unary(method)
    try:
        answer = await call(request, timeout=CALL_SECONDS, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        # The collector refuses streams of a connection that has too many.
        is_refused_stream = REFUSED_STREAM in (error.details() or "")
        outcome = "REFUSED_STREAM" if is_refused_stream else error.code().name
        tally.add(outcome, refused=is_refused_stream or error.code() in REFUSALS)
        return
    is_refused = (method == PUSH and not fleet_pb2.PushResponse.FromString(answer).stored) or (
        method == APPLY and bool(operations_pb2.ApplyPlanResponse.FromString(answer).problems)
    )
    tally.add("refused" if is_refused else "accepted", refused=is_refused)


def _channel(spec: AttackSpec, credential: str) -> grpc.aio.Channel:
    """Open a channel that can send messages of any size."""
    trust = grpc.ssl_channel_credentials(root_certificates=spec.roots.encode())
    if credential:
        trust = grpc.composite_channel_credentials(trust, grpc.access_token_call_credentials(credential))
    options: list[tuple[str, int | str]] = [
        ("grpc.max_send_message_length", -1),
        ("grpc.ssl_target_name_override", spec.server_name),
        ("grpc.enable_http_proxy", 0),
    ]
    return grpc.aio.secure_channel(spec.grpc, trust, options=options)


def _source(number: int) -> str:
    return SOURCES[number % len(SOURCES)]


def _now_at() -> int:
    return time.time_ns() // 1000


async def _run(spec: AttackSpec) -> Tally:
    tally, begun = Tally(), time.monotonic()
    await ATTACKS[spec.attack](spec, tally)
    tally.seconds = time.monotonic() - begun
    return tally


def main() -> None:
    """Run the attack of stdin, and print what became of it."""
    os.nice(19)
    spec = AttackSpec(**json.loads(sys.stdin.readline()))
    sys.stdout.write(json.dumps(asdict(asyncio.run(_run(spec)))) + "\n")


if __name__ == "__main__":
    main()
