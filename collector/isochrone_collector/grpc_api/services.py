"""The gRPC services for agents and for operators."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message

from isochrone_collector.alerting.service import AlertService, SilenceService
from isochrone_collector.auth.authenticator import Authenticator, Metadata, bearer_credential
from isochrone_collector.auth.enrolment import Enrolment
from isochrone_collector.auth.limits import address_key
from isochrone_collector.grpc_api.responses import Context, answer
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.ingest.validation import MAX_INSTANT_AT
from isochrone_collector.plans.service import Plans
from isochrone_collector.queries import fleet
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.store import audit
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire import codec
from isochrone_wire.model import Vantage
from isochrone_wire.operations import AuditTrail, Receipt, Renewed
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc, operations_pb2


class FleetService(fleet_pb2_grpc.FleetServicer):
    """Joining, renewal, plans and pushes. `certificates` returns what the collector presents now and will present next,
    in PEM, and `fingerprints` the SHA-256 of both; `http_port` is the port of HTTP, or 0.
    """

    def __init__(
        self,
        *,
        ingest: Ingest,
        plans: Plans,
        enrolment: Enrolment,
        authenticator: Authenticator,
        clock: Callable[[], int],
        certificates: Callable[[], Sequence[str]] = tuple,
        fingerprints: Callable[[], Sequence[bytes]] = tuple,
        http_port: int = 0,
    ) -> None:
        self._ingest = ingest
        self._plans = plans
        self._enrolment = enrolment
        self._authenticator = authenticator
        self._clock = clock
        self._certificates = certificates
        self._fingerprints = fingerprints
        self._http_port = http_port

    async def Join(  # noqa: N802  # the name in the .proto
        self, request: fleet_pb2.JoinRequest, context: Context
    ) -> fleet_pb2.JoinResponse:
        """Exchange a one-time token for a credential."""
        # The guard refuses a caller that joins too often, after its slot is free for others.
        joined = await self._enrolment.join(
            request.token, client_key=request.client_key, address=address_key(context.peer()), version=request.version
        )
        return codec.encode(replace(joined, http_port=self._http_port))  # type: ignore[no-any-return]  # the codec's table says which message it is

    async def Renew(  # noqa: N802  # the name in the .proto
        self, request: fleet_pb2.RenewRequest, context: Context
    ) -> fleet_pb2.RenewResponse:
        """Return the successor of the caller's credential if that is requested, and the certificates."""
        renewed = Renewed()
        if request.credential:
            credential = bearer_credential(context.invocation_metadata())
            renewed = await self._enrolment.renew(credential)
        renewed = replace(renewed, certificates=tuple(self._certificates()), http_port=self._http_port)
        return codec.encode(renewed)  # type: ignore[no-any-return]  # the codec's table says which message it is

    async def FetchPlan(  # noqa: N802  # the name in the .proto
        self, request: fleet_pb2.FetchPlanRequest, context: Context
    ) -> fleet_pb2.FetchPlanResponse:
        """Return the plan in force, absent when the agent runs it already."""
        await answer(
            context,
            self._authenticator.require_vantage(context.invocation_metadata(), codec.decode(Vantage, request.vantage)),
        )
        if_version = request.if_version if request.HasField("if_version") else None
        plan = self._plans.fetch(if_version, request.if_content_hash)
        return fleet_pb2.FetchPlanResponse(plan=codec.encode(plan) if plan else None)

    async def Push(  # type: ignore[override]  # noqa: N802  # see `add_to_server`; the name in the .proto
        self, request: RawPush, context: Context
    ) -> fleet_pb2.PushResponse:
        """Store one batch; the reply means that it is committed."""
        receipt = await answer(context, self._pushed(request, context.invocation_metadata(), self._clock()))
        response: fleet_pb2.PushResponse = codec.encode(receipt)
        response.fingerprints.extend(self._fingerprints())
        return response

    async def _pushed(self, raw_push: RawPush, metadata: Metadata, received_at: int) -> Receipt:
        # Decoding errors are the caller's fault: raised here, `answer` maps them to INVALID_ARGUMENT.
        await self._authenticator.require_vantage(metadata, codec.decode(Vantage, raw_push.envelope.vantage))
        return await self._ingest.push(raw_push, received_at)


MAX_AUDIT = 10_000
_AUDIT_DEFAULT = 100
Work = Callable[[Any], Awaitable[object]]


class OperationsService:
    """Plans, access, the audit trail, silences, test alerts, and the state of vantages."""

    def __init__(
        self,
        *,
        database: Database,
        plans: Plans,
        enrolment: Enrolment,
        alert_delivery: AlertService,
        silencing: SilenceService,
        query_context: QueryContext,
    ) -> None:
        self._database = database
        self._enrolment = enrolment
        # The work of each method of the .proto, given its request.
        works: Mapping[str, Work] = {
            "ListVantages": lambda _: fleet.vantage_list(query_context),
            "ApplyPlan": lambda request: plans.apply(
                request.document, dry_run=request.dry_run, applied_by=request.applied_by, signature=request.signature
            ),
            "ListPlans": lambda request: plans.history(max(request.limit, 0)),
            "GetPlan": lambda request: plans.document(_given(request, "version")),
            "RollBackPlan": lambda request: plans.roll_back(
                request.to_version, dry_run=request.dry_run, applied_by=request.applied_by, signature=request.signature
            ),
            "Invite": lambda request: enrolment.invite(
                name=request.name,
                role=request.role,
                region=_given(request, "region"),
                expires_us=request.expires_us,
                overlap_us=request.overlap_us,
                rotation=request.rotation,
                lifetime_us=_given(request, "lifetime_us"),
            ),
            "ListAccess": lambda _: enrolment.list_access(),
            "Revoke": self._revoke,
            "RecordRestore": lambda request: enrolment.record_restore(vantages=request.vantages),
            "ListAudit": self._audit,
            "TestAlert": lambda request: alert_delivery.test(request.receiver),
            "AddSilence": lambda request: silencing.add(
                targets=request.targets,
                providers=request.providers,
                regions=request.regions,
                kinds=request.kinds,
                duration_us=request.duration_us,
                reason=request.reason,
            ),
            "AcknowledgeAlert": lambda request: silencing.acknowledge(
                request.id, duration_us=request.duration_us, reason=request.reason
            ),
            "EndSilence": lambda request: silencing.end(request.id),
            "ListSilences": lambda request: silencing.listed(past=request.past),
        }
        self.handlers = {name: _answering(work) for name, work in works.items()}
        """The handlers by the name of the method."""

    async def _revoke(self, request: operations_pb2.RevokeRequest) -> Message:
        return operations_pb2.RevokeResponse(revoked=await self._enrolment.revoke(request.name))

    async def _audit(self, request: operations_pb2.ListAuditRequest) -> AuditTrail:
        async with self._database.connection() as connection:
            found = await audit.entries(
                connection,
                since_at=min(max(request.since_at, 0), MAX_INSTANT_AT),
                principal=request.principal,
                action=request.action,
                most=min(max(request.limit, 0) or _AUDIT_DEFAULT, MAX_AUDIT),
            )
        return AuditTrail(entries=tuple(found))


def _answering(work: Work) -> Callable[[Any, Context], Awaitable[Message]]:
    async def handle(request: object, _context: Context) -> Message:
        found = await work(request)
        return found if isinstance(found, Message) else codec.encode(found)

    return handle


def _given(request: Message, field: str) -> Any:  # noqa: ANN401  # of the type of the field
    """Return the value of an optional field; `None` without one."""
    return getattr(request, field) if request.HasField(field) else None


def add_to_server(server: grpc.aio.Server, fleet: FleetService, operations: OperationsService) -> list[str]:
    """Add the services to a server, and return their names. Pushes stay raw: their samples are decoded later."""
    names = []
    for service, handler_of in (
        (fleet_pb2.DESCRIPTOR.services_by_name["Fleet"], partial(getattr, fleet)),
        (operations_pb2.DESCRIPTOR.services_by_name["Operations"], operations.handlers.__getitem__),
    ):
        message = message_factory.GetMessageClass
        handlers = {
            method.name: grpc.unary_unary_rpc_method_handler(
                handler_of(method.name),
                request_deserializer=RawPush if method.name == "Push" else message(method.input_type).FromString,
                response_serializer=message(method.output_type).SerializeToString,
            )
            for method in service.methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        names.append(service.full_name)
    return names
