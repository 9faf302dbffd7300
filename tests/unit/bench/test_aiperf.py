"""What aiperf exports, read: recorded shapes of version 0.13, without what nobody here reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import aiperf
from bench.accuracy import compare
from bench.references import Measurement


def record(*, phase: str = "profiling", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"x_request_id": "c918530c", "request_start_ns": 1795260503454062976, "benchmark_phase": phase},
        "metrics": {
            "time_to_first_token": {"value": 205.01115199999998, "unit": "ms"},
            "inter_chunk_latency": {"value": [8.772548, 8.736544], "unit": "ms"},
            "output_token_throughput_per_user": {"value": 100.01186436048363, "unit": "tokens/sec/user"},
        },
        "trace_data": {
            "trace_type": "aiohttp",
            "request_headers": {"X-Request-ID": "c918530c"},
            "response_headers": {"Server": "isochrone-sim", "X-Request-ID": "req_b04e"},
        },
    } | more


def exported(*records: dict[str, Any]) -> list[str]:
    return [json.dumps(one) for one in records]


def test_a_claim_is_found_by_the_servers_id() -> None:
    """TTFT in microseconds and tokens per second, under the id that the server gave, not the one that aiperf sent."""
    [measurement] = aiperf.read_export(exported(record()))
    assert measurement.request_id == "req_b04e"
    assert measurement.tokens_per_second == pytest.approx(100.01186)
    assert measurement.ttft_us == pytest.approx(205_011.152)


def test_only_what_was_measured_counts() -> None:
    """A warm-up and a failed request are no measurements."""
    failed = record(error={"code": 503, "message": "overloaded"}, metrics={})
    assert len(aiperf.read_export(exported(record(phase="warmup"), failed, record()))) == 1


@pytest.mark.parametrize(
    "line", ["{}", "[]", "no JSON", json.dumps(record(metrics={})), json.dumps(record(trace_data=None))]
)
def test_another_shape_is_a_reason(line: str) -> None:
    """An export that a later version changed leaves the row out with a reason; it does not end the bench."""
    with pytest.raises(aiperf.AiperfUnavailable, match="unknown format"):
        aiperf.read_export([line])


def test_no_command_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the command the row is left out, and the sentence says how to name one."""
    monkeypatch.setenv(aiperf.VARIABLE, str(tmp_path / "aiperf"))
    with pytest.raises(aiperf.AiperfUnavailable, match=aiperf.VARIABLE):
        aiperf.find()


def test_a_run_that_fails_tells_its_first_error(tmp_path: Path) -> None:
    """What the command says went wrong is the reason that is printed."""
    command = tmp_path / "aiperf"
    command.write_text(
        "#!/bin/sh\necho '11:26:49.309 INFO     Starting'\necho '11:26:49.310 ERROR    No tokenizer'\nexit 1\n"
    )
    command.chmod(0o755)
    with pytest.raises(aiperf.AiperfUnavailable, match="No tokenizer"):
        aiperf.measure(command, "http://127.0.0.1:1/v1", tmp_path, streams=1, requests=2)


def test_errors_are_those_of_each_request() -> None:
    """A measurement is compared with the truth of its own request; early and late do not cancel out."""
    truth = {
        name: {"request_at_ns": 0, "first_token_at_ns": 200_000_000, "last_token_at_ns": 1_690_000_000}
        for name in ("early", "late")
    }
    measurements = [
        Measurement(request_id="early", ttft_us=199_000, tokens_per_second=99.0),
        Measurement(request_id="late", ttft_us=203_000, tokens_per_second=101.0),
    ]
    row = compare("any", measurements, truth, in_flight=2)
    assert (row.ttft_error_p50_us, row.ttft_error_p99_us) == (2_000, 3_000)
    assert row.tps_error_pct == pytest.approx(1.0)
