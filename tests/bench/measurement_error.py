"""Measurement errors of a client: its results against the ground truth, summarised as a row."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.result import percentile
from bench.simulator import GroundTruth, true_tokens_per_second, true_ttft_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A client's result for one request, with the request id of the ground truth."""

    request_id: str
    ttft_us: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One client at one load: errors of TTFT in microseconds and of tokens/s in per cent; if known, CPU in milliseconds
    per probe and the share flagged `lagged`.
    """

    client: str
    in_flight: int
    probes: int
    ttft_error_p50_us: float
    ttft_error_p99_us: float
    tps_error_pct: float
    cpu_ms: float | None = None
    lagged: float | None = None


def compare(
    client: str,
    measurements: Sequence[Measurement],
    ground_truth: GroundTruth,
    *,
    in_flight: int,
    cpu_ms: float | None = None,
    lagged: float | None = None,
) -> Row:
    """Return the errors of these measurements, request by request."""
    pairs = [(measurement, ground_truth[measurement.request_id]) for measurement in measurements]
    ttft = [abs(measurement.ttft_us - true_ttft_us(record)) for measurement, record in pairs]
    tps = [
        abs(measurement.tokens_per_second / true_tokens_per_second(record) - 1) * 100 for measurement, record in pairs
    ]
    return Row(
        client=client,
        in_flight=in_flight,
        probes=len(measurements),
        ttft_error_p50_us=statistics.median(ttft),
        ttft_error_p99_us=percentile(ttft, 0.99),
        tps_error_pct=statistics.median(tps),
        cpu_ms=cpu_ms,
        lagged=lagged,
    )
