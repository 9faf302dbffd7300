"""The metrics of a gateway, for Prometheus."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from isochrone.routing.routes import Routes
from isochrone_wire.durations import SECOND_US

_BUCKETS_S = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 3, 5, 8, 13, 21, 34, 60)


class Metrics:
    """Metrics of requests, and those of their `routes`."""

    def __init__(self, routes: Routes) -> None:
        self._routes, self._registry = routes, CollectorRegistry()
        self._requests = Counter(
            "isochrone_gateway_requests",
            "Requests by route, member that answered and status; without a member, the gateway answered.",
            ("route", "target", "status"),
            registry=self._registry,
        )
        self._first_content = Histogram(
            "isochrone_gateway_first_content_seconds",
            "Time from a request to the head of its answer, which is sent with the first content of a stream.",
            ("route", "target"),
            buckets=_BUCKETS_S,
            registry=self._registry,
        )

    def count(self, member: Mapping[str, str], status: int | None, first_s: float | None) -> None:
        """Count a request by the `route` and the `target` that answered it; without a status the caller left."""
        labels = member.get("route", ""), member.get("target", "")
        self._requests.labels(*labels, str(status or "")).inc()
        if member and first_s is not None:
            self._first_content.labels(*labels).observe(first_s)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this instant."""
        yield from self._registry.collect()
        events = CounterMetricFamily(
            "isochrone_gateway_events", "Events that the clients count, too.", labels=["event"]
        )
        for name, count in sorted(self._routes.counters.items()):
            events.add_metric([name], count)
        stale = GaugeMetricFamily(
            "isochrone_gateway_table_stale_timestamp_seconds", "When the table in use expires.", labels=["route"]
        )
        for table in self._routes.tables():
            stale.add_metric([table.route], table.stale_until_at / SECOND_US)
        yield from (events, stale)
