"""Prometheus counters of pushes, counted in a gRPC interceptor. Pushes that the auth interceptor refuses count too."""

from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from isochrone_collector.grpc_api.responses import Context
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_wire.model import SECOND_US
from isochrone_wire.v1 import fleet_pb2

BOUNDS_US = (1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000)
"""Upper bounds, inclusive, of the classes of durations, in microseconds; the last class has none."""

_PUSH = "/isochrone.v1.Fleet/Push"
_UNKNOWN = "UNKNOWN"

# Without this the library adds a series `…_created` to each counter.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library annotates all but this

if TYPE_CHECKING:
    _Handler = grpc.RpcMethodHandler[Any, Any]


class PushMetrics(grpc.aio.ServerInterceptor):
    """Interceptor that counts pushes in `registry`; `clock` returns microseconds since the epoch."""

    def __init__(self, *, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.registry = registry = CollectorRegistry()
        self._stored = Counter("isochrone_samples_stored", "Samples committed.", registry=registry)
        self._duplicate = Counter(
            "isochrone_samples_duplicate", "Samples acknowledged that were stored before.", registry=registry
        )
        self._rejected = Counter("isochrone_samples_rejected", "Samples rejected.", ["reason"], registry=registry)
        self._pushes = Counter("isochrone_pushes", "Pushes answered, by gRPC status.", ["status"], registry=registry)
        self._durations = Histogram(
            "isochrone_push_duration_seconds",
            "From the request to the reply, commit included.",
            buckets=[us / SECOND_US for us in BOUNDS_US],
            registry=registry,
        )
        claims = Counter(
            "isochrone_ledger_claims", "Batches by whether the ledger knew them.", ["result"], registry=registry
        )
        self._new, self._known = claims.labels("new"), claims.labels("known")
        self._last_push = Gauge(
            "isochrone_vantage_last_push_timestamp_seconds",
            "Last answer to a vantage, by the collector's clock.",
            ["vantage"],
            registry=registry,
        )

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "_Handler | None":
        """Return the handler of the call; for a push, one that counts."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None or handler_call_details.method != _PUSH:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            self._counted(handler.unary_unary),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def count_refused(self, method: str, status: str) -> None:
        """Count a call that was refused before its request was read, if it is a push."""
        if method == _PUSH:
            self.count_push(status, took_us=0)

    def count_push(self, status: str, *, took_us: int) -> None:
        """Count a push that ended with a gRPC status."""
        self._pushes.labels(status).inc()
        self._durations.observe(took_us / SECOND_US)

    def count_receipt(self, vantage: str, receipt: fleet_pb2.PushResponse) -> None:
        """Count what a receipt reports. A rejection counts under the part of its reason before the colon."""
        self._stored.inc(receipt.stored)
        self._duplicate.inc(receipt.duplicate)
        for rejection in receipt.rejections:
            self._rejected.labels(rejection.reason.partition(":")[0]).inc()
        if receipt.duplicate:
            self._known.inc()
        elif receipt.stored or receipt.rejections:
            self._new.inc()
        self._last_push.labels(vantage).set(self._clock() / SECOND_US)

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
                self.count_push(status, took_us=(monotonic_ns() - started_ns) // 1000)
            assert isinstance(request, RawPush)
            assert isinstance(response, fleet_pb2.PushResponse)
            self.count_receipt(request.envelope.vantage.name, response)
            return response

        return counted


def _name(code: object) -> str:
    return code.name if isinstance(code, grpc.StatusCode) else _UNKNOWN
