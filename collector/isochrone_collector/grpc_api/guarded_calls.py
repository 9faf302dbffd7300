"""Guards around the handlers of calls.

1. A request is read after its caller is authenticated, one at a time, within a time and a size limit, and holding a
   slot. Until then gRPC buffers no more of it than the first window of the stream.
2. Compressed requests are inflated here, within the size limit.
3. A stream of responses ends within seconds after its credential was revoked or has expired.

The slots of callers without a credential are separate from those of the others, and counted per address.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import grpc.aio

from isochrone_collector.auth.call_limits import CallSlots, StreamCounts, address_key
from isochrone_collector.auth.stream_access import MAX_WATCHES, while_valid
from isochrone_collector.errors import BadRequest, CollectorError
from isochrone_collector.grpc_api.compressed_message import inflate, is_compressed
from isochrone_collector.grpc_api.responses import Context, refuse
from isochrone_wire.grpc_options import MAX_MESSAGE_BYTES

# The stubs declare a generic handler class; at run time it is not generic.
Handler = Any

MAX_OPEN_MESSAGE_BYTES = 64 << 10
"""Maximum size of a request without a credential: joining, health, reflection."""

_READ_S = 30.0
_READ_OPEN_S = 5.0
_TALK_OPEN_S = 30.0
# Larger messages are inflated in a thread.
_INFLATE_INLINE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a call: `key` counts its calls (`None` without limit), and `recheck` raises once its credential is
    no longer valid. `is_open` if the method needs no credential; then the address is the key.
    """

    method: str
    key: str | None = None
    recheck: Callable[[], Awaitable[object]] | None = None
    is_open: bool = False


class CallGuard:
    """The limits of one server, and the handlers that enforce them. A call that waits reads nothing."""

    def __init__(self) -> None:
        self._slots = CallSlots(total=128, each=8)
        self._open_slots: dict[str, CallSlots] = {}
        self._streams: dict[str, StreamCounts] = {}

    def guarded(self, handler: Handler, caller: Caller) -> Handler:
        """Return a handler that reads one request under guard, and calls `handler` with it."""
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                partial(self._talk, handler, caller),
                request_deserializer=partial(_deserialized, handler.request_deserializer, MAX_OPEN_MESSAGE_BYTES),
                response_serializer=handler.response_serializer,
            )
        make, behaviour = (
            (grpc.stream_stream_rpc_method_handler, self._stream)
            if handler.response_streaming
            else (grpc.stream_unary_rpc_method_handler, self._answer)
        )

        async def call(_requests: object, context: Context) -> object:
            try:
                return await _refused_on_error(context, behaviour(handler, caller, context))
            except grpc.aio.AbortError as error:
                # gRPC keeps the exception with the call. Its traceback refers to the call: the stream would stay open
                # for HTTP/2 until garbage is collected, and after a hundred of them the connection takes no more calls.
                error.__traceback__ = error.__context__ = error.__cause__ = None
                return None

        return make(call, response_serializer=handler.response_serializer)

    async def _answer(self, handler: Handler, caller: Caller, context: Context) -> object:
        async with self._slots_of(caller).hold(_key(caller, context)):
            return await handler.unary_unary(await _read(handler, caller, context), context)

    async def _stream(self, handler: Handler, caller: Caller, context: Context) -> None:
        key = _key(caller, context)
        with self._counts_of(caller).hold(key):
            async with self._slots_of(caller).hold(key):
                request = await _read(handler, caller, context)
            await while_valid(_sent(handler.unary_stream, request, context), caller.recheck)

    async def _talk(
        self, handler: Handler, caller: Caller, requests: AsyncIterator[object], context: Context
    ) -> AsyncIterator[object]:
        """Reflection, the only service with a stream of requests: a short talk."""
        async with self._slots_of(caller).hold(_key(caller, context)), asyncio.timeout(_TALK_OPEN_S):
            async for response in handler.stream_stream(requests, context):
                yield response

    def _slots_of(self, caller: Caller) -> CallSlots:
        if not caller.is_open:
            return self._slots
        return self._open_slots.setdefault(caller.method, CallSlots(total=8, each=4))

    def _counts_of(self, caller: Caller) -> StreamCounts:
        return self._streams.setdefault(caller.method, StreamCounts(each=STREAMS_OF.get(caller.method, _STREAMS)))


_STREAMS = 16
STREAMS_OF = {"/isochrone.v1.Routes/WatchTables": MAX_WATCHES, "/grpc.health.v1.Health/Watch": 64}
"""Maximum number of streams of one caller, by method; 16 of any other method."""


async def _refused_on_error(context: Context, work: Awaitable[object]) -> object:
    try:
        return await work
    except CollectorError as error:
        await refuse(context, error)
        raise AssertionError("abort raises") from error


def refusing(status: grpc.StatusCode, reason: str) -> Handler:
    """Return a handler that refuses a call without reading its request."""

    async def refuse_call(_requests: object, context: Context) -> bytes:
        # See `CallGuard.guarded` for the disadvantage of `abort`.
        context.set_code(status)
        context.set_details(reason)
        return b""

    return grpc.stream_unary_rpc_method_handler(refuse_call)


def _key(caller: Caller, context: Context) -> str | None:
    return address_key(context.peer()) if caller.is_open else caller.key


async def _read(handler: Handler, caller: Caller, context: Context) -> object:
    """Read and decode the request. Raises `BadRequest` and `MessageTooLarge`."""
    try:
        async with asyncio.timeout(_READ_OPEN_S if caller.is_open else _READ_S):
            content = await context.read()
    except TimeoutError:
        raise BadRequest("the request did not arrive in time") from None
    if content is grpc.aio.EOF:
        raise BadRequest("the call has no request")
    max_bytes = MAX_OPEN_MESSAGE_BYTES if caller.is_open else MAX_MESSAGE_BYTES
    if len(content) > _INFLATE_INLINE_BYTES and is_compressed(content):
        content = await asyncio.to_thread(inflate, content, max_bytes)
    return _deserialized(handler.request_deserializer, max_bytes, content)


def _deserialized(deserializer: Callable[[bytes], object] | None, max_bytes: int, content: bytes) -> object:
    inflated = inflate(content, max_bytes)
    if deserializer is None:
        return inflated
    try:
        return deserializer(inflated)
    except CollectorError:
        raise
    except Exception as error:
        # Errors of protobuf differ by implementation.
        raise BadRequest("cannot decode the request") from error


async def _sent(behaviour: Callable[..., Any], request: object, context: Context) -> None:
    """Send the responses of a handler that yields them, or run one that sends them itself."""
    responses = behaviour(request, context)
    if not inspect.isasyncgen(responses):
        await responses
        return
    async with aclosing(responses):
        async for response in responses:
            await context.write(response)
