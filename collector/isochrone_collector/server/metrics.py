"""What Prometheus reads of a collector: counters that exist anyway, under their names for the outside.

Names begin with `isochrone_`; durations are `_seconds`, counters `_total`. See docs/collector.md.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from isochrone_collector.ingest.push_counters import PushCounters, copied
from isochrone_wire import __version__
from isochrone_wire.model import SECOND_US

# Statistics of psycopg's pool → the state of a connection, and what is said of it.
_POOL = {"pool_available": "idle", "pool_size": "all"}


def families(
    tally: PushCounters, *, plan_version: Callable[[], int], pool: Callable[[], Mapping[str, int]]
) -> Iterator[Metric]:
    """Every metric as it is now. `pool` gives the statistics of psycopg's connection pool."""
    yield InfoMetricFamily("isochrone_build", "This collector.", value={"version": __version__})
    yield CounterMetricFamily("isochrone_samples_stored", "Samples committed.", value=tally.stored)
    yield CounterMetricFamily(
        "isochrone_samples_duplicate", "Samples acknowledged that were stored before.", value=tally.duplicate
    )
    yield _by("isochrone_samples_rejected", "Samples refused.", "reason", copied(tally.rejected))
    yield _by("isochrone_pushes", "Pushes answered, by gRPC status.", "status", copied(tally.pushes))
    yield _durations(tally)
    claims = {"new": tally.claimed, "known": tally.repeated}
    yield _by("isochrone_ledger_claims", "Batches that asked for their place in the ledger.", "result", claims)
    yield _last_pushes(tally)
    yield GaugeMetricFamily("isochrone_plan_version", "The plan in force, 0 before the first.", value=plan_version())
    yield from _pool(pool())


def _by(name: str, documentation: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _durations(tally: PushCounters) -> HistogramMetricFamily:
    family = HistogramMetricFamily("isochrone_push_duration_seconds", "From the request to the reply, commit included.")
    buckets = [("+Inf" if us is None else str(us / SECOND_US), count) for us, count in tally.cumulative()]
    family.add_metric([], buckets=buckets, sum_value=tally.duration_us / SECOND_US)
    return family


def _last_pushes(tally: PushCounters) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "isochrone_vantage_last_push_timestamp_seconds",
        "When a vantage was last answered, by the collector's clock.",
        labels=["vantage"],
    )
    for vantage, at in sorted(copied(tally.heard_at).items()):
        family.add_metric([vantage], at / SECOND_US)
    return family


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
