"""The gRPC service for readers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from isochrone_collector.errors import BadRequest
from isochrone_collector.grpc_api.responses import Context, answer, answers
from isochrone_collector.queries import (
    alerts,
    coverage,
    differentials,
    drift,
    fleet,
    incidents,
    latency_targets,
    ranking,
    rate_limits,
    region_costs,
    samples,
    series,
    simulations,
)
from isochrone_collector.queries.context import QueryContext
from isochrone_common.channel import MAX_MESSAGE_BYTES
from isochrone_wire import codec
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import SampleList
from isochrone_wire.v1 import observatory_pb2, observatory_pb2_grpc


def _unary(query: Callable[..., Awaitable[object]]) -> Any:  # noqa: ANN401  # a method; the generated base types it
    """Return the method that calls `query` with the query context and the fields of the request, by their names."""

    async def method(service: "ObservatoryService", request: Message, context: Context) -> Message:
        async def work() -> Message:
            return codec.encode(await query(service.query_context, **_arguments(request)))  # type: ignore[no-any-return]  # the codec's table says which message it is

        return await answer(context, work())

    method.__doc__ = query.__doc__
    return method


def _arguments(request: Message) -> dict[str, Any]:
    return {field.name: _argument(getattr(request, field.name)) for field in request.DESCRIPTOR.fields}


def _argument(part: object) -> object:
    if isinstance(part, observatory_pb2.Selection):
        return codec.decode(Selection, part)
    return codec.decode(Window, part) if isinstance(part, observatory_pb2.Window) else part


class ObservatoryService(observatory_pb2_grpc.ObservatoryServicer):
    """Queries over samples and everything derived from them: one line per question, `RPC = query`."""

    GetLeaderboard = _unary(ranking.leaderboard)
    GetDifferentials = _unary(differentials.differentials)
    GetCoverage = _unary(coverage.coverage)
    ListVantages = _unary(fleet.vantage_list)
    GetSpend = _unary(fleet.spend)
    GetRegionCosts = _unary(region_costs.region_costs)
    GetLatencyBudgets = _unary(latency_targets.latency_targets)
    GetTiers = _unary(ranking.price_tiers)
    GetSeries = _unary(series.series)
    GetRateLimits = _unary(rate_limits.rate_limits)
    ListDrift = _unary(drift.drift_events)
    ListIncidents = _unary(incidents.incidents)
    ListAlerts = _unary(alerts.alerts)
    Simulate = _unary(simulations.simulations)

    def __init__(self, query_context: QueryContext) -> None:
        self.query_context = query_context

    async def ListTargets(  # noqa: N802  # the name in the .proto
        self,
        request: observatory_pb2.ListTargetsRequest,  # noqa: ARG002  # the signature is gRPC's
        context: Context,  # noqa: ARG002  # as above
    ) -> observatory_pb2.ListTargetsResponse:
        """Return the targets of the plan in force."""
        return codec.encode(self.query_context.targets())  # type: ignore[no-any-return]  # as above

    async def ListSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ListSamplesRequest, context: Context
    ) -> observatory_pb2.ListSamplesResponse:
        """Return the newest samples of a selection, or one sample."""
        if request.id:
            return await answer(context, _in_one_message(samples.one_sample(self.query_context, request.id)))
        work = samples.samples(self.query_context, codec.decode(Selection, request.selection), limit=request.limit)
        return await answer(context, _in_one_message(work))

    async def FollowSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.FollowSamplesRequest, context: Context
    ) -> AsyncIterator[observatory_pb2.ListSamplesResponse]:
        """Stream samples as they are stored."""
        selection = codec.decode(Selection, request.selection)
        async for portion in answers(context, samples.follow(self.query_context, selection, since_at=request.since_at)):
            yield codec.encode(portion)

    async def ExportSamples(  # noqa: N802  # the name in the .proto
        self, request: observatory_pb2.ExportSamplesRequest, context: Context
    ) -> AsyncIterator[observatory_pb2.ListSamplesResponse]:
        """Stream every sample of a selection, or the newest."""
        selection = codec.decode(Selection, request.selection)
        async for portion in answers(context, samples.export(self.query_context, selection, newest=request.newest)):
            yield codec.encode(SampleList(samples=tuple(portion)))


async def _in_one_message(work: Awaitable[SampleList]) -> observatory_pb2.ListSamplesResponse:
    found = await work
    message: observatory_pb2.ListSamplesResponse = codec.encode(found)
    if message.ByteSize() > MAX_MESSAGE_BYTES:
        raise BadRequest(
            f"{len(found.samples)} samples do not fit into one message; ask for fewer, or use ExportSamples"
        )
    return message
