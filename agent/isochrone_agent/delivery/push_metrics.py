"""What a channel to the collector carried: pushes by the status they ended with, and what the newest one said of us.

It stands between whoever pushes and the channel, so that neither has to know of it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import grpc.aio

from isochrone_wire import codec
from isochrone_wire.model import Vitals
from isochrone_wire.v1 import fleet_pb2

_PUSH = "/isochrone.v1.Fleet/Push"


class PushMetrics:
    """Give `channel` to stubs of unary calls. `pushes` counts by gRPC status."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._inner = channel
        self._newest: fleet_pb2.PushRequest | bytes = b""
        self._counting: set[asyncio.Task[None]] = set()
        self.pushes: Counter[str] = Counter()

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel, with somebody counting."""
        return cast(grpc.aio.Channel, self)

    @property
    def vitals(self) -> Vitals:
        """What the newest push said of this agent. Read seldom, so it is taken out of the push only now."""
        newest = self._newest
        request = fleet_pb2.PushRequest.FromString(newest) if isinstance(newest, bytes) else newest
        return codec.decode(Vitals, request.vitals)

    def unary_unary(self, method: str, *arguments: Any, **named: Any) -> Callable[..., Any]:  # noqa: ANN401  # gRPC's signature
        """As of a channel."""
        inner: Callable[..., Any] = self._inner.unary_unary(method, *arguments, **named)
        if method != _PUSH:
            return inner

        def push(request: fleet_pb2.PushRequest | bytes, **more: Any) -> Any:  # noqa: ANN401  # as above
            self._newest = request
            call = inner(request, **more)
            task = asyncio.get_running_loop().create_task(self._count(call))
            self._counting.add(task)
            task.add_done_callback(self._counting.discard)
            return call

        return push

    async def _count(self, call: grpc.aio.Call) -> None:
        self.pushes[(await call.code()).name] += 1
