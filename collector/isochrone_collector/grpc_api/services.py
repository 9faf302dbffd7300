"""The gRPC services for agents and for operators."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import grpc
from google.protobuf import message_factory

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
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc, operations_pb2, operations_pb2_grpc


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
            request.token,
            client_key=request.client_key,
            address=address_key(context.peer()),
            version=request.version,
        )
        return codec.encode(replace(joined, http_port=self._http_port))  # type: ignore[no-any-return]  # the codec's table says which message it is

    async def Renew(  # noqa: N802  # the name in the .proto
        self, request: fleet_pb2.RenewRequest, context: Context
    ) -> fleet_pb2.RenewResponse:
        """Return the successor of the caller's credential if that is requested, and the certificates."""
        renewed = Renewed()
        if request.credential:
            credential = bearer_credential(context.invocation_metadata())
            renewed = await answer(context, self._enrolment.renew(credential))
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


def add_to_server(fleet: FleetService, server: grpc.aio.Server) -> None:
    """Add the service to a server. Pushes are passed on as `RawPush`, because their samples are decoded later."""
    service = fleet_pb2.DESCRIPTOR.services_by_name["Fleet"]
    message = message_factory.GetMessageClass
    handlers = {
        method.name: grpc.unary_unary_rpc_method_handler(
            getattr(fleet, method.name),
            request_deserializer=RawPush if method.name == "Push" else message(method.input_type).FromString,
            response_serializer=message(method.output_type).SerializeToString,
        )
        for method in service.methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))


MAX_AUDIT = 10_000
_AUDIT_DEFAULT = 100


class OperationsService(operations_pb2_grpc.OperationsServicer):
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
        self._plans = plans
        self._enrolment = enrolment
        self._alert_delivery = alert_delivery
        self._silencing = silencing
        self._query_context = query_context

    async def ListVantages(  # noqa: N802  # the name in the .proto
        self,
        request: operations_pb2.ListVantagesRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,
    ) -> operations_pb2.ListVantagesResponse:
        """Return the state of every vantage."""
        return codec.encode(await answer(context, fleet.vantage_list(self._query_context)))  # type: ignore[no-any-return]  # as above

    async def ApplyPlan(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.ApplyPlanRequest, context: Context
    ) -> operations_pb2.ApplyPlanResponse:
        """Validate a plan document, and put it into force unless it is a dry run."""
        work = self._plans.apply(
            request.document,
            dry_run=request.dry_run,
            applied_by=request.applied_by,
            signature=request.signature,
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # the codec's table says which message it is

    async def ListPlans(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.ListPlansRequest, context: Context
    ) -> operations_pb2.ListPlansResponse:
        """Return the newest plans, and the version that each one restored."""
        work = self._plans.history(max(request.limit, 0))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetPlan(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.GetPlanRequest, context: Context
    ) -> operations_pb2.PlanDocument:
        """Return the document of a version, or of the plan in force."""
        work = self._plans.document(request.version if request.HasField("version") else None)
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def RollBackPlan(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.RollBackPlanRequest, context: Context
    ) -> operations_pb2.ApplyPlanResponse:
        """Apply an earlier version again, unless it is a dry run."""
        work = self._plans.roll_back(
            request.to_version,
            dry_run=request.dry_run,
            applied_by=request.applied_by,
            signature=request.signature,
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def Invite(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.InviteRequest, context: Context
    ) -> operations_pb2.InviteResponse:
        """Create a one-time join token for a vantage, a reader or an operator."""
        work = self._enrolment.invite(
            name=request.name,
            role=request.role,
            region=request.region if request.HasField("region") else None,
            expires_us=request.expires_us,
            overlap_us=request.overlap_us,
            rotation=request.rotation,
            lifetime_us=request.lifetime_us if request.HasField("lifetime_us") else None,
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListAccess(  # noqa: N802  # the name in the .proto
        self,
        request: operations_pb2.ListAccessRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,
    ) -> operations_pb2.ListAccessResponse:
        """Return every credential and every open invitation, without secrets."""
        return codec.encode(await answer(context, self._enrolment.list_access()))  # type: ignore[no-any-return]  # as above

    async def Revoke(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.RevokeRequest, context: Context
    ) -> operations_pb2.RevokeResponse:
        """Revoke all credentials and open invitations of a name."""
        revoked = await answer(context, self._enrolment.revoke(request.name))
        return operations_pb2.RevokeResponse(revoked=revoked)

    async def RecordRestore(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.RecordRestoreRequest, context: Context
    ) -> operations_pb2.RecordRestoreResponse:
        """Void what a restored database has revived."""
        work = self._enrolment.record_restore(vantages=request.vantages)
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListAudit(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.ListAuditRequest, context: Context
    ) -> operations_pb2.ListAuditResponse:
        """Return the newest changes."""
        return codec.encode(await answer(context, self._audit(request)))  # type: ignore[no-any-return]  # as above

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

    async def TestAlert(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.TestAlertRequest, context: Context
    ) -> operations_pb2.Alert:
        """Send a test alert to one receiver, or to all, and return it with its delivery."""
        return codec.encode(await answer(context, self._alert_delivery.test(request.receiver)))  # type: ignore[no-any-return]  # as above

    async def AddSilence(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.AddSilenceRequest, context: Context
    ) -> operations_pb2.Silence:
        """Hold alerts back for a time."""
        work = self._silencing.add(
            targets=request.targets,
            providers=request.providers,
            regions=request.regions,
            kinds=request.kinds,
            duration_us=request.duration_us,
            reason=request.reason,
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def AcknowledgeAlert(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.AcknowledgeAlertRequest, context: Context
    ) -> operations_pb2.Silence:
        """Acknowledge a problem for a time."""
        work = self._silencing.acknowledge(request.id, duration_us=request.duration_us, reason=request.reason)
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def EndSilence(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.EndSilenceRequest, context: Context
    ) -> operations_pb2.Silence:
        """End a silence or an acknowledgement before its time."""
        return codec.encode(await answer(context, self._silencing.end(request.id)))  # type: ignore[no-any-return]  # as above

    async def ListSilences(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.ListSilencesRequest, context: Context
    ) -> operations_pb2.ListSilencesResponse:
        """Return the silences and acknowledgements in force, or all."""
        return codec.encode(await answer(context, self._silencing.listed(past=request.past)))  # type: ignore[no-any-return]  # as above
