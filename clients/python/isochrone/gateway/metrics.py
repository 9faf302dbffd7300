"""The metrics of a gateway, for Prometheus."""

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from isochrone.routing.routes import Routes
from isochrone_wire.durations import SECOND_US

REQUESTS = Counter(
    "isochrone_gateway_requests",
    "Requests by route, member that answered and status; without a member, the gateway answered, or the caller left.",
    ("route", "target", "status"),
)
FIRST_CONTENT = Histogram(
    "isochrone_gateway_first_content_seconds",
    "Time from a request to the head of its answer, which is sent with the first content of a stream.",
    ("route", "target"),
    buckets=(0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 3, 5, 8, 13, 21, 34, 60),
)
EVENTS = Counter("isochrone_gateway_events", "Events that `counters` of the clients count, too.", ("event",))
STALE = Gauge("isochrone_gateway_table_stale_timestamp_seconds", "When the table in use expires.", ("route",))


def exposition(routes: Routes, accept: str) -> tuple[bytes, str]:
    """Return the metrics of this process in the format of an `Accept` header, with the media type."""
    for table in routes.tables():
        STALE.labels(table.route).set(table.stale_until_at / SECOND_US)
    encode, media_type = choose_encoder(accept)
    return encode(REGISTRY), media_type
