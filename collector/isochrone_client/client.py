"""Asks a collector, and gives values back: the one place on the reading side that sees gRPC and its messages.

with ObservatoryClient("127.0.0.1:4600") as client:
    answer = client.get_leaderboard(Selection(window=window))
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import grpc
from google.protobuf.message import Message

from isochrone_client.address import Collector, resolve_collector
from isochrone_client.errors import (
    AccessError,
    AddressError,
    ClientError,
    CollectorError,
    RefusedError,
    SlowError,
    UnreachableError,
)
from isochrone_client.names import Names
from isochrone_wire.answers import (
    CoverageList,
    DifferentialList,
    Leaderboard,
    Metric,
    Order,
    SampleList,
    Selection,
    SpendList,
    StoredSample,
    TargetList,
    VantageList,
    Window,
)
from isochrone_wire.channel import PLAIN, open_channel
from isochrone_wire.codec import CodecError, decode, encode
from isochrone_wire.insights import (
    AlertList,
    DriftList,
    LatencyBudgetList,
    RegionCostList,
    SimulationList,
    TierList,
)
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import Explanation, RegionTables, RouteEventList, RouteTable
from isochrone_wire.v1 import observatory_pb2 as messages
from isochrone_wire.v1 import routes_pb2 as route_messages
from isochrone_wire.v1.observatory_pb2_grpc import ObservatoryStub
from isochrone_wire.v1.routes_pb2_grpc import RoutesStub

CONNECT_TIMEOUT_US = 3 * SECOND_US
ANSWER_TIMEOUT_US = 30 * SECOND_US
_US_PER_MS = 1000
# A stream of tables says something every ten seconds, whatever the patience with answers.
_WATCH_SILENCE_US = 25 * SECOND_US
# So many samples fit into one message, however long their texts are.
_MAX_IN_ONE_ANSWER = 1_000

_NO_PROXY = ("grpc.enable_http_proxy", 0)

_ERROR_OF: dict[grpc.StatusCode, tuple[type[ClientError], str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (RefusedError, "see --help for what can be asked"),
    grpc.StatusCode.NOT_FOUND: (
        RefusedError,
        "`isochrone targets` names the targets, `isochrone coverage` the regions, `isochrone routes` the routes",
    ),
    grpc.StatusCode.UNAVAILABLE: (
        UnreachableError,
        "is it running? start one with `isochrone-collector serve`, or say where it is with --collector HOST:PORT",
    ),
    grpc.StatusCode.UNAUTHENTICATED: (AccessError, "an operator lets you in: isochrone-collector access add"),
    grpc.StatusCode.PERMISSION_DENIED: (AccessError, "an operator gives roles: isochrone-collector access add"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (SlowError, "ask for a shorter --window, or wait longer with --timeout"),
    # Only we call anything off, and only for having waited long enough.
    grpc.StatusCode.CANCELLED: (SlowError, "it may be stopped or out of reach; or wait longer with --timeout"),
    grpc.StatusCode.UNIMPLEMENTED: (CollectorError, "is it an Isochrone collector, and as new as this command?"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (CollectorError, "ask for less: a shorter --window, fewer --target"),
}
# How gRPC begins when nobody was there; anything else is said by whoever was.
_NOT_CONNECTED = "failed to connect"
# How it tells that the certificate is not one that was to be believed.
_NOT_BELIEVED = "CERTIFICATE_VERIFY_FAILED"
# And that we ourselves would not wait any longer; anything else is the collector's own limit.
_NOT_IN_TIME = "Deadline Exceeded"
_ELSE = (CollectorError, "its log says more")

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Value = TypeVar("Value")


class ObservatoryClient:
    """A connection to a collector, made with the first question: at `HOST:PORT` on this machine, or where one joined.

    Regions and targets may go by the short names of `names`: when the collector does not know a name, the names that
    there are are looked up, and the question is asked again.

    Every method waits at most `timeout_us` microseconds for the answer, and `connect_timeout_us` of them for the
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
        where = resolve_collector(collector) if isinstance(collector, str) else collector
        self._address = str(where)
        self._timeout_us = timeout_us
        # gRPC knows no connect timeout by name: an attempt may last as long as the shortest pause between two attempts.
        connecting = ("grpc.min_reconnect_backoff_ms", connect_timeout_us // _US_PER_MS)
        self._channel = _opened(where, (_NO_PROXY, connecting))
        self._stub = ObservatoryStub(self._channel)
        self._routes = RoutesStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back. The client cannot be used afterwards."""
        self._channel.close()

    def list_targets(self) -> TargetList:
        """The targets of the plan in force and its baseline region."""
        response = self._ask(self._stub.ListTargets, messages.ListTargetsRequest())
        return self._value(TargetList, response)

    def list_samples(self, selection: Selection, *, limit: int) -> tuple[StoredSample, ...]:
        """The newest `limit` samples of the selection."""
        if limit > _MAX_IN_ONE_ANSWER:
            return tuple(sample for portion in self.export_samples(selection, newest=limit) for sample in portion)
        request = messages.ListSamplesRequest(selection=encode(selection), limit=limit)
        response = self._ask(self._stub.ListSamples, request)
        return tuple(self._value(StoredSample, sample) for sample in response.samples)

    def get_leaderboard(self, selection: Selection, *, order: Order = Order.TTFT) -> Leaderboard:
        """Targets ranked within each region of the selection."""
        request = messages.GetLeaderboardRequest(selection=encode(selection), order=order)
        return self._value(Leaderboard, self._ask(self._stub.GetLeaderboard, request))

    def get_differentials(
        self,
        selection: Selection,
        *,
        baseline: str,
        against: tuple[str, ...] = (),
        metric: Metric = Metric.TTFT,
        explain: bool = False,
    ) -> DifferentialList:
        """Each region of `against` minus `baseline`, per target; without `against`, every other region. With `explain`
        each one says what its phases add.
        """
        request = messages.GetDifferentialsRequest(
            selection=encode(selection), baseline=baseline, against=against, metric=metric, explain=explain
        )
        return self._value(DifferentialList, self._ask(self._stub.GetDifferentials, request))

    def get_coverage(self, selection: Selection) -> CoverageList:
        """Planned and recorded rounds of the selection, per vantage and target."""
        request = messages.GetCoverageRequest(selection=encode(selection))
        return self._value(CoverageList, self._ask(self._stub.GetCoverage, request))

    def list_vantages(self) -> VantageList:
        """Every vantage the collector ever heard of, and how it is doing."""
        return self._value(VantageList, self._ask(self._stub.ListVantages, messages.ListVantagesRequest()))

    def get_spend(self, selection: Selection) -> SpendList:
        """What each vantage of the selection has spent today (UTC), per provider; its window does not apply."""
        request = messages.GetSpendRequest(selection=encode(selection))
        return self._value(SpendList, self._ask(self._stub.GetSpend, request))

    def get_region_costs(self, selection: Selection, *, metric: Metric = Metric.TTFT) -> RegionCostList:
        """Where each provider is nearest, and what the other regions pay."""
        request = messages.GetRegionCostsRequest(selection=encode(selection), metric=metric)
        return self._value(RegionCostList, self._ask(self._stub.GetRegionCosts, request))

    def get_latency_budgets(self, selection: Selection, *, uses: tuple[str, ...] = ()) -> LatencyBudgetList:
        """Which targets keep which use's latency budget from where; all uses when none is named."""
        request = messages.GetLatencyBudgetsRequest(selection=encode(selection), uses=uses)
        return self._value(LatencyBudgetList, self._ask(self._stub.GetLatencyBudgets, request))

    def get_tiers(self, selection: Selection) -> TierList:
        """Targets by price tier."""
        request = messages.GetTiersRequest(selection=encode(selection))
        return self._value(TierList, self._ask(self._stub.GetTiers, request))

    def list_drift(self, selection: Selection) -> DriftList:
        """The lasting changes that were found."""
        request = messages.ListDriftRequest(selection=encode(selection))
        return self._value(DriftList, self._ask(self._stub.ListDrift, request))

    def list_alerts(self, window: Window) -> AlertList:
        """What was raised, and what became of telling it."""
        request = messages.ListAlertsRequest(window=encode(window))
        return self._value(AlertList, self._ask(self._stub.ListAlerts, request))

    def simulate(self, selection: Selection, *, policies: tuple[str, ...] = ()) -> SimulationList:
        """What the policies would have given on the recorded rounds; one of each kind when none is named."""
        request = messages.SimulateRequest(selection=encode(selection), policies=policies)
        return self._value(SimulationList, self._ask(self._stub.Simulate, request))

    def follow_samples(self, selection: Selection, *, since_at: int = 0) -> Iterator[SampleList]:
        """Samples received from `since_at` (0: from now) on, in portions as they are stored, until the iterator is
        closed. The first portion comes at once; portions may be empty.
        """
        request = messages.FollowSamplesRequest(selection=encode(selection), since_at=since_at)
        return self._portions(self._stub.FollowSamples, request)

    def export_samples(self, selection: Selection, *, newest: int = 0) -> Iterator[tuple[StoredSample, ...]]:
        """Every sample of the selection in portions, oldest round first, however long that takes; or so many of the
        newest, newest first.
        """
        request = messages.ExportSamplesRequest(selection=encode(selection), newest=newest)
        return (portion.samples for portion in self._portions(self._stub.ExportSamples, request))

    def get_tables(self, client_region: str, route: str = "") -> RegionTables:
        """The tables in force in a region, of one route or of all."""
        request = route_messages.GetTablesRequest(client_region=client_region, route=route)
        return self._value(RegionTables, self._ask(self._routes.GetTables, request))

    def watch_tables(self, client_region: str = "", route: str = "", *, after: int = 0) -> Iterator[RouteTable | None]:
        """Tables after the generation `after` as they come, in order, until the iterator is closed; all that are in
        force first when it is 0. `None` now and then when nothing comes. Empty names are all regions, all routes.
        """
        request = route_messages.WatchTablesRequest(client_region=client_region, route=route, after_generation=after)
        return self._streamed(self._routes.WatchTables, request, self._table, max(self._timeout_us, _WATCH_SILENCE_US))

    def explain_route(self, client_region: str, route: str, *, generation: int = 0) -> Explanation:
        """Why the table of that generation is as it is; 0 is the newest."""
        request = route_messages.ExplainRouteRequest(client_region=client_region, route=route, generation=generation)
        return self._value(Explanation, self._ask(self._routes.ExplainRoute, request))

    def list_route_events(self, selection: Selection, *, route: str = "") -> RouteEventList:
        """Switches, freezes and plans of the selection's window and regions, of one route or of all, newest first."""
        request = route_messages.ListRouteEventsRequest(selection=encode(selection), route=route)
        return self._value(RouteEventList, self._ask(self._routes.ListRouteEvents, request))

    def regions(self) -> tuple[str, ...]:
        """The regions ever heard of, the baseline's first."""
        plan, seen = self.list_targets(), self.list_vantages()
        return tuple(dict.fromkeys(filter(None, (plan.baseline, *sorted(one.region for one in seen.vantages)))))

    def _table(self, response: route_messages.WatchTablesResponse) -> RouteTable | None:
        return self._value(RouteTable, response.table) if response.HasField("table") else None

    def _portions(
        self, method: "grpc.UnaryStreamMultiCallable[Request, messages.ListSamplesResponse]", request: Request
    ) -> Iterator[SampleList]:
        return self._streamed(method, request, lambda response: self._value(SampleList, response), self._timeout_us)

    def _streamed(
        self,
        method: "grpc.UnaryStreamMultiCallable[Request, Response]",
        request: Request,
        read: Callable[[Response], Value],
        silence_us: int,
    ) -> Iterator[Value]:
        try:
            yield from self._parts_of(method(request), read, silence_us)
        except grpc.RpcError as error:
            # A name is refused before anything else is said, so nothing comes twice.
            if not self._spelled_out(request, error):
                raise self._translated(error) from error
        else:
            return
        try:
            yield from self._parts_of(method(request), read, silence_us)
        except grpc.RpcError as error:
            raise self._translated(error) from error

    def _parts_of(
        self, call: Iterable[Response], read: Callable[[Response], Value], silence_us: int
    ) -> Iterator[Value]:
        cancel = cast(grpc.Call, call).cancel
        responses = iter(call)
        try:
            while True:
                # However long a stream lasts, each part has to come in time.
                impatience = threading.Timer(silence_us / SECOND_US, cancel)
                impatience.daemon = True
                impatience.start()
                try:
                    response = next(responses, None)
                finally:
                    impatience.cancel()
                if response is None:
                    return
                yield read(response)
        finally:
            cancel()

    # In quotes, because the class has parameters for a type checker only.
    def _ask(self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request) -> Response:
        try:
            return method(request, timeout=self._timeout_us / SECOND_US)
        except grpc.RpcError as error:
            if not self._spelled_out(request, error):
                raise self._translated(error) from error
        try:
            return method(request, timeout=self._timeout_us / SECOND_US)
        except grpc.RpcError as error:
            raise self._translated(error) from error

    def _spelled_out(self, request: Message, error: grpc.RpcError) -> bool:
        """Whether the refusal was of short names, which the request now has in full."""
        if cast(grpc.Call, error).code() is not grpc.StatusCode.NOT_FOUND:
            return False
        targets, vantages = messages.ListTargetsRequest(), messages.ListVantagesRequest()
        try:
            plan = self._value(TargetList, self._stub.ListTargets(targets, timeout=self._timeout_us / SECOND_US))
            seen = self._value(VantageList, self._stub.ListVantages(vantages, timeout=self._timeout_us / SECOND_US))
        except grpc.RpcError:
            return False
        regions = frozenset(filter(None, (plan.baseline, *(vantage.region for vantage in seen.vantages))))
        return _respelled(request, Names(regions=regions, targets=plan.targets))

    def _translated(self, error: grpc.RpcError) -> ClientError:
        call = cast(grpc.Call, error)  # what a call raises is that call
        if _NOT_BELIEVED in (call.details() or ""):
            sentence = f"the collector at {self._address} is not the one that was joined: its certificate is another"
            return AccessError(sentence, hint="if its operator has changed the certificate, join again")
        kind, hint = _ERROR_OF.get(call.code(), _ELSE)
        return kind(_sentence(kind, self._address, call.details() or call.code().name.lower()), hint=hint)

    def _value(self, cls: type[Value], message: Message) -> Value:
        try:
            return decode(cls, message)
        except CodecError as error:
            raise CollectorError(
                f"the collector at {self._address} says something this version does not know: {error}",
                hint="is the collector newer than this command? then upgrade it",
            ) from error


def _opened(where: Collector, options: tuple[tuple[str, int], ...]) -> grpc.Channel:
    who = where.identity
    try:
        if who is None:
            return open_channel(where.address, PLAIN, more=options)
        return open_channel(where.address, who.trust, who.credential, more=options)
    except ValueError as error:
        raise AddressError(str(error), hint="join the collector first: isochrone join") from error


def _respelled(request: Any, names: Names) -> bool:  # noqa: ANN401  # any question that may name something
    """Write the request's names in full; whether one of them was not."""
    before = request.SerializeToString(deterministic=True)
    named = {field.name for field in request.DESCRIPTOR.fields}
    if "selection" in named:
        request.selection.regions[:] = [names.region(text) for text in request.selection.regions]
        request.selection.targets[:] = [names.target(text) for text in request.selection.targets]
    if "against" in named:
        request.against[:] = [names.region(text) for text in request.against]
    for field in named & {"baseline", "client_region"}:
        if getattr(request, field):
            setattr(request, field, names.region(getattr(request, field)))
    return bool(request.SerializeToString(deterministic=True) != before)


def _sentence(kind: type[ClientError], address: str, details: str) -> str:
    if kind in (RefusedError, AccessError):
        return details
    if kind is UnreachableError and details.startswith(_NOT_CONNECTED):
        return f"no collector answers at {address}: {details.rpartition(': ')[2]}"
    if kind is SlowError and details == _NOT_IN_TIME:
        return f"the collector at {address} did not answer in time"
    return f"the collector at {address} failed: {details}"
