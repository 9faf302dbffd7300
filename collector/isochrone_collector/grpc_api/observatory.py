"""What readers ask, at the gRPC border."""

from collections.abc import AsyncIterator, Awaitable

from isochrone_collector.errors import BadRequest
from isochrone_collector.grpc_api.responses import Context, answer, answers
from isochrone_collector.queries import (
    alerts,
    coverage,
    differentials,
    drift,
    fleet,
    ranking,
    region_costs,
    samples,
    simulations,
)
from isochrone_collector.queries.context import QueryContext
from isochrone_wire import codec
from isochrone_wire.answers import SampleList, Selection, StoredSample, Window
from isochrone_wire.grpc_options import MAX_MESSAGE_BYTES
from isochrone_wire.v1 import observatory_pb2, observatory_pb2_grpc


class ObservatoryService(observatory_pb2_grpc.ObservatoryServicer):
    """What readers ask."""

    def __init__(self, query_context: QueryContext) -> None:
        self._query_context = query_context

    async def ListTargets(  # noqa: N802  # the name in the .proto
        self,
        request: observatory_pb2.ListTargetsRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,  # noqa: ARG002  # as above
    ) -> observatory_pb2.ListTargetsResponse:
        """The targets of the plan in force."""
        return codec.encode(self._query_context.targets())  # type: ignore[no-any-return]  # as above

    async def ListSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListSamplesRequest, context: Context
    ) -> observatory_pb2.ListSamplesResponse:
        """The newest samples of a selection."""
        work = samples.samples(self._query_context, codec.decode(Selection, request.selection), limit=request.limit)
        return await answer(context, _in_one_message(work))

    async def GetLeaderboard(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetLeaderboardRequest, context: Context
    ) -> observatory_pb2.GetLeaderboardResponse:
        """Targets ranked within each region."""
        work = ranking.leaderboard(self._query_context, codec.decode(Selection, request.selection), order=request.order)
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetDifferentials(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetDifferentialsRequest, context: Context
    ) -> observatory_pb2.GetDifferentialsResponse:
        """Regions against the baseline."""
        work = differentials.differentials(
            self._query_context,
            codec.decode(Selection, request.selection),
            baseline=request.baseline,
            against=request.against,
            metric=request.metric,
            explain=request.explain,
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetCoverage(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetCoverageRequest, context: Context
    ) -> observatory_pb2.GetCoverageResponse:
        """Rounds planned and recorded."""
        work = coverage.coverage(self._query_context, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListVantages(  # noqa: N802  # the name in the .proto
        self,
        request: observatory_pb2.ListVantagesRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,
    ) -> observatory_pb2.ListVantagesResponse:
        """How every vantage is doing."""
        return codec.encode(await answer(context, fleet.vantage_list(self._query_context)))  # type: ignore[no-any-return]  # as above

    async def GetSpend(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetSpendRequest, context: Context
    ) -> observatory_pb2.GetSpendResponse:
        """What was spent today, and what the day comes to."""
        work = fleet.spend(self._query_context, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetRegionCosts(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetRegionCostsRequest, context: Context
    ) -> observatory_pb2.GetRegionCostsResponse:
        """Where each provider is nearest, and what the others pay."""
        work = region_costs.region_costs(
            self._query_context, codec.decode(Selection, request.selection), metric=request.metric
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetLatencyBudgets(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetLatencyBudgetsRequest, context: Context
    ) -> observatory_pb2.GetLatencyBudgetsResponse:
        """Which targets keep which budget from where."""
        work = ranking.latency_targets(
            self._query_context, codec.decode(Selection, request.selection), uses=request.uses
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetTiers(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetTiersRequest, context: Context
    ) -> observatory_pb2.GetTiersResponse:
        """Targets by price tier."""
        work = ranking.price_tiers(self._query_context, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListDrift(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListDriftRequest, context: Context
    ) -> observatory_pb2.ListDriftResponse:
        """The changes that were found."""
        work = drift.drift_events(self._query_context, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListAlerts(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListAlertsRequest, context: Context
    ) -> observatory_pb2.ListAlertsResponse:
        """What was raised."""
        work = alerts.alerts(self._query_context, codec.decode(Window, request.window))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def Simulate(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.SimulateRequest, context: Context
    ) -> observatory_pb2.SimulateResponse:
        """What other policies would have given."""
        work = simulations.simulations(
            self._query_context, codec.decode(Selection, request.selection), policies=request.policies
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def FollowSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.FollowSamplesRequest, context: Context
    ) -> AsyncIterator[observatory_pb2.ListSamplesResponse]:
        """Samples as they are stored."""
        selection = codec.decode(Selection, request.selection)
        async for portion in answers(
            context, samples.followed(self._query_context, selection, since_at=request.since_at)
        ):
            yield codec.encode(portion)

    async def ExportSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ExportSamplesRequest, context: Context
    ) -> AsyncIterator[observatory_pb2.ListSamplesResponse]:
        """Every sample of a selection, or the newest."""
        selection = codec.decode(Selection, request.selection)
        async for portion in answers(context, samples.exported(self._query_context, selection, newest=request.newest)):
            yield codec.encode(SampleList(samples=tuple(portion)))


async def _in_one_message(work: Awaitable[list[StoredSample]]) -> observatory_pb2.ListSamplesResponse:
    found = await work
    message: observatory_pb2.ListSamplesResponse = codec.encode(SampleList(samples=tuple(found)))
    if message.ByteSize() > MAX_MESSAGE_BYTES:
        raise BadRequest(f"{len(found)} samples are more than a message holds; ask for fewer, or use ExportSamples")
    return message
