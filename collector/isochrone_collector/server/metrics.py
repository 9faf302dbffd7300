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
from isochrone_wire.model import SECOND_US

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
