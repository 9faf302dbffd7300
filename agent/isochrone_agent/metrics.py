"""What Prometheus reads of an agent: counters that exist anyway, under their names for the outside.

Names begin with `isochrone_`; durations are `_seconds`, counters `_total`. Imported only when metrics are asked for,
because Prometheus' library weighs as much as a tenth of the agent. See docs/agent.md.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from isochrone_wire import __version__
from isochrone_wire.model import SECOND_US, Vantage, Vitals


def families(
    vantage: Vantage,
    *,
    vitals: Callable[[], Vitals],
    probes: Mapping[str, int],
    pushes: Mapping[str, int],
    missed: Callable[[], int],
    spool: Path,
) -> Iterator[Metric]:
    """Every metric as it is now; what concerns delivery is as of the newest push, made or tried.

    `probes` are samples by outcome and `pushes` by gRPC status, both counted by the loop while this runs in a thread.
    """
    told = vitals()
    build = {"version": __version__, "vantage": vantage.name, "region": vantage.region}
    yield InfoMetricFamily("isochrone_build", "This agent.", value=build)
    yield _by("isochrone_probes", "Planned rounds that ended in a sample.", "outcome", dict(probes))
    yield CounterMetricFamily("isochrone_rounds_missed", "Rounds that passed before they were begun.", value=missed())
    yield _by("isochrone_pushes", "Pushes that ended, by gRPC status.", "status", dict(pushes))
    yield GaugeMetricFamily("isochrone_plan_version", "The plan that runs, 0 for none.", value=told.plan_version)
    yield GaugeMetricFamily(
        "isochrone_plan_refused_version", "A plan this agent will not run.", value=told.refused_plan_version or 0
    )
    yield from _delivery(told, spool)
    yield from _instrument(told)


def _delivery(told: Vitals, spool: Path) -> Iterator[Metric]:
    yield GaugeMetricFamily("isochrone_spool_samples", "Samples that wait.", value=told.spool_depth)
    yield GaugeMetricFamily("isochrone_spool_bytes", "Size of the spool on disk.", value=_size(spool))
    yield GaugeMetricFamily(
        "isochrone_spool_oldest_timestamp_seconds",
        "When the oldest sample that waits was recorded, 0 for none.",
        value=told.spool_oldest_at / SECOND_US,
    )
    yield GaugeMetricFamily("isochrone_spool_quarantined", "Samples in quarantine.", value=told.quarantined)
    yield CounterMetricFamily("isochrone_samples_finished", "Samples since the spool was made.", value=told.finished)
    yield CounterMetricFamily("isochrone_samples_stored", "Samples the collector has acknowledged.", value=told.stored)
    yield _by("isochrone_samples_dropped", "Samples given up.", "reason", told.dropped)


def _instrument(told: Vitals) -> Iterator[Metric]:
    """What is not known has no sample, which is not the same as 0."""
    durations = (
        ("isochrone_clock_offset_seconds", "The collector's clock minus ours.", told.clock_offset_us),
        ("isochrone_clock_uncertainty_seconds", "How far off that may be.", told.clock_uncertainty_us),
        ("isochrone_loop_lag_seconds", "How late the event loop was of late.", told.loop_lag_us),
    )
    for name, documentation, us in durations:
        if us is not None:
            yield GaugeMetricFamily(name, documentation, value=us / SECOND_US)


def _by(name: str, documentation: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _size(spool: Path) -> int:
    """The spool's file and its write-ahead log together, in bytes."""
    return sum(path.stat().st_size for path in spool.parent.glob(f"{spool.name}*") if path.is_file())
