"""The gRPC border: messages become values, errors become statuses, and nothing else happens here."""

from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc
import structlog

from isochrone_collector.admission import Parcel
from isochrone_collector.errors import BadRequest, CollectorError, Conflict, DatabaseUnavailable, UnknownName
from isochrone_collector.ingest import Ingest
from isochrone_collector.observe import Observatory
from isochrone_collector.plans import Plans
from isochrone_wire import codec
from isochrone_wire.answers import Selection
from isochrone_wire.codec import CodecError
from isochrone_wire.model import Sample, Vantage, Vitals
from isochrone_wire.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    observatory_pb2,
    observatory_pb2_grpc,
    operations_pb2,
    operations_pb2_grpc,
    sample_pb2,
)

Answer = TypeVar("Answer")
# The generated servicers speak of sync and async contexts at once; ours is always the asyncio one.
Context = Any

_log = structlog.get_logger()

_STATUS_OF: dict[type[Exception], grpc.StatusCode] = {
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    CodecError: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownName: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    DatabaseUnavailable: grpc.StatusCode.UNAVAILABLE,
}


async def _answer(context: Context, work: Awaitable[Answer]) -> Answer:
    """The answer of `work`, or its error as a status."""
    try:
        return await work
    except (CollectorError, CodecError) as error:
        status, message = _STATUS_OF.get(type(error), grpc.StatusCode.INTERNAL), str(error)
        _log.warning("request.refused", status=status.name, reason=message)
    except Exception:  # noqa: BLE001  # a bug of ours: the asker learns that, and the log learns everything
        status, message = grpc.StatusCode.INTERNAL, "the collector failed to answer; its log says why"
        _log.exception("request.failed")
    await context.abort(status, message)
    raise AssertionError("abort raises")


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
        receipt = await _answer(context, self._ingest.push(_parcel(request)))
        return codec.encode(receipt)  # type: ignore[no-any-return]  # the codec's table says which message it is


class OperationsService(operations_pb2_grpc.OperationsServicer):
    """What operators ask."""

    def __init__(self, *, plans: Plans) -> None:
        self._plans = plans

    async def ApplyPlan(  # noqa: N802  # the name in the .proto
        self, request: operations_pb2.ApplyPlanRequest, context: Context
    ) -> operations_pb2.ApplyPlanResponse:
        """Validate a plan document, and put it into force unless it is a dry run."""
        work = self._plans.apply(request.document, dry_run=request.dry_run, applied_by=request.applied_by)
        return codec.encode(await _answer(context, work))  # type: ignore[no-any-return]  # as above


class ObservatoryService(observatory_pb2_grpc.ObservatoryServicer):
    """What readers ask."""

    def __init__(self, *, observatory: Observatory) -> None:
        self._observatory = observatory

    async def ListTargets(  # noqa: N802  # the name in the .proto
        self,
        request: observatory_pb2.ListTargetsRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,  # noqa: ARG002  # as above
    ) -> observatory_pb2.ListTargetsResponse:
        """The targets of the plan in force."""
        return codec.encode(self._observatory.targets())  # type: ignore[no-any-return]  # as above

    async def ListSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListSamplesRequest, context: Context
    ) -> observatory_pb2.ListSamplesResponse:
        """The newest samples of a selection."""
        work = self._observatory.samples(codec.decode(Selection, request.selection), limit=request.limit)
        found = await _answer(context, work)
        return observatory_pb2.ListSamplesResponse(samples=[codec.encode(sample) for sample in found])

    async def GetLeaderboard(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetLeaderboardRequest, context: Context
    ) -> observatory_pb2.GetLeaderboardResponse:
        """Targets ranked within each region."""
        work = self._observatory.leaderboard(codec.decode(Selection, request.selection))
        return codec.encode(await _answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetDifferentials(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetDifferentialsRequest, context: Context
    ) -> observatory_pb2.GetDifferentialsResponse:
        """Regions against the baseline."""
        work = self._observatory.differentials(
            codec.decode(Selection, request.selection),
            baseline=request.baseline,
            against=request.against,
            metric=request.metric,
        )
        return codec.encode(await _answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetCoverage(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetCoverageRequest, context: Context
    ) -> observatory_pb2.GetCoverageResponse:
        """Rounds planned and recorded."""
        work = self._observatory.coverage(codec.decode(Selection, request.selection))
        return codec.encode(await _answer(context, work))  # type: ignore[no-any-return]  # as above


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
