"""Prometheus metrics of a collector, from numbers that exist anyway.

Names begin with `isochrone_`; durations are `_seconds`, counters `_total`. See docs/collector.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

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
from isochrone_wire.answers import Quantile
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteEntry, RouteState, RouteTable

# Statistics of psycopg's pool → the label `state` of isochrone_pool_connections.
_POOL = {"pool_available": "idle", "pool_size": "all"}


def families(
    pushes: CollectorRegistry,
    *,
    series: Sequence[Series],
    left_out: Mapping[str, int],
    plan_version: Callable[[], int],
    pool: Callable[[], Mapping[str, int]],
    clock: ClockGuard,
    jobs: Callable[[], Mapping[str, JobHealth]],
    expiring: Callable[[], int],
    disk: Callable[[], DiskSpace | None],
    alerts: AlertState,
    deliveries: Mapping[str, Mapping[str, int]],
) -> Iterator[Metric]:
    """Yield every metric. `pushes` has the counters of pushes, `series` the counts of probes and `left_out` the number
    of those that are in no series, by reason; `pool` returns the statistics of psycopg's pool; `deliveries` are the
    numbers of alerts by receiver and result.
    """
    yield InfoMetricFamily("isochrone_build", "This collector.", value={"version": __version__})
    yield from pushes.collect()
    yield from probe_metrics.families(series)
    yield _left_out(left_out)
    yield from _incidents(alerts)
    yield from _deliveries(alerts.overdue, deliveries)
    yield GaugeMetricFamily("isochrone_plan_version", "The plan in force, 0 before the first.", value=plan_version())
    yield GaugeMetricFamily("isochrone_clock_trusted", "1, or 0 while jobs are paused.", value=not clock.reason)
    corrected_s = clock.verdict.correction_us / SECOND_US
    yield GaugeMetricFamily("isochrone_clock_correction_seconds", "Added to the wall clock.", value=corrected_s)
    described = "Names whose credential is about to expire, because its holder has not renewed it."
    yield GaugeMetricFamily("isochrone_credentials_expiring", described, value=expiring())
    if (space := disk()) is not None:
        yield GaugeMetricFamily("isochrone_disk_free_bytes", "Free on the database's disk.", value=space.free_bytes)
        yield GaugeMetricFamily("isochrone_disk_level", "0 to 3: ok, low, no backlog, full.", value=space.level)
    yield from _pool(pool())
    yield from _jobs(jobs())


def _left_out(samples: Mapping[str, int]) -> Metric:
    described = "Samples stored that no series counts."
    family = CounterMetricFamily("isochrone_metrics_left_out_samples", described, labels=["reason"])
    for reason in REASONS:
        family.add_metric([reason], samples.get(reason, 0))
    return family


def _incidents(alerts: AlertState) -> Iterator[Metric]:
    described = "1 for every region from which an open incident's target fails."
    family = GaugeMetricFamily("isochrone_incident_open", described, labels=["kind", *probe_metrics.LABELS])
    for labels in alerts.incidents:
        family.add_metric(labels, 1)
    yield family
    described = "Regions of open incidents above the limit of series."
    yield GaugeMetricFamily("isochrone_incident_open_left_out", described, value=alerts.left_out)


def _deliveries(overdue: Mapping[str, int], results: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    described = "Alerts that a receiver has not accepted, without those that silences hold or that wait for a group."
    gauge = GaugeMetricFamily("isochrone_alerts_overdue", described, labels=["receiver"])
    for receiver, number in overdue.items():
        gauge.add_metric([receiver], number)
    yield gauge
    described = "Alerts that this collector sent: delivered, given up, and failed, once for each attempt."
    family = CounterMetricFamily("isochrone_alert_deliveries", described, labels=["receiver", "result"])
    for receiver, numbers in results.items():
        for result, number in numbers.items():
            family.add_metric([receiver, result], number)
    yield family


def _jobs(health: Mapping[str, JobHealth]) -> Iterator[Metric]:
    failures = CounterMetricFamily("isochrone_job_failures", "Runs of a job that failed.", labels=["job"])
    failing = GaugeMetricFamily("isochrone_job_failing", "Failures in a row, 0 after a good run.", labels=["job"])
    for name, one in health.items():
        failures.add_metric([name], one.failures_total)
        failing.add_metric([name], one.failures)
    yield failures
    yield failing


def _pool(statistics: Mapping[str, int]) -> Iterator[Metric]:
    connections = GaugeMetricFamily("isochrone_pool_connections", "Connections to PostgreSQL.", labels=["state"])
    for name, state in _POOL.items():
        connections.add_metric([state], statistics.get(name, 0))
    yield connections
    waiting = statistics.get("requests_waiting", 0)
    yield GaugeMetricFamily("isochrone_pool_waiting", "Requests that wait for a connection.", value=waiting)
    waited_s = statistics.get("requests_wait_ms", 0) / 1000
    yield CounterMetricFamily("isochrone_pool_wait_seconds", "Time spent waiting for a connection.", value=waited_s)
    errors = statistics.get("connections_errors", 0)
    yield CounterMetricFamily("isochrone_pool_connect_errors", "Connections that could not be made.", value=errors)


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


def table_families(
    tables: Sequence[RouteTable],
    *,
    switches: Mapping[tuple[str, str, str], int],
    rejections: Mapping[tuple[str, str], int],
    watchers: int,
    now_at: int,
) -> Iterator[Metric]:
    """Yield every metric of tables. `switches` counts by region, route and kind, `rejections` by region and type."""
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
