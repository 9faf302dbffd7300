"""Metrics of probes, and the endpoint that Prometheus reads."""

import socket
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import Any

import pytest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from isochrone_common.address import Address
from isochrone_common.metrics_server import MAX_SCRAPES, encode_metrics, parse_listen, serve_metrics
from isochrone_common.probe_metrics import HISTOGRAMS, ProbeCounts, families, labels_of, value_of
from isochrone_wire.model import SECOND_US, Outcome, Quality, RateLimit, Sample, Target
from testdata.waiting import eventually

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
        (sample(Outcome.STREAM_ERROR, ttft_us=300, e2e_us=900, tokens_per_second=50.0), (300, None, None, None)),
        (sample(Outcome.FILTERED, ttft_us=300, e2e_us=900, tokens_per_second=50.0), (300, None, None, None)),
        (sample(Outcome.EMPTY, e2e_us=900, tokens_per_second=50.0), (None, None, None, None)),
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
    target = Target(id=1, name="sim/a", provider="sim", model="a", base_url="http://h")
    assert labels_of("us-east-2", target) == A
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


LOOPBACK = Address("127.0.0.1", 0)


def one() -> list[Metric]:
    return [GaugeMetricFamily("isochrone_answer", "The answer.", value=42)]


def fetch(address: Address) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        return str(page.read().decode())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("off", None),
        ("127.0.0.1", Address("127.0.0.1", 4690)),
        ("localhost:9", Address("localhost", 9)),
        ("[::1]:0", Address("::1", 0)),
        ("0.0.0.0:9464", Address("0.0.0.0", 9464)),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    """`off` disables the endpoint; without a port, the default port is used."""
    assert parse_listen(text, default_port=4690) == address


@pytest.mark.parametrize("text", ["x:y", "127.0.0.1:70000"])
def test_a_malformed_address_is_an_error(text: str) -> None:
    """An address that is none is refused with a message."""
    with pytest.raises(ValueError, match="no valid port"):
        parse_listen(text, default_port=4690)


def test_the_number_of_scrapes_is_limited() -> None:
    """Connections that send nothing take a place each, and further ones are closed until these end."""
    with serve_metrics(LOOPBACK, one) as address, ExitStack() as stack:
        place = (address.host, address.port)
        idle = [stack.enter_context(socket.create_connection(place, 10)) for _ in range(MAX_SCRAPES)]
        refused = stack.enter_context(socket.create_connection(place, 10))
        assert refused.recv(1) == b""
        for connection in idle:
            connection.close()
        eventually(5, lambda: answers(address), "a scrape is answered")


def answers(address: Address) -> bool:
    try:
        return "isochrone_answer" in fetch(address)
    except OSError:
        return False


def test_a_scrape_asks_anew_and_the_door_closes() -> None:
    """Each scrape returns current values; a second endpoint on the port is an `OSError`; afterwards none is left."""
    with serve_metrics(LOOPBACK, one) as address:
        assert "isochrone_answer 42.0" in fetch(address)
        assert "process_cpu_seconds_total" in fetch(address)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{address}/", timeout=10)
        refused.value.close()
        assert refused.value.code == 404
        with pytest.raises(OSError, match="in use"), serve_metrics(address, one):
            pass
    with pytest.raises(urllib.error.URLError):
        fetch(address)
