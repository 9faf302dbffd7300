"""Prometheus metrics of the callback, in the default registry, which LiteLLM's proxy serves at `/metrics`."""

from prometheus_client import Counter, Gauge

REQUESTS = Counter(
    "isochrone_litellm_requests",
    "Requests by outcome: routed by a table, by the static order, or left to LiteLLM for the reason named.",
    ("client_region", "route", "outcome"),
)
FAILOVERS = Counter(
    "isochrone_litellm_failovers", "Further attempts of requests, after a failure.", ("client_region", "route")
)
EVENTS = Counter(
    "isochrone_litellm_table_events",
    "What happened to the stream of tables: tables, tables_ignored, disconnected, refused, cache_failed.",
    ("client_region", "event"),
)
# With several workers, the newest value of all of them.
GENERATION = Gauge(
    "isochrone_litellm_table_generation",
    "Generation of the table in use.",
    ("client_region", "route"),
    multiprocess_mode="mostrecent",
)
STALE = Gauge(
    "isochrone_litellm_table_stale_timestamp_seconds",
    "When the table in use expires.",
    ("client_region", "route"),
    multiprocess_mode="mostrecent",
)
