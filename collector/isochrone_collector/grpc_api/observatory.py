"""The gRPC service for readers."""

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
    """Queries over samples and everything derived from them."""

    def __init__(self, query_context: QueryContext) -> None:
        self._query_context = query_context

    async def ListTargets(  # noqa: N802  # the name in the .proto
        self,
        request: observatory_pb2.ListTargetsRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,  # noqa: ARG002  # as above
    ) -> observatory_pb2.ListTargetsResponse:
        """Return the targets of the plan in force."""
        return codec.encode(self._query_context.targets())  # type: ignore[no-any-return]  # as above

    async def ListSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListSamplesRequest, context: Context
    ) -> observatory_pb2.ListSamplesResponse:
        """Return the newest samples of a selection."""
        work = samples.samples(self._query_context, codec.decode(Selection, request.selection), limit=request.limit)
        return await answer(context, _in_one_message(work))

    async def GetLeaderboard(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetLeaderboardRequest, context: Context
    ) -> observatory_pb2.GetLeaderboardResponse:
        """Rank targets within each region."""
        work = ranking.leaderboard(self._query_context, codec.decode(Selection, request.selection), order=request.order)
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetDifferentials(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetDifferentialsRequest, context: Context
    ) -> observatory_pb2.GetDifferentialsResponse:
        """Compare regions with the baseline."""
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
        """Return the rounds planned and recorded."""
        work = coverage.coverage(self._query_context, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListVantages(  # noqa: N802  # the name in the .proto
        self,
        request: observatory_pb2.ListVantagesRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,
    ) -> observatory_pb2.ListVantagesResponse:
        """Return the state of every vantage."""
        return codec.encode(await answer(context, fleet.vantage_list(self._query_context)))  # type: ignore[no-any-return]  # as above

    async def GetSpend(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetSpendRequest, context: Context
    ) -> observatory_pb2.GetSpendResponse:
        """Return the spending of today, and its projection for the day."""
        work = fleet.spend(self._query_context, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetRegionCosts(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetRegionCostsRequest, context: Context
    ) -> observatory_pb2.GetRegionCostsResponse:
        """Return the nearest region of each provider, and the extra latency of the others."""
        work = region_costs.region_costs(
            self._query_context, codec.decode(Selection, request.selection), metric=request.metric
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetLatencyBudgets(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetLatencyBudgetsRequest, context: Context
    ) -> observatory_pb2.GetLatencyBudgetsResponse:
        """Return which latency targets each target meets, by region."""
        work = ranking.latency_targets(
            self._query_context, codec.decode(Selection, request.selection), uses=request.uses
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def GetTiers(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.GetTiersRequest, context: Context
    ) -> observatory_pb2.GetTiersResponse:
        """Return targets by price tier."""
        work = ranking.price_tiers(self._query_context, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListDrift(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListDriftRequest, context: Context
    ) -> observatory_pb2.ListDriftResponse:
        """Return the detected changes."""
        work = drift.drift_events(self._query_context, codec.decode(Selection, request.selection))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListAlerts(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListAlertsRequest, context: Context
    ) -> observatory_pb2.ListAlertsResponse:
        """Return the alerts of a window."""
        work = alerts.alerts(self._query_context, codec.decode(Window, request.window))
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def Simulate(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.SimulateRequest, context: Context
    ) -> observatory_pb2.SimulateResponse:
        """Return the results that other policies would have had."""
        work = simulations.simulations(
            self._query_context, codec.decode(Selection, request.selection), policies=request.policies
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def FollowSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.FollowSamplesRequest, context: Context
    ) -> AsyncIterator[observatory_pb2.ListSamplesResponse]:
        """Stream samples as they are stored."""
        selection = codec.decode(Selection, request.selection)
        async for portion in answers(
            context, samples.follow(self._query_context, selection, since_at=request.since_at)
        ):
            yield codec.encode(portion)

    async def ExportSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ExportSamplesRequest, context: Context
    ) -> AsyncIterator[observatory_pb2.ListSamplesResponse]:
        """Stream every sample of a selection, or the newest."""
        selection = codec.decode(Selection, request.selection)
        async for portion in answers(context, samples.export(self._query_context, selection, newest=request.newest)):
            yield codec.encode(SampleList(samples=tuple(portion)))


async def _in_one_message(work: Awaitable[list[StoredSample]]) -> observatory_pb2.ListSamplesResponse:
    found = await work
    message: observatory_pb2.ListSamplesResponse = codec.encode(SampleList(samples=tuple(found)))
    if message.ByteSize() > MAX_MESSAGE_BYTES:
        raise BadRequest(f"{len(found)} samples do not fit into one message; ask for fewer, or use ExportSamples")
    return message
