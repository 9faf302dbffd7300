"""A typed client of the collector's reading API: the only module of the reading side that uses gRPC messages.

with ObservatoryClient("127.0.0.1:4600") as client:
    answer = client.get_leaderboard(Selection(window=window))
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, cast

import grpc
from google.protobuf.message import Message

from isochrone_client.address import Collector, resolve_collector
from isochrone_client.call_errors import client_error
from isochrone_client.errors import AddressError, ClientError, CollectorError
from isochrone_client.names import Names
from isochrone_common.channel import open_channel
from isochrone_common.identity_file import renew_if_due
from isochrone_common.trust import PLAIN
from isochrone_wire.answers import DifferentialList, Metric, Order, Selection, Window
from isochrone_wire.codec import CodecError, decode, encode
from isochrone_wire.durations import SECOND_US
from isochrone_wire.v1 import observatory_pb2 as messages
from isochrone_wire.v1.observatory_pb2_grpc import ObservatoryStub

# The methods import these, because to make a class takes a millisecond, and a command has one kind of answer.
if TYPE_CHECKING:
    from isochrone_wire.fleet import CoverageList, SampleList, SpendList, StoredSample, TargetList, VantageList
    from isochrone_wire.insights import (
        AlertList,
        DriftList,
        IncidentList,
        LatencyBudgetList,
        Leaderboard,
        RateLimitList,
        RegionCostList,
        SimulationList,
        TierList,
    )
    from isochrone_wire.queries.series import SeriesList
    from isochrone_wire.routes import Explanation, RegionTables, RouteEventList, RouteTable
    from isochrone_wire.v1 import routes_pb2 as route_messages
    from isochrone_wire.v1.routes_pb2_grpc import RoutesStub

CONNECT_TIMEOUT_US = 3 * SECOND_US
ANSWER_TIMEOUT_US = 30 * SECOND_US
_US_PER_MS = 1000
# A stream of tables sends a message at least every ten seconds.
_WATCH_TIMEOUT_US = 25 * SECOND_US
# This many samples fit into one message even if all their texts are as long as possible.
_MAX_SAMPLES_PER_MESSAGE = 1_000

_NO_PROXY = ("grpc.enable_http_proxy", 0)

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Value = TypeVar("Value")


class ObservatoryClient:
    """A connection to a collector at `HOST:PORT` on this machine or to one that was joined, opened by the first call.

    Regions and targets may be given by the short names of `names`: if the collector does not know a name, the client
    looks up the existing names and repeats the call.

    Every method waits at most `timeout_us` microseconds for the answer, of which `connect_timeout_us` for the
    connection. All raise `RefusedError`, `AmbiguousError`, `UnreachableError`, `SlowError` or `CollectorError`; the
    constructor raises `AddressError`.
    """

    def __init__(
        self,
        collector: str | Collector,
        *,
        timeout_us: int = ANSWER_TIMEOUT_US,
        connect_timeout_us: int = CONNECT_TIMEOUT_US,
    ) -> None:
        resolved = resolve_collector(collector) if isinstance(collector, str) else collector
        self._collector = resolved
        self._address = str(resolved)
        self._timeout_us = timeout_us
        # gRPC has no option for a connect timeout; an attempt lasts as long as the minimum backoff.
        connect_timeout = ("grpc.min_reconnect_backoff_ms", connect_timeout_us // _US_PER_MS)
        self._options = (_NO_PROXY, connect_timeout)
        self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Renew the identity if that is due, and close the connection. The client cannot be used afterwards."""
        if self._was_answered:
            self.renew()
        self._channel.close()

    def _connect(self) -> None:
        self._channel = _open(self._collector, self._options)
        self._stub = ObservatoryStub(self._channel)
        self._was_answered = False

    def renew(self) -> None:
        """Renew the identity if that is due, and use it for later calls."""
        identity, path = self._collector.identity, self._collector.path
        if identity is None or path is None:
            return
        later = renew_if_due(path, identity)
        if later != identity:
            self._channel.close()
            self._collector = replace(self._collector, identity=later)
            self._connect()

    @property
    def _routes(self) -> "RoutesStub":
        from isochrone_wire.v1.routes_pb2_grpc import RoutesStub

        return RoutesStub(self._channel)

    def get_baseline(self) -> str:
        """The baseline region of the plan in force; empty before the first plan."""
        return self._call(self._stub.ListTargets, messages.ListTargetsRequest()).baseline

    def list_targets(self) -> "TargetList":
        """The targets of the plan in force and its baseline region."""
        from isochrone_wire.fleet import TargetList

        response = self._call(self._stub.ListTargets, messages.ListTargetsRequest())
        return self._value(TargetList, response)

    def list_samples(self, selection: Selection, *, limit: int) -> "tuple[StoredSample, ...]":
        """The newest `limit` samples of the selection."""
        from isochrone_wire.fleet import StoredSample

        if limit > _MAX_SAMPLES_PER_MESSAGE:
            return tuple(sample for batch in self.export_samples(selection, newest=limit) for sample in batch)
        request = messages.ListSamplesRequest(selection=encode(selection), limit=limit)
        response = self._call(self._stub.ListSamples, request)
        return tuple(self._value(StoredSample, sample) for sample in response.samples)

    def get_sample(self, sample_id: str) -> "StoredSample":
        """The sample with this id."""
        from isochrone_wire.fleet import StoredSample

        request = messages.ListSamplesRequest(id=sample_id)
        (found,) = self._call(self._stub.ListSamples, request).samples
        return self._value(StoredSample, found)

    def get_leaderboard(self, selection: Selection, *, order: Order = Order.TTFT) -> "Leaderboard":
        """Targets ranked within each region of the selection."""
        from isochrone_wire.insights import Leaderboard

        request = messages.GetLeaderboardRequest(selection=encode(selection), order=order)
        return self._value(Leaderboard, self._call(self._stub.GetLeaderboard, request))

    def get_differentials(
        self,
        selection: Selection,
        *,
        baseline: str,
        against: tuple[str, ...] = (),
        metric: Metric = Metric.TTFT,
        explain: bool = False,
    ) -> DifferentialList:
        """Each region of `against` minus `baseline`, per target; without `against`, every other region. `explain` adds
        the contribution of each phase.
        """
        request = messages.GetDifferentialsRequest(
            selection=encode(selection),
            baseline=baseline,
            against=against,
            metric=metric,
            explain=explain,
            knows_mixed=True,
        )
        return self._value(DifferentialList, self._call(self._stub.GetDifferentials, request))

    def get_coverage(self, selection: Selection) -> "CoverageList":
        """Planned and recorded rounds of the selection, per vantage and target."""
        from isochrone_wire.fleet import CoverageList

        request = messages.GetCoverageRequest(selection=encode(selection))
        return self._value(CoverageList, self._call(self._stub.GetCoverage, request))

    def list_vantages(self) -> "VantageList":
        """Every vantage known to the collector, with its status."""
        from isochrone_wire.fleet import VantageList

        return self._value(VantageList, self._call(self._stub.ListVantages, messages.ListVantagesRequest()))

    def get_spend(self, selection: Selection) -> "SpendList":
        """Today's spend (UTC) of each vantage of the selection, per provider; its window does not apply."""
        from isochrone_wire.fleet import SpendList

        request = messages.GetSpendRequest(selection=encode(selection))
        return self._value(SpendList, self._call(self._stub.GetSpend, request))

    def get_region_costs(self, selection: Selection, *, metric: Metric = Metric.TTFT) -> "RegionCostList":
        """The nearest region of each provider, and the latency that the other regions add."""
        from isochrone_wire.insights import RegionCostList

        request = messages.GetRegionCostsRequest(selection=encode(selection), metric=metric, knows_mixed=True)
        return self._value(RegionCostList, self._call(self._stub.GetRegionCosts, request))

    def get_latency_budgets(
        self,
        selection: Selection,
        *,
        uses: tuple[str, ...] = (),
        by: str = "",
        answer_tokens: int = 0,
        limit_us: int = 0,
        min_tokens_per_second: float = 0.0,
    ) -> "LatencyBudgetList":
        """Verdicts on the latency targets of `uses` (empty: all uses), per target and region; with `by` "hour" per hour
        of the day, too. The other arguments are those of the collector's query.
        """
        from isochrone_wire.insights import LatencyBudgetList

        request = messages.GetLatencyBudgetsRequest(
            selection=encode(selection),
            uses=uses,
            by=by,
            answer_tokens=answer_tokens,
            limit_us=limit_us,
            min_tokens_per_second=min_tokens_per_second,
        )
        return self._value(LatencyBudgetList, self._call(self._stub.GetLatencyBudgets, request))

    def get_tiers(self, selection: Selection) -> "TierList":
        """Targets by price tier."""
        from isochrone_wire.insights import TierList

        request = messages.GetTiersRequest(selection=encode(selection))
        return self._value(TierList, self._call(self._stub.GetTiers, request))

    def get_series(
        self, selection: Selection, *, metric: Metric = Metric.TTFT, points: int = 0, limit_us: int = 0, bins: int = 0
    ) -> "SeriesList":
        """Quantiles and outcomes over time, in at most `points` buckets (0: as many as the collector allows); with a
        `limit_us` on the metric the goodput, too, and with `bins` the distribution of the values in at most so many.
        """
        from isochrone_wire.queries.series import SeriesList

        request = messages.GetSeriesRequest(
            selection=encode(selection), metric=metric, points=points, limit_us=limit_us, bins=bins
        )
        return self._value(SeriesList, self._call(self._stub.GetSeries, request))

    def get_rate_limits(self, selection: Selection, *, points: int = 0) -> "RateLimitList":
        """The rate limits in response headers, their history in at most `points` buckets (0: 24), and a forecast."""
        from isochrone_wire.insights import RateLimitList

        request = messages.GetRateLimitsRequest(selection=encode(selection), points=points)
        return self._value(RateLimitList, self._call(self._stub.GetRateLimits, request))

    def list_drift(self, selection: Selection) -> "DriftList":
        """The lasting changes in the selection."""
        from isochrone_wire.insights import DriftList

        request = messages.ListDriftRequest(selection=encode(selection))
        return self._value(DriftList, self._call(self._stub.ListDrift, request))

    def list_incidents(self, window: Window, *, past: bool = False, incident_id: int = 0) -> "IncidentList":
        """Open incidents, and with `past` those of the window that have recovered; or one of them by its id."""
        from isochrone_wire.insights import IncidentList

        request = messages.ListIncidentsRequest(window=encode(window), past=past, id=incident_id)
        return self._value(IncidentList, self._call(self._stub.ListIncidents, request))

    def list_alerts(self, window: Window) -> "AlertList":
        """Alerts raised in the window, with their delivery."""
        from isochrone_wire.insights import AlertList

        request = messages.ListAlertsRequest(window=encode(window))
        return self._value(AlertList, self._call(self._stub.ListAlerts, request))

    def simulate(self, selection: Selection, *, policies: tuple[str, ...] = ()) -> "SimulationList":
        """The results of `policies` (empty: one of each kind) replayed on the recorded rounds."""
        from isochrone_wire.insights import SimulationList

        request = messages.SimulateRequest(selection=encode(selection), policies=policies)
        return self._value(SimulationList, self._call(self._stub.Simulate, request))

    def follow_samples(self, selection: Selection, *, since_at: int = 0) -> "Iterator[SampleList]":
        """Samples received since `since_at` (0: now), in batches as they are stored, until the iterator is closed.

        The first batch comes at once; batches may be empty.
        """
        self.renew()  # this command may run for years
        request = messages.FollowSamplesRequest(selection=encode(selection), since_at=since_at)
        return self._sample_batches(self._stub.FollowSamples, request)

    def export_samples(self, selection: Selection, *, newest: int = 0) -> "Iterator[tuple[StoredSample, ...]]":
        """Every sample of the selection in batches, oldest round first, without a limit on the total time; or the
        `newest` so many, newest first.
        """
        request = messages.ExportSamplesRequest(selection=encode(selection), newest=newest)
        return (batch.samples for batch in self._sample_batches(self._stub.ExportSamples, request))

    def get_tables(self, client_region: str, route: str = "") -> "RegionTables":
        """The tables in force in a region, of one route or of all (empty name)."""
        from isochrone_wire.routes import RegionTables
        from isochrone_wire.v1 import routes_pb2 as route_messages

        request = route_messages.GetTablesRequest(client_region=client_region, route=route)
        return self._value(RegionTables, self._call(self._routes.GetTables, request))

    def watch_tables(
        self, client_region: str = "", route: str = "", *, after: int = 0
    ) -> "Iterator[RouteTable | None]":
        """Tables after the generation `after` as they are published, in order, until the iterator is closed; with 0,
        first all tables in force. Yields `None` from time to time between tables. Empty names mean all
        regions, all routes.
        """
        from isochrone_wire.v1 import routes_pb2 as route_messages

        self.renew()  # this command may run for years
        request = route_messages.WatchTablesRequest(client_region=client_region, route=route, after_generation=after)
        return self._stream(self._routes.WatchTables, request, self._table, max(self._timeout_us, _WATCH_TIMEOUT_US))

    def explain_route(self, client_region: str, route: str, *, generation: int = 0) -> "Explanation":
        """The decision behind the table of a generation (0: the newest), step by step."""
        from isochrone_wire.routes import Explanation
        from isochrone_wire.v1 import routes_pb2 as route_messages

        request = route_messages.ExplainRouteRequest(client_region=client_region, route=route, generation=generation)
        return self._value(Explanation, self._call(self._routes.ExplainRoute, request))

    def list_route_events(self, selection: Selection, *, route: str = "") -> "RouteEventList":
        """Switches, freezes and plans of the selection's window and regions, of one route or of all, newest first."""
        from isochrone_wire.routes import RouteEventList
        from isochrone_wire.v1 import routes_pb2 as route_messages

        request = route_messages.ListRouteEventsRequest(selection=encode(selection), route=route)
        return self._value(RouteEventList, self._call(self._routes.ListRouteEvents, request))

    def regions(self) -> tuple[str, ...]:
        """All known regions, the baseline first."""
        plan, seen = self.list_targets(), self.list_vantages()
        return tuple(dict.fromkeys(filter(None, (plan.baseline, *sorted(one.region for one in seen.vantages)))))

    def _table(self, response: "route_messages.WatchTablesResponse") -> "RouteTable | None":
        from isochrone_wire.routes import RouteTable

        return self._value(RouteTable, response.table) if response.HasField("table") else None

    def _sample_batches(
        self, method: "grpc.UnaryStreamMultiCallable[Request, messages.ListSamplesResponse]", request: Request
    ) -> "Iterator[SampleList]":
        from isochrone_wire.fleet import SampleList

        return self._stream(method, request, lambda response: self._value(SampleList, response), self._timeout_us)

    def _stream(
        self,
        method: "grpc.UnaryStreamMultiCallable[Request, Response]",
        request: Request,
        read: Callable[[Response], Value],
        timeout_us: int,
    ) -> Iterator[Value]:
        try:
            yield from self._responses(method(request), read, timeout_us)
        except grpc.RpcError as error:
            # The collector rejects an unknown name before it sends anything, so no response is repeated.
            if not self._expand_short_names(request, error):
                raise self._failure(error) from error
        else:
            return
        try:
            yield from self._responses(method(request), read, timeout_us)
        except grpc.RpcError as error:
            raise self._failure(error) from error

    def _responses(
        self, call: Iterable[Response], read: Callable[[Response], Value], timeout_us: int
    ) -> Iterator[Value]:
        cancel = cast(grpc.Call, call).cancel
        responses = iter(call)
        try:
            while True:
                # A stream may last for any time, but each response has a timeout.
                timer = threading.Timer(timeout_us / SECOND_US, cancel)
                timer.daemon = True
                timer.start()
                try:
                    response = next(responses, None)
                finally:
                    timer.cancel()
                if response is None:
                    return
                yield read(response)
        finally:
            cancel()

    def _failure(self, error: grpc.RpcError) -> ClientError:
        return client_error(error, self._collector.address, is_plain=self._collector.identity is None)

    # In quotes, because the class has parameters for a type checker only.
    def _call(self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request) -> Response:
        try:
            return method(request, timeout=self._timeout_us / SECOND_US)
        except grpc.RpcError as error:
            if not self._expand_short_names(request, error):
                raise self._failure(error) from error
        try:
            return method(request, timeout=self._timeout_us / SECOND_US)
        except grpc.RpcError as error:
            raise self._failure(error) from error

    def _expand_short_names(self, request: Message, error: grpc.RpcError) -> bool:
        """Replace short names in a refused request by full ones; return whether that changed it."""
        from isochrone_wire.fleet import TargetList, VantageList

        if cast(grpc.Call, error).code() is not grpc.StatusCode.NOT_FOUND:
            return False
        targets, vantages = messages.ListTargetsRequest(), messages.ListVantagesRequest()
        try:
            plan = self._value(TargetList, self._stub.ListTargets(targets, timeout=self._timeout_us / SECOND_US))
            seen = self._value(VantageList, self._stub.ListVantages(vantages, timeout=self._timeout_us / SECOND_US))
        except grpc.RpcError:
            return False
        regions = frozenset(filter(None, (plan.baseline, *(vantage.region for vantage in seen.vantages))))
        return Names(regions=regions, targets=plan.targets).expand(request)

    def _value(self, cls: type[Value], message: Message) -> Value:
        self._was_answered = True
        try:
            return decode(cls, message)
        except CodecError as error:
            raise CollectorError(
                f"cannot decode the answer of the collector at {self._address}: {error}",
                hint="if the collector is newer than this command, upgrade the command",
            ) from error


def _open(collector: Collector, options: tuple[tuple[str, int], ...]) -> grpc.Channel:
    identity = collector.identity
    try:
        if identity is None:
            return open_channel(collector.address, PLAIN, more=options)
        return open_channel(collector.address, identity.trust, identity.credential, more=options)
    except ValueError as error:
        raise AddressError(str(error), hint="join the collector first: isochrone join") from error
