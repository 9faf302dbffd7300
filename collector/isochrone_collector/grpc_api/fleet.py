"""The gRPC service for agents."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import grpc
from google.protobuf import message_factory

from isochrone_collector.auth.authenticator import Authenticator, Metadata, bearer_credential
from isochrone_collector.auth.enrolment import Enrolment
from isochrone_collector.auth.limits import address_key
from isochrone_collector.grpc_api.responses import Context, answer
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.plans.service import Plans
from isochrone_wire import codec
from isochrone_wire.model import Vantage
from isochrone_wire.operations import Receipt, Renewed
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc


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
        plan = self._plans.fetch(
            request.if_version if request.HasField("if_version") else None,
            request.if_content_hash if request.HasField("if_content_hash") else None,
        )
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
