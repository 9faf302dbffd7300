"""What agents ask, at the gRPC border."""

from isochrone_collector.admission import Parcel
from isochrone_collector.ingest import Ingest
from isochrone_collector.plans import Plans
from isochrone_collector.services.answering import Context, answer
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import Sample, Vantage, Vitals
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc, sample_pb2


class FleetService(fleet_pb2_grpc.FleetServicer):
    """What agents ask."""

    def __init__(self, *, ingest: Ingest, plans: Plans) -> None:
        self._ingest = ingest
        self._plans = plans

    async def FetchPlan(  # noqa: N802  # the name in the .proto
        self,
        request: fleet_pb2.FetchPlanRequest,
        context: Context,  # noqa: ARG002  # the signature is gRPC's
    ) -> fleet_pb2.FetchPlanResponse:
        """The plan in force, absent when the agent runs it already."""
        plan = self._plans.fetch(request.if_version if request.HasField("if_version") else None)
        return fleet_pb2.FetchPlanResponse(plan=codec.encode(plan) if plan else None)

    async def Push(  # noqa: N802  # the name in the .proto
        self, request: fleet_pb2.PushRequest, context: Context
    ) -> fleet_pb2.PushResponse:
        """One batch; the reply means that it is committed."""
        receipt = await answer(context, self._ingest.push(_parcel(request)))
        return codec.encode(receipt)  # type: ignore[no-any-return]  # the codec's table says which message it is


def _parcel(request: fleet_pb2.PushRequest) -> Parcel:
    return Parcel(
        vantage=codec.decode(Vantage, request.vantage),
        epoch=request.epoch,
        seq=request.seq,
        samples=tuple(_sample(message) for message in request.samples),
        vitals=codec.decode(Vitals, request.vitals),
    )


def _sample(message: sample_pb2.Sample) -> Sample | str:
    """The sample; or, when it says something this version cannot understand, why."""
    try:
        return codec.decode(Sample, message)
    except CodecError as error:
        return str(error)
