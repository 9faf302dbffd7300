"""A typed client of the collector's reading API: its HTTP interface under /v1.

with ReadClient("127.0.0.1:4680") as client:
    answer = client.get_leaderboard(Selection(window=window))
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlencode

from isochrone_client.address import Collector, resolve_collector
from isochrone_client.connection import Connections
from isochrone_client.errors import CollectorError, RefusedError, SlowError, UnknownNameError, UnreachableError
from isochrone_client.names import Names
from isochrone_common.identity_file import renew_if_due
from isochrone_common.sse import SseDecoder
from isochrone_wire.answers import DifferentialList, Metric, Order, Selection, Window
from isochrone_wire.durations import SECOND_US
from isochrone_wire.json_format import from_json, rfc3339
from isochrone_wire.queries.documents import read_document, read_fields

if TYPE_CHECKING:
    from email.message import Message

    from isochrone_wire import fleet, insights, operations, routes
    from isochrone_wire.queries import series, status
else:

    class _Late:
        """A module that is imported when it is used: to make a class takes a millisecond, and a command needs few."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any class of the module
            return getattr(import_module(self._name), name)

    fleet, insights, operations, routes = (
        _Late(f"isochrone_wire.{name}") for name in ("fleet", "insights", "operations", "routes")
    )
    series, status = (_Late(f"isochrone_wire.queries.{name}") for name in ("series", "status"))

CONNECT_TIMEOUT_US = 3 * SECOND_US
ANSWER_TIMEOUT_US = 30 * SECOND_US
# A stream of events has a heartbeat at least every ten seconds.
_HEARTBEAT_TIMEOUT_US = 25 * SECOND_US
# More samples come as an export, line by line.
_MAX_SAMPLES_PER_DOCUMENT = 1_000
_INSTANT_HEADERS = {"answered_at": "X-Isochrone-Answered-At", "stale_since_at": "X-Isochrone-Stale-Since"}

Parameters = tuple[tuple[str, str], ...]
Value = TypeVar("Value")


class ReadClient:
    """A client of the collector at `HOST:PORT` on this machine, or of one that was joined.

    Regions and targets may be given by the short names of `names`: if the collector does not know a name, the client
    looks up the existing names and repeats the call.

    Every method waits at most `timeout_us` microseconds for the answer, after `connect_timeout_us` for the connection.
    All raise `RefusedError`, `UsageError`, `AccessError`, `UnreachableError`, `SlowError` or `CollectorError`; the
    constructor raises `AddressError`.
    """

    def __init__(
        self,
        collector: str | Collector,
        *,
        timeout_us: int = ANSWER_TIMEOUT_US,
        connect_timeout_us: int = CONNECT_TIMEOUT_US,
    ) -> None:
        self._collector = resolve_collector(collector) if isinstance(collector, str) else collector
        self._timeout_us = timeout_us
        self._connect_timeout_us = connect_timeout_us
        self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Renew the identity if that is due, and close the connections. The client cannot be used afterwards."""
        if self._was_answered:
            self.renew()
        self._connections.close()

    def _connect(self) -> None:
        self._connections = Connections(
            self._collector, timeout_us=self._timeout_us, connect_timeout_us=self._connect_timeout_us
        )
        self._was_answered = False

    def renew(self) -> None:
        """Renew the identity if that is due, and use it for later calls."""
        identity, path = self._collector.identity, self._collector.path
        if identity is None or path is None:
            return
        later = renew_if_due(path, identity)
        if later != identity:
            self._connections.close()
            self._collector = replace(self._collector, identity=later)
            self._connect()

    def begin_login(self) -> str:
        """The token of a link that begins one session of the live page, within a minute; empty where it needs none."""
        return str(self._value(itemgetter("token"), self._connections.ask("/session/link", "POST")[0]))

    def get_baseline(self) -> str:
        """The baseline region of the plan in force; empty before the first plan."""
        # Without the classes of targets, which take as long to make as the call.
        return str(self._value(itemgetter("baseline"), self._document("/v1/targets", ())[0]))

    def list_targets(self) -> "fleet.TargetList":
        """The targets of the plan in force and its baseline region."""
        return self._ask(fleet.TargetList, "/v1/targets")

    def list_samples(self, selection: Selection, *, limit: int, matching: str = "") -> "tuple[fleet.StoredSample, ...]":
        """The newest `limit` samples of the selection that pass the filter `matching`, newest first."""
        if limit > _MAX_SAMPLES_PER_DOCUMENT:
            found = self.export_samples(selection, newest=limit, matching=matching)
            return tuple(sample for batch in found for sample in batch)
        return self._ask(fleet.SampleList, "/v1/samples", selection, limit=limit, filter=matching).samples[::-1]

    def get_sample(self, sample_id: str) -> "fleet.StoredSample":
        """The sample with this id."""
        (found,) = self._ask(fleet.SampleList, "/v1/samples/{id}", id=(sample_id,)).samples
        return found

    def get_leaderboard(self, selection: Selection, *, order: Order = Order.TTFT) -> "insights.Leaderboard":
        """Targets ranked within each region of the selection."""
        return self._ask(insights.Leaderboard, "/v1/leaderboard", selection, by=order)

    def get_differentials(
        self,
        selection: Selection,
        *,
        baseline: str,
        against: tuple[str, ...] = (),
        metric: Metric = Metric.TTFT,
        explain: bool = False,
    ) -> DifferentialList:
        """Each region of `against` (empty: every other one) minus `baseline`, per target; `explain` adds the phases."""
        asked = {"baseline": baseline, "metric": metric, "explain": explain and "true", "against": against}
        return self._ask(DifferentialList, "/v1/diff", selection, **asked)

    def get_coverage(self, selection: Selection) -> "fleet.CoverageList":
        """Planned and recorded rounds of the selection, per vantage and target."""
        return self._ask(fleet.CoverageList, "/v1/coverage", selection)

    def list_vantages(self) -> "fleet.VantageList":
        """Every vantage known to the collector, with its status."""
        return self._ask(fleet.VantageList, "/v1/vantages")

    def get_spend(self, selection: Selection) -> "fleet.SpendList":
        """Today's spend (UTC) of each vantage of the selection, per provider; its window does not apply."""
        return self._ask(fleet.SpendList, "/v1/spend", region=selection.regions, target=selection.targets)

    def get_region_costs(self, selection: Selection, *, metric: Metric = Metric.TTFT) -> "insights.RegionCostList":
        """The nearest region of each provider, and the latency that the other regions add."""
        return self._ask(insights.RegionCostList, "/v1/region-costs", selection, metric=metric)

    def get_latency_budgets(
        self,
        selection: Selection,
        *,
        uses: tuple[str, ...] = (),
        by: str = "",
        answer_tokens: int = 0,
        limit_us: int = 0,
        min_tokens_per_second: float = 0.0,
    ) -> "insights.LatencyBudgetList":
        """Verdicts on the latency targets of `uses` (empty: all), per target and region; `by` "hour", per hour, too."""
        limits = {"answer": answer_tokens, "limit": _seconds(limit_us), "min-speed": min_tokens_per_second}
        return self._ask(insights.LatencyBudgetList, "/v1/slo", selection, use=uses, by=by, **limits)

    def get_tiers(self, selection: Selection) -> "insights.TierList":
        """Targets by price tier."""
        return self._ask(insights.TierList, "/v1/tiers", selection)

    def get_series(
        self, selection: Selection, *, metric: Metric = Metric.TTFT, points: int = 0, limit_us: int = 0, bins: int = 0
    ) -> "series.SeriesList":
        """Quantiles and outcomes over time, in at most `points` buckets (0: as many as the collector allows); with a
        `limit_us` on the metric the goodput, too, and with `bins` the distribution of the values in at most so many.
        """
        more = {"metric": metric, "points": points, "limit": _seconds(limit_us), "bins": bins}
        return self._ask(series.SeriesList, "/v1/series", selection, **more)

    def get_rate_limits(self, selection: Selection, *, points: int = 0) -> "insights.RateLimitList":
        """The rate limits in response headers, their history in at most `points` buckets (0: 24), and a forecast."""
        return self._ask(insights.RateLimitList, "/v1/rate-limits", selection, points=points)

    def list_drift(self, selection: Selection) -> "insights.DriftList":
        """The lasting changes in the selection."""
        return self._ask(insights.DriftList, "/v1/drift", selection)

    def get_status(self) -> "status.StatusList":
        """What is wrong now, and the state of each target from each region."""
        return self._ask(status.StatusList, "/v1/status")

    def list_incidents(self, window: Window, *, past: bool = False, incident_id: int = 0) -> "insights.IncidentList":
        """Open incidents, and with `past` those of the window that have recovered; or one of them by its id."""
        if incident_id:
            return self._ask(insights.IncidentList, "/v1/incidents/{id}", id=operations.incident_name(incident_id))
        return self._ask(insights.IncidentList, "/v1/incidents", window, past=past and "true")

    def list_alerts(self, window: Window) -> "insights.AlertList":
        """Alerts raised in the window, with their delivery."""
        return self._ask(insights.AlertList, "/v1/alerts", window)

    def simulate(self, selection: Selection, *, policies: tuple[str, ...] = ()) -> "insights.SimulationList":
        """The results of `policies` (empty: one of each kind) replayed on the recorded rounds."""
        return self._ask(insights.SimulationList, "/v1/simulations", selection, policy=policies)

    def follow_samples(
        self, selection: Selection, *, since_at: int = 0, matching: str = ""
    ) -> "Iterator[fleet.SampleList]":
        """Samples that pass the filter `matching`, received since `since_at` (0: now), in batches as they are stored,
        until the iterator is closed.

        The first batch comes at once; batches may be empty.
        """
        since = rfc3339(since_at) if since_at else ""
        asked = _parameters(region=selection.regions, target=selection.targets, since=since, filter=matching)
        events = self._events("/v1/samples/watch", asked)
        yield from (self._read(event, partial(read_fields, fleet.SampleList)) for event in events if event is not None)

    def export_samples(
        self, selection: Selection, *, newest: int = 0, after: str = "", matching: str = ""
    ) -> "Iterator[tuple[fleet.StoredSample, ...]]":
        """Every sample of the selection that passes the filter `matching`, in batches, oldest round first, without a
        limit on the total time; or the `newest` so many, newest first; or those `after` the sample with this id.
        """
        parameters = _parameters(selection, newest=newest, after=after, filter=matching)
        rest = b""
        for piece in self._pieces("/v1/samples/export", parameters, self._timeout_us):
            *lines, rest = (rest + piece).split(b"\n")
            if lines:
                rows = b'{"rows": [%s]}' % b",".join(lines)
                yield self._read(rows, partial(read_fields, fleet.SampleList)).samples

    def get_tables(self, client_region: str, route: str = "") -> "routes.RegionTables":
        """The tables in force in a region, of one route or of all (empty name)."""
        parameters = _parameters(client_region=(client_region,), route=route)
        document, headers = self._document("/v1/routes/{client_region}", parameters)
        instants = {name: headers[header] for name, header in _INSTANT_HEADERS.items() if header in headers}
        return self._value(partial(from_json, routes.RegionTables), {**document, **instants})

    def list_tables(self, regions: tuple[str, ...] = (), route: str = "") -> "tuple[routes.RouteTable, ...]":
        """The tables in force in `regions` (empty: all regions with tables), of one route or of all (empty name).

        Empty if no region has a table yet. Raises `RefusedError` if the region or route is unknown while other tables
        exist.
        """
        overview = self._value(partial(from_json, routes.Overview), self._document("/v1/routes", ())[0])
        with_route = dict.fromkeys(one.client_region for one in overview.tables if route in ("", one.route))
        # Any region refuses an unknown route.
        chosen = (regions or tuple(with_route) or overview.client_regions[:1]) if overview.tables else ()
        return tuple(table for region in chosen for table in self.get_tables(region, route).tables)

    def watch_tables(
        self, client_region: str = "", route: str = "", *, after: int = 0
    ) -> "Iterator[routes.RouteTable | None]":
        """Tables after the generation `after` as they are published, in order, until the iterator is closed; with 0,
        first all tables in force. Yields `None` from time to time between tables. Empty names: all regions, all routes.
        """
        parameters = _parameters(client_region=client_region, route=route, after=after)
        for event in self._events("/v1/routes/watch", parameters):
            yield None if event is None else self._read(event, partial(from_json, routes.RouteTable))

    def explain_route(self, client_region: str, route: str, *, generation: int = 0) -> "routes.Explanation":
        """The decision behind the table of a generation (0: the newest), step by step."""
        parameters = _parameters(client_region=(client_region,), route=(route,), generation=generation)
        document, _ = self._document("/v1/explain/{client_region}/{route}", parameters)
        return self._value(partial(from_json, routes.Explanation), document)

    def list_route_events(self, selection: Selection, *, route: str = "") -> "routes.RouteEventList":
        """Switches, freezes and plans of the selection's window and regions, of one route or of all, newest first."""
        window, regions = selection.window, selection.regions
        return self._ask(routes.RouteEventList, "/v1/route-events", window, region=regions, route=route)

    def names(self) -> Names:
        """The known regions, the baseline first, and the targets of the plan in force."""
        return Names.of(self.list_targets(), self.list_vantages())

    def _ask(self, cls: type[Value], path: str, scope: Selection | Window | None = None, **values: object) -> Value:
        document, _ = self._document(path, _parameters(scope, **values))
        return self._value(partial(read_document, cls), document)

    def _document(self, path: str, parameters: Parameters) -> "tuple[Any, Message]":
        try:
            return self._connections.ask(_url(path, parameters))
        except UnknownNameError as error:
            return self._connections.ask(_url(path, self._with_full_names(parameters, error)))

    def _pieces(self, path: str, parameters: Parameters, timeout_us: int) -> Iterator[bytes]:
        try:
            # The collector rejects an unknown name before it sends anything, so no piece is repeated.
            yield from self._connections.stream(_url(path, parameters), timeout_us=timeout_us)
        except UnknownNameError as error:
            full = self._with_full_names(parameters, error)
            yield from self._connections.stream(_url(path, full), timeout_us=timeout_us)

    def _events(self, path: str, parameters: Parameters) -> Iterator[bytes | None]:
        """Yield the data of events, and `None` at least as often as a heartbeat comes."""
        self.renew()  # such a command may run for years
        decoder = SseDecoder(limit=64 << 20)
        for piece in self._pieces(path, parameters, max(self._timeout_us, _HEARTBEAT_TIMEOUT_US)):
            events = self._value(decoder.receive, piece)
            yield from (event.data for event in events)
            if not events:
                yield None

    def _with_full_names(self, parameters: Parameters, error: UnknownNameError) -> Parameters:
        """Return the parameters of a refused request with full names. Raises the error if that changes nothing."""
        try:
            full = self.names().expand(parameters) if parameters else parameters
        except (RefusedError, UnreachableError, SlowError, CollectorError):
            raise error from None
        if full == parameters:
            raise error
        return full

    def _read(self, text: bytes, read: Callable[[Any], Value]) -> Value:
        return self._value(lambda data: read(json.loads(data)), text)

    def _value(self, read: Callable[[Any], Value], data: object) -> Value:
        self._was_answered = True
        try:
            return read(data)
        except (ValueError, LookupError, TypeError) as error:
            raise CollectorError(
                f"cannot decode the answer of the collector at {self._collector}: {error}",
                hint="if the collector is newer than this command, upgrade the command",
            ) from error


def _url(path: str, parameters: Parameters) -> str:
    parts = {name: quote(text, safe="") for name, text in parameters if f"{{{name}}}" in path}
    query = urlencode([(name, text) for name, text in parameters if name not in parts])
    return path.format(**parts) + (f"?{query}" if query else "")


def _parameters(scope: Selection | Window | None = None, **values: object) -> Parameters:
    """The parameters of a selection or a window, and those that are not empty: each of a tuple, and any other value."""
    window = scope.window if isinstance(scope, Selection) else scope
    found: dict[str, object] = {}
    if window is not None:
        found = {"from": rfc3339(window.from_at), "until": rfc3339(window.until_at)}
    if isinstance(scope, Selection):
        found |= {"region": scope.regions, "target": scope.targets}
    found |= values
    parts = {name: of if isinstance(of, tuple) else (of,) if of else () for name, of in found.items()}
    return tuple((name, str(one)) for name, several in parts.items() for one in several)


def _seconds(us: int) -> str:
    return f"{us / SECOND_US:.6f}" if us else ""
