"""Authentication of calls, and guards around their handlers.

1. A request is read after its caller is authenticated, one at a time, within a time and a size limit, and holding a
   slot. Until then gRPC buffers no more of it than the first window of the stream.
2. Compressed requests are inflated here, within the size limit: gRPC itself inflates a message before it checks any
   size, and 8 MB of gzip become 8 GB. Its decompression is therefore disabled (`isochrone_common.channel`). Compressed
   content is recognised by its first bytes: no message begins with the header of gzip, nor with that of zlib as long as
   no request has a field 15 (tests/unit/collector/grpc_api/test_guards.py). gzip ends with the size of what
   it contains (RFC 1952, section 2.3.1). One that states more than the limit is refused without being inflated, and any
   other is inflated up to that size. Large results are made one at a time, in a thread, so that they leave the other
   cores to pushes.
3. A stream of responses ends within seconds after its credential was revoked or has expired. A stream of requests, too;
   they are small and hold no slot.

Pushes, other calls with a credential, and those without one have separate slots. A call without a credential is
counted by its address, and has one slot while its request arrives and another while it is answered. The requests of
health checks have slots of their own, and their answers need none. Callers without a valid credential that call too
often are refused after a pause, before anything of their request is read.
"""

import asyncio
import inspect
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import grpc
import grpc.aio

from isochrone_collector import errors
from isochrone_collector.auth import limits
from isochrone_collector.auth.authenticator import MAX_WATCHES, Authenticator, Metadata, Principal, while_valid
from isochrone_collector.grpc_api import discovery
from isochrone_collector.grpc_api.responses import Context, decline, refuse, status_of
from isochrone_collector.store import audit
from isochrone_collector.store.audit import Actor
from isochrone_common.channel import MAX_MESSAGE_BYTES
from isochrone_wire.operations import Role
from isochrone_wire.text import shortened

INLINE_BYTES = 256 << 10
"""The size of a message up to which it is inflated in the event loop, which takes a millisecond."""

_GZIP = b"\x1f\x8b"
_ZLIB = 0x78
# The header of zlib is a multiple of this.
_ZLIB_CHECK = 31
# zlib detects which of the two headers it reads.
_EITHER_HEADER = zlib.MAX_WBITS | 32
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="inflating")


def is_compressed(content: bytes) -> bool:
    """Return whether the content is gzip (gRPC's `gzip`) or zlib (gRPC's `deflate`)."""
    if len(content) < len(_GZIP):
        return False
    return content.startswith(_GZIP) or (content[0] == _ZLIB and int.from_bytes(content[:2], "big") % _ZLIB_CHECK == 0)


async def inflate_beside_loop(content: bytes, max_bytes: int) -> bytes:
    """Inflate as `inflate` does, in a thread if the result is large; content that is not compressed costs nothing."""
    if not is_compressed(content):
        return _within(content, max_bytes)
    most = _most_bytes(content, max_bytes)
    try:
        return inflate(content, min(most, INLINE_BYTES))
    except errors.MessageTooLarge:
        # Small content may be a large message, so the size of the result decides.
        if most <= INLINE_BYTES:
            raise
    return await asyncio.get_running_loop().run_in_executor(_THREAD, inflate, content, max_bytes)


def inflate(content: bytes, max_bytes: int) -> bytes:
    """Return the content, inflated to at most `max_bytes` + 1 bytes. Raises `MessageTooLarge` and `BadRequest`."""
    if not is_compressed(content):
        return _within(content, max_bytes)
    most = _most_bytes(content, max_bytes)
    inflater = zlib.decompressobj(_EITHER_HEADER)
    try:
        inflated = inflater.decompress(content, most + 1)
    except zlib.error as error:
        raise errors.BadRequest(f"cannot inflate the request: {error}") from None
    _within(inflated, max_bytes)
    if not inflater.eof or inflater.unused_data:
        raise errors.BadRequest("cannot inflate the request: it is truncated, or has extra bytes")
    return inflated


def _most_bytes(content: bytes, max_bytes: int) -> int:
    """Return how many bytes compressed content may become. Raises `MessageTooLarge` if gzip states more."""
    if not content.startswith(_GZIP):
        return max_bytes
    stated = int.from_bytes(content[-4:], "little")
    if stated > max_bytes:
        raise _too_large(max_bytes)
    return stated


def _within(content: bytes, max_bytes: int) -> bytes:
    if len(content) > max_bytes:
        raise _too_large(max_bytes)
    return content


def _too_large(max_bytes: int) -> errors.MessageTooLarge:
    # Agents recognise gRPC's own words, and split the batch.
    return errors.MessageTooLarge(f"the request is larger than max: more than {max_bytes} bytes")


# The stubs declare a generic handler class; at run time it is not generic.
Handler = Any

MAX_OPEN_MESSAGE_BYTES = 8 << 10
"""Maximum size of a request without a credential: joining, health, reflection."""

MAX_STREAMED_MESSAGE_BYTES = 256 << 10
"""Maximum size of each request of a stream. Envoy's first one lists its extensions."""

# Of one address.
_OPEN_PER_SECOND = 50.0
_READ_S = 30.0
_TALK_OPEN_S = 30.0
_HEALTH = "/grpc.health.v1.Health/"
_PUSHES = "/isochrone.v1.Fleet/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a method, without `principal` if it needs no credential. `recheck` raises once that is invalid."""

    method: str
    principal: Principal | None = None
    recheck: Callable[[], Awaitable[object]] | None = None

    @property
    def is_open(self) -> bool:
        """True if the method needs no credential."""
        return self.principal is None

    @property
    def is_health(self) -> bool:
        """True for a health check."""
        return self.method.startswith(_HEALTH)

    def key(self, context: Context) -> str | None:
        """Return the key by which its calls are counted; `None` without limit."""
        return self.principal.key if self.principal else limits.address_key(context.peer())

    def actor(self, context: Context) -> Actor:
        """Return the caller as the audit trail names it."""
        name = self.principal.name if self.principal else ""
        return Actor(principal=name, address=limits.host_of(context.peer()))


class CallGuard:
    """The limits of one server, and the handlers that enforce them. A call that waits reads nothing."""

    def __init__(self, *, on_admitted: Callable[[str], None] = lambda _peer: None) -> None:
        self._on_admitted = on_admitted
        self._pushes = limits.CallSlots(total=128, each=8, waiting=1_000)
        self._questions = limits.CallSlots(total=64, each=8)
        self._open = limits.CallSlots(total=8, each=4)
        self._talks = limits.CallSlots(total=4, each=2)
        # gRPC refuses a request of more than 8 MiB by its stated length; what is shorter is received. Large requests of
        # one caller arrive two at a time: the ones of all other callers wait for those that arrive at once.
        self._read_pushes = limits.CallSlots(total=128, each=2)
        self._read_questions = limits.CallSlots(total=64, each=2)
        self._arrivals = limits.ArrivalSlots(total=24, each=2)
        self._health_arrivals = limits.ArrivalSlots(total=12, each=4)
        self._open_rate = limits.BucketPerKey(per_second=_OPEN_PER_SECOND, burst=4 * _OPEN_PER_SECOND)
        self._streams: dict[str, limits.StreamCounts] = {}
        self._pause = limits.RefusalPause()

    def guarded(self, handler: Handler, caller: Caller) -> Handler:
        """Return a handler that reads one request under guard, or each of a stream, and calls `handler` with it."""
        make, behaviour = (
            (grpc.stream_stream_rpc_method_handler, self._converse if handler.request_streaming else self._stream)
            if handler.response_streaming
            else (grpc.stream_unary_rpc_method_handler, self._answer)
        )

        async def call(_requests: object, context: Context) -> object:
            is_joining = caller.is_open and not caller.is_health and not handler.request_streaming
            if is_joining and not self._open_rate.take(limits.address_key(context.peer()), time.monotonic_ns() // 1000):
                refusal = errors.ResourceExhausted("too many joins from this address; try again in a moment")
                await self._decline(context, refusal)
                return None
            if not caller.is_open:
                self._on_admitted(context.peer())
            try:
                with audit.acting(caller.actor(context)):
                    return await self._refused_on_error(caller, context, behaviour(handler, caller, context))
            except grpc.aio.AbortError as error:
                # gRPC keeps the exception with the call. Its traceback refers to the call: the stream would stay open
                # for HTTP/2 until garbage is collected, and after a hundred of them the connection takes no more calls.
                error.__traceback__ = error.__context__ = error.__cause__ = None
                return None

        return make(call, response_serializer=handler.response_serializer)

    def refusing(self, error: errors.CollectorError) -> Handler:
        """Return a handler that refuses a call without reading its request. It is one of streams, whatever the method
        is: others end with an empty message, and a refusal consists of trailers only.
        """

        async def refuse_call(_requests: object, context: Context) -> None:
            await self._decline(context, error)

        return grpc.stream_stream_rpc_method_handler(refuse_call)

    async def _decline(self, context: Context, error: errors.CollectorError) -> None:
        if isinstance(error, errors.ResourceExhausted):
            await self._pause.wait()
        decline(context, error)

    async def _refused_on_error(self, caller: Caller, context: Context, work: Awaitable[object]) -> object:
        try:
            return await work
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # every error has a status
            if caller.is_open and isinstance(error, errors.ResourceExhausted):
                await self._pause.wait()
            await refuse(context, error)
            raise AssertionError("abort raises") from error

    async def _answer(self, handler: Handler, caller: Caller, context: Context) -> object:
        async with self._received(handler, caller, context) as request:
            return await handler.unary_unary(request, context)

    async def _stream(self, handler: Handler, caller: Caller, context: Context) -> None:
        with self._counts_of(caller).hold(caller.key(context)):
            async with self._received(handler, caller, context) as request:
                pass
            await while_valid(_sent(handler.unary_stream, request, context), caller.recheck)

    async def _converse(self, handler: Handler, caller: Caller, context: Context) -> None:
        if caller.recheck is None:
            # Reflection, the only service without a credential that has a stream of requests: a short talk.
            try:
                async with self._talks.hold(caller.key(context)), asyncio.timeout(_TALK_OPEN_S):
                    requests = _requests(handler, context, MAX_OPEN_MESSAGE_BYTES)
                    await _sent(handler.stream_stream, requests, context)
            except TimeoutError:
                raise errors.DeadlineExceeded(f"the call took longer than {_TALK_OPEN_S:g} s") from None
            return
        with self._counts_of(caller).hold(caller.key(context)):
            requests = _requests(handler, context, MAX_STREAMED_MESSAGE_BYTES)
            await while_valid(_sent(handler.stream_stream, requests, context), caller.recheck)

    @asynccontextmanager
    async def _received(self, handler: Handler, caller: Caller, context: Context) -> AsyncIterator[object]:
        """Read and decode the request, and hold a slot within the block. Raises `CollectorError`."""
        if caller.is_open:
            async with self._received_openly(handler, caller, context) as request:
                yield request
            return
        is_push = caller.method.startswith(_PUSHES)
        slots, reads = (self._pushes, self._read_pushes) if is_push else (self._questions, self._read_questions)
        async with slots.hold(key := caller.key(context)):
            async with reads.hold(key):
                request = await _decoded(handler, await _read(context), MAX_MESSAGE_BYTES)
            yield request

    @asynccontextmanager
    async def _received_openly(self, handler: Handler, caller: Caller, context: Context) -> AsyncIterator[object]:
        key = limits.address_key(context.peer())
        async with (self._health_arrivals if caller.is_health else self._arrivals).hold(key):
            request = await _decoded(handler, await context.read(), MAX_OPEN_MESSAGE_BYTES)
        async with self._open.hold(None if caller.is_health else key):
            yield request

    def _counts_of(self, caller: Caller) -> limits.StreamCounts:
        return self._streams.setdefault(
            caller.method, limits.StreamCounts(each=STREAMS_OF.get(caller.method, _STREAMS))
        )


_STREAMS = 16
STREAMS_OF = {**dict.fromkeys(discovery.METHODS, MAX_WATCHES), "/grpc.health.v1.Health/Watch": 64}
"""Maximum number of streams of one caller, by method; 16 of any other method."""


async def _requests(handler: Handler, context: Context, max_bytes: int) -> AsyncIterator[object]:
    while (content := await context.read()) is not grpc.aio.EOF:
        yield await _decoded(handler, content, max_bytes)


async def _read(context: Context) -> object:
    try:
        async with asyncio.timeout(_READ_S):
            return await context.read()
    except TimeoutError:
        raise errors.DeadlineExceeded("the request did not arrive in time") from None


async def _decoded(handler: Handler, content: object, max_bytes: int) -> object:
    """Inflate and decode a request. Raises `BadRequest` and `MessageTooLarge`."""
    if not isinstance(content, bytes):
        # gRPC's end of the stream.
        raise errors.BadRequest("the call has no request")
    inflated = await inflate_beside_loop(content, max_bytes)
    try:
        return inflated if handler.request_deserializer is None else handler.request_deserializer(inflated)
    except errors.CollectorError:
        raise
    except Exception as error:
        # Errors of protobuf differ by implementation.
        raise errors.BadRequest("cannot decode the request") from error


async def _sent(behaviour: Callable[..., Any], request: object, context: Context) -> None:
    """Send the responses of a handler that yields them, or run one that sends them itself."""
    responses = behaviour(request, context)
    if not inspect.isasyncgen(responses):
        await responses
        return
    async with aclosing(responses):
        async for response in responses:
            await context.write(response)


_OURS = ("/isochrone.", "/envoy.")

# Service or method → the roles that may call it; `None` for every caller.
ROLES_OF: dict[str, tuple[Role, ...] | None] = {
    "/isochrone.v1.Fleet/Join": None,
    "/isochrone.v1.Fleet/Renew": tuple(Role),
    "/isochrone.v1.Fleet": (Role.VANTAGE,),
    "/isochrone.v1.Operations/ListVantages": (Role.READER, Role.OPERATOR),
    "/isochrone.v1.Operations": (Role.OPERATOR,),
    **dict.fromkeys(discovery.METHODS, (Role.READER, Role.OPERATOR)),
}


@dataclass(eq=False)
class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Authenticates calls of our services before their request is read; `on_refused` gets method and status, and
    `on_admitted` the gRPC peer of a call with a credential.
    """

    authenticator: Authenticator
    _: KW_ONLY
    on_refused: Callable[[str, str], None]
    on_admitted: Callable[[str], None] = lambda _peer: None

    def __post_init__(self) -> None:
        self._guard = CallGuard(on_admitted=self.on_admitted)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the guarded handler of the call, or one that refuses it."""
        handler = await continuation(handler_call_details)
        if handler is None:
            # gRPC itself answers UNIMPLEMENTED, which is right for a newer client.
            return handler
        method = handler_call_details.method
        try:
            caller = await self._caller(method, handler_call_details.invocation_metadata)
        except errors.CollectorError as error:
            status = status_of(error)
            self.on_refused(method, status.name)
            limits.REFUSALS.write(method=method, status=status.name, reason=shortened(str(error)))
            return self._guard.refusing(error)
        return self._guard.guarded(handler, caller)

    async def _caller(self, method: str, metadata: Metadata) -> Caller:
        roles = roles_of(method)
        if roles is None:
            return Caller(method=method)
        authenticate = partial(self.authenticator.authenticate, metadata, roles)
        return Caller(method=method, principal=await authenticate(), recheck=authenticate)


def roles_of(method: str) -> tuple[Role, ...] | None:
    """Return the roles that may call `/package.Service/Method`; `None` for all. Raises `Forbidden` without entry."""
    if not method.startswith(_OURS):
        return None
    for key in (method, method.rpartition("/")[0]):
        if key in ROLES_OF:
            return ROLES_OF[key]
    raise errors.Forbidden(f"{method} has no roles that may call it")
