"""Prometheus metrics of the route tables in force, of the generations that consumers get.

Metrics of a member have the labels of the route and of the member. See docs/routing.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from isochrone_wire.answers import Quantile
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteEntry, RouteState, RouteTable

_ROUTE = ["client_region", "route"]
_MEMBER = [*_ROUTE, "target", "provider", "model"]


def _success(entry: RouteEntry) -> float | None:
    return None if entry.success is None else entry.success.value


# Name, help and value of each gauge of a member; a value of `None` is not exposed.
_GAUGES: tuple[tuple[str, str, Callable[[RouteEntry], float | None]], ...] = (
    ("isochrone_route_rank", "Place in the ranking; equal members share one.", lambda entry: entry.rank),
    ("isochrone_route_weight", "Share of the requests, from 0 to 1.", lambda entry: entry.weight),
    ("isochrone_route_success_ratio", "Share of probes that succeeded.", _success),
    ("isochrone_route_samples", "Samples behind the ranking.", lambda entry: entry.n),
)


def families(
    tables: Sequence[RouteTable],
    *,
    switches: Mapping[tuple[str, str, str], int],
    rejections: Mapping[tuple[str, str], int],
    watchers: int,
    now_at: int,
) -> Iterator[Metric]:
    """Yield every metric of tables as of an instant; `switches` counts by client region, route and kind of change,
    `rejections` by client region and kind of resource.
    """
    for name, documentation, value_of in _GAUGES:
        yield _of_members(name, documentation, tables, value_of)
    yield _quantiles(tables)
    yield _goodput(tables)
    yield _of_tables("isochrone_route_generation", "Number of the table.", tables, lambda table: table.generation)
    yield _of_tables(
        "isochrone_route_age_seconds", "Time since the newest evidence.", tables, lambda table: _age_s(table, now_at)
    )
    yield _of_tables(
        "isochrone_route_stale_timestamp_seconds",
        "End of the validity of the table.",
        tables,
        lambda table: table.stale_until_at / SECOND_US,
    )
    yield _states(tables)
    yield _switches(switches)
    yield _rejections(rejections)
    yield GaugeMetricFamily("isochrone_route_watchers", "Watchers of tables at this collector.", value=watchers)


def _of_members(
    name: str, documentation: str, tables: Sequence[RouteTable], value_of: Callable[[RouteEntry], float | None]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation, labels=_MEMBER)
    for table in tables:
        for entry in table.entries:
            value = value_of(entry)
            if value is not None:
                family.add_metric(_labels(table, entry), value)
    return family


def _quantiles(tables: Sequence[RouteTable]) -> GaugeMetricFamily:
    family = GaugeMetricFamily("isochrone_route_ttft_seconds", "Time to first token.", labels=[*_MEMBER, "quantile"])
    for table in tables:
        for entry in table.entries:
            for share, found in _known(entry):
                family.add_metric([*_labels(table, entry), share], found.value / SECOND_US)
    return family


def _goodput(tables: Sequence[RouteTable]) -> GaugeMetricFamily:
    described = "Share of planned requests that kept the limits of the route's objective."
    family = GaugeMetricFamily("isochrone_goodput_ratio", described, labels=["region", "route", *_MEMBER[2:]])
    for table in tables:
        for entry in table.entries:
            if entry.goodput is not None:
                family.add_metric(_labels(table, entry), entry.goodput.value)
    return family


def _known(entry: RouteEntry) -> Iterator[tuple[str, Quantile]]:
    for share, found in (("0.5", entry.ttft_p50_us), ("0.95", entry.ttft_p95_us)):
        if found is not None:
            yield share, found


def _of_tables(
    name: str, documentation: str, tables: Sequence[RouteTable], value_of: Callable[[RouteTable], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation, labels=_ROUTE)
    for table in tables:
        family.add_metric([table.client_region, table.route], value_of(table))
    return family


def _states(tables: Sequence[RouteTable]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "isochrone_route_state", "1 for the state of the table, 0 for the others.", labels=[*_ROUTE, "state"]
    )
    for table in tables:
        for state in RouteState:
            family.add_metric([table.client_region, table.route, state.value], float(state is table.state))
    return family


def _switches(switches: Mapping[tuple[str, str, str], int]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        "isochrone_route_switches",
        "Changes of the first choice that this collector saw, by rule.",
        labels=[*_ROUTE, "change"],
    )
    for labels, count in sorted(dict(switches).items()):
        family.add_metric(list(labels), count)
    return family


def _rejections(rejections: Mapping[tuple[str, str], int]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        "isochrone_envoy_rejections",
        "Responses that an Envoy rejected, by kind of resource.",
        labels=["client_region", "resources"],
    )
    for labels, count in sorted(dict(rejections).items()):
        family.add_metric(list(labels), count)
    return family


def _age_s(table: RouteTable, now_at: int) -> float:
    newest_at = max((entry.newest_at for entry in table.entries if entry.newest_at is not None), default=table.built_at)
    return max(0, now_at - newest_at) / SECOND_US


def _labels(table: RouteTable, entry: RouteEntry) -> list[str]:
    return [table.client_region, table.route, entry.target, entry.provider, entry.model]
