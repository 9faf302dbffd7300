"""What operators ask, at the gRPC border."""

from isochrone_collector.plans import Plans
from isochrone_collector.services.answering import Context, answer
from isochrone_wire import codec
from isochrone_wire.v1 import operations_pb2, operations_pb2_grpc


class OperationsService(operations_pb2_grpc.OperationsServicer):
    """What operators ask."""

    def __init__(self, *, plans: Plans) -> None:
        self._plans = plans

    async def ApplyPlan(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.ApplyPlanRequest, context: Context
    ) -> operations_pb2.ApplyPlanResponse:
        """Validate a plan document, and put it into force unless it is a dry run."""
        work = self._plans.apply(request.document, dry_run=request.dry_run, applied_by=request.applied_by)
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # the codec's table says which message it is
