"""What readers ask, at the gRPC border."""

from isochrone_collector.observe import coverage, differentials, fleet, leaderboards, samples
from isochrone_collector.observe.desk import Desk
from isochrone_collector.services.answering import Context, answer
from isochrone_wire import codec
from isochrone_wire.answers import Selection
from isochrone_wire.v1 import observatory_pb2, observatory_pb2_grpc


class ObservatoryService(observatory_pb2_grpc.ObservatoryServicer):
    """What readers ask."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ListTargets(  # noqa: N802  # the name in the .proto
        self,
        request: observatory_pb2.ListTargetsRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,  # noqa: ARG002  # as above
    ) -> observatory_pb2.ListTargetsResponse:
        """The targets of the plan in force."""
        return codec.encode(self._desk.targets())  # type: ignore[no-any-return]  # as above

    async def ListSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListSamplesRequest, context: Context
    ) -> observatory_pb2.ListSamplesResponse:
        """The newest samples of a selection."""
        work = samples.samples(self._desk, codec.decode(Selection, request.selection), limit=request.limit)
        found = await answer(context, work)
        return observatory_pb2.ListSamplesResponse(samples=[codec.encode(sample) for sample in found])

    async def GetLeaderboard(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetLeaderboardRequest, context: Context
    ) -> observatory_pb2.GetLeaderboardResponse:
        """Targets ranked within each region."""
        work = leaderboards.leaderboard(self._desk, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetDifferentials(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetDifferentialsRequest, context: Context
    ) -> observatory_pb2.GetDifferentialsResponse:
        """Regions against the baseline."""
        work = differentials.differentials(
            self._desk,
            codec.decode(Selection, request.selection),
            baseline=request.baseline,
            against=request.against,
            metric=request.metric,
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetCoverage(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetCoverageRequest, context: Context
    ) -> observatory_pb2.GetCoverageResponse:
        """Rounds planned and recorded."""
        work = coverage.coverage(self._desk, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListVantages(  # noqa: N802  # the name in the .proto
        self,
        request: observatory_pb2.ListVantagesRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,
    ) -> observatory_pb2.ListVantagesResponse:
        """How every vantage is doing."""
        return codec.encode(await answer(context, fleet.vantage_list(self._desk)))  # type: ignore[no-any-return]  # as above

    async def GetSpend(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetSpendRequest, context: Context
    ) -> observatory_pb2.GetSpendResponse:
        """What was spent today, and what the day comes to."""
        work = fleet.spend(self._desk, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above
