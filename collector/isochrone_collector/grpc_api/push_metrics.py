"""Counts pushes where they come in, whoever answers them: every one ends in the tally, also one that was refused."""

from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from isochrone_collector.grpc_api.responses import Context
from isochrone_collector.ingest.push_counters import PushCounters
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_wire.v1 import fleet_pb2

_PUSH = "/isochrone.v1.Fleet/Push"
_UNKNOWN = "UNKNOWN"

if TYPE_CHECKING:
    _Handler = grpc.RpcMethodHandler[Any, Any]


class PushMetrics(grpc.aio.ServerInterceptor):
    """Tells `tally` of every push. Stands before the guard, so that it sees what the guard refuses."""

    def __init__(self, tally: PushCounters, *, clock: Callable[[], int]) -> None:
        self._tally = tally
        self._clock = clock

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "_Handler | None":
        """The handler that was asked for; a push's is one that counts."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None or handler_call_details.method != _PUSH:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            self._counted(handler.unary_unary),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _counted(self, push: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(request: object, context: Context) -> object:
            started_ns, status = monotonic_ns(), _UNKNOWN
            try:
                response = await push(request, context)
                status = grpc.StatusCode.OK.name
            except grpc.aio.AbortError:
                status = _name(context.code())
                raise
            finally:
                self._tally.answered(status, took_us=(monotonic_ns() - started_ns) // 1000)
            self._receipt(request, response)
            return response

        return counted

    def _receipt(self, request: object, response: object) -> None:
        assert isinstance(request, RawPush)
        assert isinstance(response, fleet_pb2.PushResponse)
        self._tally.receipt(
            request.envelope.vantage.name,
            stored=response.stored,
            duplicate=response.duplicate,
            reasons=[rejection.reason for rejection in response.rejections],
            at=self._clock(),
        )


def _name(code: object) -> str:
    return code.name if isinstance(code, grpc.StatusCode) else _UNKNOWN
