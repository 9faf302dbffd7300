"""Push counts by gRPC status, and the heartbeat of the newest push, for the agent's metrics."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from isochrone_wire import codec
from isochrone_wire.model import Heartbeat
from isochrone_wire.v1 import fleet_pb2

# As bytes, although grpc's type stubs promise a string.
_PUSH: Any = b"/isochrone.v1.Fleet/Push"


class PushMetrics(grpc.aio.UnaryUnaryClientInterceptor):
    """A client interceptor. `pushes` counts the pushes that ended, by gRPC status."""

    def __init__(self) -> None:
        self._newest = b""
        self.pushes: Counter[str] = Counter()

    @property
    def heartbeat(self) -> Heartbeat:
        """The heartbeat of the newest push, even if it failed. Decoded on demand: scrapes are rarer than pushes."""
        return codec.decode(Heartbeat, fleet_pb2.PushRequest.FromString(self._newest).heartbeat)

    async def intercept_unary_unary(
        self,
        continuation: Callable[[grpc.aio.ClientCallDetails, Any], Awaitable[Any]],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,  # noqa: ANN401  # gRPC's signature
    ) -> Any:  # noqa: ANN401  # as above
        """Make the call; count it when it has ended, if it is a push."""
        call = await continuation(client_call_details, request)
        if client_call_details.method == _PUSH:
            self._newest = request
            try:
                await call
            finally:
                self.pushes[(await call.code()).name] += 1
        return call
