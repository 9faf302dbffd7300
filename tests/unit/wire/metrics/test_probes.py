"""Metrics of probes: which values a histogram counts, and the text that Prometheus reads."""

from typing import Any

import pytest
from prometheus_client.core import HistogramMetricFamily

from isochrone_common.metrics_server import encode_metrics
from isochrone_common.probe_metrics import HISTOGRAMS, ProbeCounts, families, labels_of, value_of
from isochrone_wire.model import SECOND_US, Outcome, Quality, RateLimit, Sample, Target

AT = 1_795_248_000_000_000
TTFT, TTFAT, E2E, SPEED = HISTOGRAMS
A, B = ("us-east-2", "sim/a", "sim", "a"), ("us-east-2", "sim/b", "sim", "b")


def sample(outcome: Outcome = Outcome.OK, **values: Any) -> Sample:
    return Sample(**{"target_id": 1, "round_at": AT, "dispatched_at": AT, "outcome": outcome, **values})


def text_of(*series: tuple[tuple[str, ...], ProbeCounts]) -> dict[str, float]:
    """Return the exported numbers by name with labels."""
    content, _ = encode_metrics(families(series), "")
    lines = (line.rpartition(" ") for line in content.decode().splitlines() if line.startswith("isochrone_"))
    return {name: float(value) for name, _, value in lines}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (sample(ttft_us=300, e2e_us=900, tokens_per_second=50.0), (300, None, 900, 50.0)),
        (sample(Outcome.TRUNCATED, ttft_us=300, e2e_us=900, tokens_per_second=50.0), (300, None, None, None)),
        (sample(Outcome.TIMED_OUT, timeout_us=700), (700, 700, 700, None)),
        (sample(Outcome.TIMED_OUT, ttft_us=300, timeout_us=700), (300, 700, 700, None)),
        (sample(Outcome.CONNECT_FAILED, timeout_us=700), (700, 700, 700, None)),
        (sample(Outcome.CONNECT_FAILED), (None, None, None, None)),
        (sample(Outcome.THROTTLED, ttft_us=300, e2e_us=900), (None, None, None, None)),
        (sample(Outcome.HTTP_ERROR, e2e_us=900), (None, None, None, None)),
        (sample(ttft_us=300, quality=Quality.CLOCK_STEPPED), (None, None, None, None)),
        (sample(ttft_us=300, quality=Quality.CACHED, cached_tokens=5, prompt_tokens=10), (None, None, None, None)),
        (sample(ttft_us=300, quality=Quality.CACHED, cached_tokens=4, prompt_tokens=10), (300, None, None, None)),
        (sample(ttft_us=0), (0, None, None, None)),
    ],
)
def test_a_histogram_counts_what_the_pages_show(given: Sample, expected: tuple[float | None, ...]) -> None:
    """Valid durations of streams, whole answers for the end and the speed, and the limit of what was cut off."""
    assert tuple(value_of(given, histogram) for histogram in HISTOGRAMS) == expected


@pytest.mark.parametrize("histogram", HISTOGRAMS, ids=lambda one: one.field)
def test_bounds_are_ascending_and_exact(histogram: Any) -> None:
    """No bound lies between two microseconds because of rounding."""
    assert list(histogram.bounds) == sorted(set(histogram.bounds))
    assert all(edge == round(edge) for edge in histogram.edges) or histogram.per == 1


def test_probes_are_exported() -> None:
    """Cumulative classes with inclusive bounds, their sum, outcomes, the newest success and the newest limits."""
    row = ProbeCounts()
    row.add(sample(ttft_us=50_000, ratelimit=RateLimit(remaining_requests=9, limit_requests=10)))
    row.add(sample(ttft_us=50_001, dispatched_at=AT + SECOND_US, ratelimit=RateLimit(remaining_requests=0)))
    row.add(sample(Outcome.TIMED_OUT, timeout_us=70 * SECOND_US, dispatched_at=AT + 2 * SECOND_US))
    row.add(sample(ttft_us=1, dispatched_at=AT - SECOND_US, ratelimit=RateLimit(remaining_requests=5)))
    labels = 'model="a",provider="sim",region="us-east-2",target="sim/a"'
    found = text_of((A, row))
    assert found[f'isochrone_ttft_seconds_bucket{{le="0.05",{labels}}}'] == 2
    assert found[f'isochrone_ttft_seconds_bucket{{le="0.1",{labels}}}'] == 3
    assert found[f'isochrone_ttft_seconds_bucket{{le="60.0",{labels}}}'] == 3
    assert found[f'isochrone_ttft_seconds_bucket{{le="+Inf",{labels}}}'] == 4
    assert found[f"isochrone_ttft_seconds_count{{{labels}}}"] == 4
    assert found[f"isochrone_ttft_seconds_sum{{{labels}}}"] == pytest.approx(70.100002)
    own = 'model="a",outcome="{}",provider="sim",region="us-east-2",target="sim/a"'
    assert found[f"isochrone_probes_total{{{own.format('ok')}}}"] == 3
    assert found[f"isochrone_probes_total{{{own.format('timed_out')}}}"] == 1
    assert found[f"isochrone_last_success_timestamp_seconds{{{labels}}}"] == AT / 1e6 + 1
    kind = f'kind="requests",{labels}'
    assert found[f"isochrone_ratelimit_remaining{{{kind}}}"] == 0
    assert f"isochrone_ratelimit_limit{{{kind}}}" not in found


def test_only_what_happened_is_exported() -> None:
    """A target without probes has no series, and one without answers neither speeds nor successes."""
    failed = ProbeCounts()
    failed.add(sample(Outcome.HTTP_ERROR))
    names = {name.partition("{")[0] for name in text_of((A, ProbeCounts()), (B, failed))}
    assert names == {"isochrone_probes_total"}


def test_families_are_typed() -> None:
    """Histograms are histograms, with the unit in their name."""
    found = [one for one in families([]) if isinstance(one, HistogramMetricFamily)]
    assert [one.name for one in found] == [histogram.name for histogram in HISTOGRAMS]


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/plain; version=banana", "text/plain"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
        (",;=,;;==,application/openmetrics-text;version=", "application/openmetrics-text"),
    ],
)
def test_any_accept_header_gets_a_format(accept: str, media_type: str) -> None:
    """The format is the requested one, and plain text by default; a malformed header is no error."""
    content, given = encode_metrics(families([(A, ProbeCounts())]), accept)
    assert given.startswith(media_type)
    assert b"process_cpu_seconds_total" in content


def test_labels() -> None:
    """A series is named by region, target, provider and model."""
    target = Target(id=1, name="kimi", provider="moonshot", model="kimi-k2", base_url="http://h")
    assert labels_of("eu", target) == ("eu", "kimi", "moonshot", "kimi-k2")
