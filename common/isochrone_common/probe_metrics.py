"""Prometheus metrics of probes, with the same names and labels from a collector and from an agent.

A histogram counts the values that every page of `isochrone` shows. A probe that was cut off by a timeout counts with
its limit, as in all statistics: a target that hangs is slow, not absent. `docs/prometheus.md` lists the metrics.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import TYPE_CHECKING

from isochrone_wire.model import SECOND_US, Outcome, Quality, RateLimit, Sample, Target

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LABELS = ("region", "target", "provider", "model")
OUTCOMES = tuple(Outcome)
_BROKEN = {Outcome.TIMED_OUT, Outcome.STALLED, Outcome.TRUNCATED, Outcome.STREAM_ERROR, Outcome.FILTERED}
STREAMED = frozenset({Outcome.OK, *_BROKEN})
"""Outcomes of probes whose first tokens count, if there are any."""
CUT_OFF = frozenset({Outcome.TIMED_OUT, Outcome.STALLED, Outcome.CONNECT_FAILED})
"""Outcomes of probes that took at least their `timeout_us`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeHistogram:
    """A histogram of one field of `Sample`, in units of `per`. `bounds` are inclusive; the last class has none."""

    name: str
    documentation: str
    field: str
    bounds: tuple[float, ...]
    outcomes: frozenset[Outcome]
    per: int = SECOND_US

    @property
    def edges(self) -> tuple[float, ...]:
        """The bounds in the unit of the field."""
        return tuple(bound * self.per for bound in self.bounds)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.bounds) + 1


_FIRST_TOKEN = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4, 3.2, 5.0, 10.0, 20.0, 60.0)
_ANSWER = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 60.0, 180.0)
_SPEED = (2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1000.0)
_OK = frozenset({Outcome.OK})

HISTOGRAMS = (
    ProbeHistogram(
        name="isochrone_ttft_seconds",
        documentation="Time to first token, from the end of the request; a timeout counts with its limit.",
        field="ttft_us",
        bounds=_FIRST_TOKEN,
        outcomes=STREAMED,
    ),
    ProbeHistogram(
        name="isochrone_ttfat_seconds",
        documentation="Time to the first token of the answer, after any reasoning; a timeout counts with its limit.",
        field="ttfat_us",
        bounds=_FIRST_TOKEN,
        outcomes=STREAMED,
    ),
    ProbeHistogram(
        name="isochrone_e2e_seconds",
        documentation="Time to the last token; a timeout counts with its limit.",
        field="e2e_us",
        bounds=_ANSWER,
        outcomes=_OK,
    ),
    ProbeHistogram(
        name="isochrone_tokens_per_second",
        documentation="Output tokens per second after the first chunk.",
        field="tokens_per_second",
        bounds=_SPEED,
        outcomes=_OK,
        per=1,
    ),
)
KINDS = ("requests", "tokens")
LIMITS = tuple(f"{part}_{kind}" for kind in KINDS for part in ("limit", "remaining"))
"""The fields of `RateLimit` that are exported."""
_LIMITS = (
    ("isochrone_ratelimit_remaining", "What the newest headers of the provider leave."),
    ("isochrone_ratelimit_limit", "The limit in the newest headers of the provider."),
)


OFFSETS = tuple(accumulate((histogram.classes for histogram in HISTOGRAMS), initial=len(OUTCOMES)))
"""Where the classes of each histogram begin in `ProbeCounts.counts`, and its length."""


@dataclass(slots=True, kw_only=True)
class ProbeCounts:
    """The probes of one target from one region: by outcome (`OUTCOMES`), then by the classes of each histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * OFFSETS[-1])
    sums: list[float] = field(default_factory=lambda: [0.0] * len(HISTOGRAMS))
    last_success_at: int = 0
    limits: RateLimit | None = None
    limits_at: int = 0

    def add(self, sample: Sample) -> None:
        """Count a probe."""
        self.counts[OUTCOMES.index(sample.outcome)] += 1
        if sample.outcome is Outcome.OK:
            self.last_success_at = max(self.last_success_at, sample.dispatched_at)
        limits = sample.ratelimit
        is_newest = limits is not None and sample.dispatched_at >= self.limits_at
        if is_newest and any(getattr(limits, name) is not None for name in LIMITS):
            self.limits, self.limits_at = limits, sample.dispatched_at
        for place, histogram in enumerate(HISTOGRAMS):
            if (value := value_of(sample, histogram)) is not None:
                self.counts[OFFSETS[place] + bisect_left(histogram.edges, value)] += 1
                self.sums[place] += value / histogram.per


Series = tuple[tuple[str, ...], ProbeCounts]
"""The values of `LABELS`, and the counts of their probes."""


def value_of(sample: Sample, histogram: ProbeHistogram) -> float | None:
    """Return the value of a probe in the unit of its field; `None` if the histogram does not count it."""
    value: float | None = getattr(sample, histogram.field)
    if value is not None and sample.outcome in histogram.outcomes and is_valid(sample):
        return value
    is_duration, censored = histogram.field.endswith("_us"), value is None or histogram.field != "ttft_us"
    return sample.timeout_us if is_duration and censored and sample.outcome in CUT_OFF else None


def is_valid(sample: Sample) -> bool:
    """Return whether the durations are those of the model; see `docs/statistics.md`."""
    from_cache = Quality.CACHED in sample.quality and 2 * (sample.cached_tokens or 0) >= (sample.prompt_tokens or 0)
    return Quality.CLOCK_STEPPED not in sample.quality and not from_cache


def families(rows: Iterable[Series]) -> "Iterator[Metric]":
    """Yield the metrics of the probes of some targets and regions."""
    # An agent without metrics does not load it.
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

    listed = list(rows)
    yield from _histograms(listed)
    outcomes = CounterMetricFamily("isochrone_probes", "Rounds that ended, by outcome.", labels=[*LABELS, "outcome"])
    name, described = "isochrone_last_success_timestamp_seconds", "When the newest probe that succeeded began."
    successes = GaugeMetricFamily(name, described, labels=LABELS)
    for labels, row in listed:
        for outcome, count in zip(OUTCOMES, row.counts, strict=False):
            if count:
                outcomes.add_metric([*labels, outcome.value], count)
        if row.last_success_at:
            successes.add_metric(labels, row.last_success_at / SECOND_US)
    yield outcomes
    yield successes
    for name, described in _LIMITS:
        part, limits = name.rpartition("_")[2], GaugeMetricFamily(name, described, labels=[*LABELS, "kind"])
        for (labels, row), kind in product(listed, KINDS):
            if (value := getattr(row.limits, f"{part}_{kind}", None)) is not None:
                limits.add_metric([*labels, kind], value)
        yield limits


def labels_of(region: str, target: Target) -> tuple[str, ...]:
    """Return the values of `LABELS`."""
    return region, target.name, target.provider, target.model


def _histograms(rows: Sequence[Series]) -> "Iterator[Metric]":
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415  # as above

    for begin, (place, histogram) in zip(OFFSETS, enumerate(HISTOGRAMS), strict=False):
        family = HistogramMetricFamily(histogram.name, histogram.documentation, labels=LABELS)
        names = [*map(str, histogram.bounds), "+Inf"]
        for labels, row in rows:
            running = list(accumulate(row.counts[begin : begin + histogram.classes]))
            if running[-1]:
                family.add_metric(labels, list(zip(names, running, strict=True)), row.sums[place])
        yield family
