from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Any

import grpc
import grpc.aio
from google.protobuf import message_factory
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from isochrone_collector.auth.authenticator import Authenticator, bearer_credential
from isochrone_collector.auth.enrolment import Enrolment
from isochrone_collector.auth.limits import address_key
from isochrone_collector.grpc_api.responses import STATUS_OF, Context
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.plans.service import Plans
from isochrone_wire import codec
from isochrone_wire.model import SECOND_US, Vantage
from isochrone_wire.operations import Renewed
from isochrone_wire.v1 import fleet_pb2, operations_pb2

BOUNDS_US = (1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000)
"""Upper bounds, inclusive, of the classes of durations, in microseconds; the last class has none."""

_PUSH = "/isochrone.v1.Fleet/Push"
_UNKNOWN = "UNKNOWN"

# Without this the library adds a series `…_created` to each counter.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library annotates all but this


class PushMetrics:
    """The counters, in `registry`; `clock` returns microseconds since the epoch."""

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
        self._stopped = Gauge(
            "isochrone_vantage_stopped_timestamp_seconds",
            "Last answer to an agent that said that it stops; equal to the last push until the agent is heard again.",
            ["vantage"],
            registry=registry,
        )

    def count_refused(self, method: str, status: str) -> None:
        """Count a call that was refused before its request was read, if it is a push."""
        if method == _PUSH:
            self.count_push(status, took_us=0)

    def count_push(self, status: str, *, took_us: int) -> None:
        """Count a push that ended with a gRPC status."""
        self._pushes.labels(status).inc()
        self._durations.observe(took_us / SECOND_US)

    def count_receipt(self, vantage: str, receipt: fleet_pb2.Receipt, *, stopped: bool = False) -> None:
        """Count what a receipt reports. A rejection counts under the part of its reason before the colon."""
        self._stored.inc(receipt.stored)
        self._duplicate.inc(receipt.duplicate)
        for rejection in receipt.rejections:
            self._rejected.labels(rejection.reason.partition(":")[0]).inc()
        if receipt.duplicate:
            self._known.inc()
        elif receipt.stored or receipt.rejections:
            self._new.inc()
        answered_at = self._clock() / SECOND_US
        self._last_push.labels(vantage).set(answered_at)
        if stopped:
            self._stopped.labels(vantage).set(answered_at)

    def counted(self, push: Callable[..., Any]) -> Callable[..., Any]:
        """Return the handler of pushes, which counts them."""

        async def counted(request: object, context: Context) -> object:
            started_ns, status = monotonic_ns(), _UNKNOWN
            try:
                response = await push(request, context)
                status = grpc.StatusCode.OK.name
            except Exception as error:
                status = STATUS_OF.get(type(error), grpc.StatusCode.INTERNAL).name
                raise
            finally:
                self.count_push(status, took_us=(monotonic_ns() - started_ns) // 1000)
            assert isinstance(request, RawPush)
            assert isinstance(response, fleet_pb2.Receipt)
            envelope = request.envelope
            self.count_receipt(envelope.vantage.name, response, stopped=envelope.heartbeat.stopped)
            return response

        return counted


@dataclass(eq=False, kw_only=True)
class FleetService:
    """Joining, renewal, plans and pushes; `certificates` and `fingerprints` are those of now and of the next pair."""

    ingest: Ingest
    plans: Plans
    enrolment: Enrolment
    authenticator: Authenticator
    clock: Callable[[], int]
    certificates: Callable[[], Sequence[str]] = tuple
    fingerprints: Callable[[], Sequence[bytes]] = tuple
    http_port: int = 0

    async def join(self, request: fleet_pb2.JoinRequest, context: Context) -> fleet_pb2.Joined:
        """Exchange a one-time token for a credential."""
        # The guard refuses a caller that joins too often, after its slot is free for others.
        joined = await self.enrolment.join(
            request.token, client_key=request.client_key, address=address_key(context.peer()), version=request.version
        )
        return codec.encode(replace(joined, http_port=self.http_port))  # type: ignore[no-any-return]  # the codec's table says which message it is

    async def renew(self, request: fleet_pb2.RenewRequest, context: Context) -> fleet_pb2.Renewed:
        """Return the successor of the caller's credential if that is requested, and the certificates."""
        renewed = Renewed()
        if request.credential:
            credential = bearer_credential(context.invocation_metadata())
            renewed = await self.enrolment.renew(credential)
        renewed = replace(renewed, certificates=tuple(self.certificates()), http_port=self.http_port)
        return codec.encode(renewed)  # type: ignore[no-any-return]  # the codec's table says which message it is

    async def fetch_plan(self, request: fleet_pb2.FetchPlanRequest, context: Context) -> fleet_pb2.FetchPlanResponse:
        """Return the plan in force, absent when the agent runs it already."""
        vantage = codec.decode(Vantage, request.vantage)
        await self.authenticator.require_vantage(context.invocation_metadata(), vantage)
        if_version = request.if_version if request.HasField("if_version") else None
        plan = self.plans.fetch(if_version, request.if_content_hash)
        return fleet_pb2.FetchPlanResponse(plan=codec.encode(plan) if plan else None)

    async def push(self, request: RawPush, context: Context) -> fleet_pb2.Receipt:
        """Store one batch; the reply means that it is committed."""
        received_at, vantage = self.clock(), codec.decode(Vantage, request.envelope.vantage)
        await self.authenticator.require_vantage(context.invocation_metadata(), vantage)
        receipt = await self.ingest.push(request, received_at)
        response: fleet_pb2.Receipt = codec.encode(receipt)
        response.fingerprints.extend(self.fingerprints())
        return response


Work = Callable[..., Awaitable[object]]
"""The work of a method for operators: its arguments are the fields of the request, its result is the answer's value."""


def _answering(work: Work) -> Callable[[Message, Context], Awaitable[Message]]:
    async def handle(request: Message, _context: Context) -> Message:
        fields = request.DESCRIPTOR.fields
        given = {one.name: getattr(request, one.name) for one in fields}
        given |= {one.name: None for one in fields if one.has_presence and not request.HasField(one.name)}
        answer: Message = codec.encode(await work(**given))
        return answer

    return handle


def add_to_server(
    server: grpc.aio.Server, fleet: FleetService, operations: Mapping[str, Work], metrics: PushMetrics
) -> list[str]:
    """Add the services to a server, and return their names. Pushes stay raw: their samples are decoded later."""
    message = message_factory.GetMessageClass
    works: Mapping[str, Callable[[Any, Context], Awaitable[Message]]] = {
        "Join": fleet.join,
        "Renew": fleet.renew,
        "FetchPlan": fleet.fetch_plan,
        "Push": metrics.counted(fleet.push),
        **{name: _answering(work) for name, work in operations.items()},
    }
    services = [next(iter(module.DESCRIPTOR.services_by_name.values())) for module in (fleet_pb2, operations_pb2)]
    for service in services:
        handlers = {
            method.name: grpc.unary_unary_rpc_method_handler(
                works[method.name],
                request_deserializer=RawPush if method.name == "Push" else message(method.input_type).FromString,
                response_serializer=message(method.output_type).SerializeToString,
            )
            for method in service.methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
    return [service.full_name for service in services]
