"""The agent's Prometheus metrics, built from existing counters at every scrape.

Names begin with `isochrone_`; durations end in `_seconds`, counters in `_total`. This module is imported only if
metrics are enabled, because prometheus_client takes a tenth of the agent's memory. See docs/agent.md.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from isochrone_agent.plan.probe_scheduler import ProbeScheduler
from isochrone_common import probe_metrics
from isochrone_wire import __version__
from isochrone_wire.model import SECOND_US, Heartbeat, Vantage


def families(
    vantage: Vantage, rounds: ProbeScheduler, *, refused_version: int, export_dropped: int | None
) -> Iterator[Metric]:
    """The metrics of probes and of the plan. The event loop adds to the counts meanwhile."""
    build = {"version": __version__, "vantage": vantage.name, "region": vantage.region}
    yield InfoMetricFamily("isochrone_build", "This agent.", value=build)
    yield from probe_metrics.families(rounds.series(vantage.region))
    yield CounterMetricFamily("isochrone_rounds_missed", "Planned rounds that were not started.", value=rounds.missed)
    yield GaugeMetricFamily("isochrone_plan_version", "The running plan, 0 for none.", value=rounds.plan.version)
    yield GaugeMetricFamily(
        "isochrone_plan_refused_version",
        "Version of the plan that this agent refused, 0 for none.",
        value=refused_version,
    )
    if export_dropped is not None:
        described = "Probes whose traces could not be delivered over OTLP."
        yield CounterMetricFamily("isochrone_otlp_dropped_probes", described, value=export_dropped)


def delivery_families(
    *, newest: Heartbeat, pushes: Mapping[str, int], spool: Path, expires_at: int | None
) -> Iterator[Metric]:
    """The metrics of delivery, as of the newest push, successful or not. `pushes` counts by gRPC status."""
    size = sum(path.stat().st_size for path in spool.parent.glob(f"{spool.name}*") if path.is_file())
    # An unknown value is left out, because it is not 0.
    seconds = (
        (
            "isochrone_credential_expires_timestamp_seconds",
            "When the agent's credential expires, unless the agent renews it.",
            expires_at,
        ),
        (
            "isochrone_spool_oldest_timestamp_seconds",
            "When the oldest waiting sample was recorded, 0 for none.",
            newest.spool_oldest_at,
        ),
        ("isochrone_clock_offset_seconds", "The collector's clock minus the agent's.", newest.clock_offset_us),
        ("isochrone_clock_uncertainty_seconds", "Maximum error of the clock offset.", newest.clock_uncertainty_us),
        ("isochrone_loop_lag_seconds", "Maximum recent delay of the event loop.", newest.loop_lag_us),
    )
    for name, documentation, us in seconds:
        if us is not None:
            yield GaugeMetricFamily(name, documentation, value=us / SECOND_US)
    yield GaugeMetricFamily("isochrone_spool_samples", "Samples waiting for delivery.", value=newest.spool_depth)
    yield GaugeMetricFamily("isochrone_spool_bytes", "Size of the spool on disk.", value=size)
    yield GaugeMetricFamily("isochrone_spool_quarantined", "Samples in quarantine.", value=newest.quarantined)
    recorded = "Samples recorded, without those stored under earlier epochs of the spool."
    yield CounterMetricFamily("isochrone_samples_finished", recorded, value=newest.finished)
    stored = "Samples that the collector acknowledged, in the current epoch of the spool."
    yield CounterMetricFamily("isochrone_samples_stored", stored, value=newest.stored)
    dropped = CounterMetricFamily("isochrone_samples_dropped", "Dropped samples.", labels=["reason"])
    ended = CounterMetricFamily("isochrone_pushes", "Pushes that ended, by gRPC status.", labels=["status"])
    for family, counts in ((dropped, newest.dropped), (ended, pushes)):
        for value, count in sorted(counts.items()):
            family.add_metric([value], count)
        yield family
