"""Prometheus metrics of a collector, from numbers that exist anyway.

Names begin with `isochrone_`; durations are `_seconds`, counters `_total`. See docs/collector.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from isochrone_collector.alerting.service import AlertState
from isochrone_collector.analysis.probe_totals import REASONS
from isochrone_collector.clock import ClockGuard
from isochrone_collector.disk_space import DiskSpace
from isochrone_collector.jobs.registry import JobHealth
from isochrone_common import probe_metrics
from isochrone_common.probe_metrics import Series
from isochrone_wire import __version__
from isochrone_wire.answers import Proportion
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteEntry, RouteState, RouteTable

# Statistics of psycopg's pool → the label `state` of isochrone_pool_connections.
_POOL = {"pool_available": "idle", "pool_size": "all"}


def _family(
    family: Any,  # noqa: ANN401  # a class of prometheus_client
    name: str,
    documentation: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], float | None]],
) -> Metric:
    found: Any = family(name, documentation, labels=labels)
    for of_labels, value in values:
        if value is not None:
            found.add_metric(of_labels, value)
    metric: Metric = found
    return metric


_gauge, _counter = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)


def families(
    pushes: CollectorRegistry,
    *,
    series: Sequence[Series],
    left_out: Mapping[str, int],
    plan_version: int,
    pool: Mapping[str, int],
    clock: ClockGuard,
    jobs: Mapping[str, JobHealth],
    expiring: int,
    disk: DiskSpace | None,
    alerts: AlertState,
    deliveries: Mapping[str, Mapping[str, int]],
) -> Iterator[Metric]:
    """Yield every metric but those of tables. `series` are the counts of probes, and `left_out` the number of those in
    no series, by reason; `pool` are the statistics of psycopg's pool, `deliveries` numbers by receiver and result.
    """
    yield InfoMetricFamily("isochrone_build", "This collector.", value={"version": __version__})
    yield from pushes.collect()
    yield from probe_metrics.families(series)
    yield _counter(
        "isochrone_metrics_left_out_samples",
        "Samples stored that no series counts.",
        ["reason"],
        (([reason], left_out.get(reason, 0)) for reason in REASONS),
    )
    yield from _of_alerts(alerts, deliveries)
    yield _counter(
        "isochrone_job_failures",
        "Runs of a job that failed.",
        ["job"],
        (([name], one.failures_total) for name, one in jobs.items()),
    )
    yield _gauge(
        "isochrone_job_failing",
        "Failures in a row, 0 after a good run.",
        ["job"],
        (([name], one.failures) for name, one in jobs.items()),
    )
    yield from _of_pool(pool)
    corrected_s = clock.verdict.correction_us / SECOND_US
    gauges: list[tuple[str, str, float]] = [
        ("isochrone_plan_version", "The plan in force, 0 before the first.", plan_version),
        ("isochrone_clock_trusted", "1, or 0 while jobs are paused.", not clock.reason),
        ("isochrone_clock_correction_seconds", "Added to the wall clock.", corrected_s),
        ("isochrone_credentials_expiring", "Names whose credential is about to expire, not renewed.", expiring),
    ]
    if disk is not None:
        gauges.append(("isochrone_disk_free_bytes", "Free on the database's disk.", disk.free_bytes))
        gauges.append(("isochrone_disk_level", "0 to 3: ok, low, no backlog, full.", disk.level))
    yield from (GaugeMetricFamily(name, documentation, value=value) for name, documentation, value in gauges)


def _of_alerts(alerts: AlertState, deliveries: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    yield _gauge(
        "isochrone_incident_open",
        "1 for every region from which an open incident's target fails.",
        ["kind", *probe_metrics.LABELS],
        ((labels, 1) for labels in alerts.incidents),
    )
    above = "Regions of open incidents above the limit of series."
    yield GaugeMetricFamily("isochrone_incident_open_left_out", above, value=alerts.left_out)
    yield _gauge(
        "isochrone_alerts_overdue",
        "Alerts that a receiver has not accepted, without those that silences hold or that wait for a group.",
        ["receiver"],
        (([receiver], number) for receiver, number in alerts.overdue.items()),
    )
    yield _counter(
        "isochrone_alert_deliveries",
        "Alerts that this collector sent: delivered, given up, and failed, once for each attempt.",
        ["receiver", "result"],
        (([receiver, result], n) for receiver, numbers in deliveries.items() for result, n in numbers.items()),
    )


def _of_pool(pool: Mapping[str, int]) -> Iterator[Metric]:
    states = (([state], pool.get(name, 0)) for name, state in _POOL.items())
    yield _gauge("isochrone_pool_connections", "Connections to PostgreSQL.", ["state"], states)
    waiting, waited_s = pool.get("requests_waiting", 0), pool.get("requests_wait_ms", 0) / 1000
    errors = pool.get("connections_errors", 0)
    yield GaugeMetricFamily("isochrone_pool_waiting", "Requests that wait for a connection.", value=waiting)
    yield CounterMetricFamily("isochrone_pool_wait_seconds", "Time spent waiting for a connection.", value=waited_s)
    yield CounterMetricFamily("isochrone_pool_connect_errors", "Connections that could not be made.", value=errors)


_ROUTE = ["client_region", "route"]
_MEMBER = [*_ROUTE, "target", "provider", "model"]

# Name, help and value of each gauge of a member.
_GAUGES: tuple[tuple[str, str, Callable[[RouteEntry], float | None]], ...] = (
    ("isochrone_route_rank", "Place in the ranking; equal members share one.", lambda entry: entry.rank),
    ("isochrone_route_weight", "Share of the requests, from 0 to 1.", lambda entry: entry.weight),
    ("isochrone_route_success_ratio", "Share of probes that succeeded.", lambda entry: _value(entry.success)),
    ("isochrone_route_samples", "Samples behind the ranking.", lambda entry: entry.n),
)


def table_families(
    tables: Sequence[RouteTable],
    *,
    switches: Mapping[tuple[str, str, str], int],
    rejections: Mapping[tuple[str, str], int],
    watchers: int,
    now_at: int,
) -> Iterator[Metric]:
    """Yield every metric of tables. `switches` counts by region, route and kind, `rejections` by region and type."""
    members = [
        ([table.client_region, table.route, entry.target, entry.provider, entry.model], entry)
        for table in tables
        for entry in table.entries
    ]
    routes = [([table.client_region, table.route], table) for table in tables]
    for name, documentation, value_of in _GAUGES:
        yield _gauge(name, documentation, _MEMBER, ((labels, value_of(entry)) for labels, entry in members))
    ttft = _gauge(
        "isochrone_route_ttft_seconds",
        "Time to first token.",
        [*_MEMBER, "quantile"],
        (
            ([*labels, share], None if found is None else found.value / SECOND_US)
            for labels, entry in members
            for share, found in (("0.5", entry.ttft_p50_us), ("0.95", entry.ttft_p95_us))
        ),
    )
    ttft.type = "summary"  # the only type that may have this label
    yield ttft
    yield _gauge(
        "isochrone_goodput_ratio",
        "Share of planned requests that kept the limits of the route's objective.",
        ["region", "route", *_MEMBER[2:]],
        ((labels, _value(entry.goodput)) for labels, entry in members),
    )
    of_tables: tuple[tuple[str, str, Callable[[RouteTable], float]], ...] = (
        ("isochrone_route_generation", "Number of the table.", lambda table: table.generation),
        ("isochrone_route_age_seconds", "Time since the newest evidence.", lambda table: _age_s(table, now_at)),
        (
            "isochrone_route_stale_timestamp_seconds",
            "End of the validity of the table.",
            lambda table: table.stale_until_at / SECOND_US,
        ),
    )
    for name, documentation, of_table in of_tables:
        yield _gauge(name, documentation, _ROUTE, ((labels, of_table(table)) for labels, table in routes))
    yield _gauge(
        "isochrone_route_state",
        "1 for the state of the table, 0 for the others.",
        [*_ROUTE, "state"],
        (([*labels, state.value], state is table.state) for labels, table in routes for state in RouteState),
    )
    yield _counter(
        "isochrone_route_switches",
        "Changes of the first choice that this collector saw, by rule.",
        [*_ROUTE, "change"],
        sorted(dict(switches).items()),
    )
    yield _counter(
        "isochrone_envoy_rejections",
        "Responses that an Envoy rejected, by kind of resource.",
        ["client_region", "resources"],
        sorted(dict(rejections).items()),
    )
    yield GaugeMetricFamily("isochrone_route_watchers", "Watchers of tables at this collector.", value=watchers)


def _value(found: Proportion | None) -> float | None:
    return None if found is None else found.value


def _age_s(table: RouteTable, now_at: int) -> float:
    newest_at = max((entry.newest_at for entry in table.entries if entry.newest_at is not None), default=table.built_at)
    return max(0, now_at - newest_at) / SECOND_US
