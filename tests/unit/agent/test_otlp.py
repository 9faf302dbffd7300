"""Probes in the terms of the semantic conventions."""

from dataclasses import replace

import pytest

from isochrone_agent import otlp
from isochrone_agent.probe.prober import ProbeTimes
from isochrone_wire.model import Outcome, Sample, Target, TokenSource

AT = 1_795_248_000_000_000
TARGET = Target(id=7, name="moonshot/kimi", provider="moonshot", model="kimi-k2.5", base_url="https://api.example/v1")
SAMPLE = Sample(
    target_id=7,
    round_at=AT,
    dispatched_at=AT,
    outcome=Outcome.OK,
    dns_us=1_000,
    tcp_us=20_000,
    tls_us=30_000,
    ttfb_us=200_000,
    ttft_us=250_000,
    e2e_us=900_000,
    prompt_tokens=40,
    output_tokens=90,
    token_source=TokenSource.USAGE,
    http_status=200,
)
TIMES = ProbeTimes(sent_at=AT + 52_000, ended_at=AT + 960_000)


def test_durations_begin_with_the_connection() -> None:
    """The convention's durations have the connection setup, and the duration the rest after the last token."""
    assert otlp.first_chunk_s(SAMPLE, TIMES) == pytest.approx(0.302)
    assert otlp.duration_s(SAMPLE, TIMES) == pytest.approx(0.96)


def test_a_probe_without_a_token_has_no_first_chunk() -> None:
    """A failed probe has a duration and an error, and no first chunk."""
    failed = replace(SAMPLE, outcome=Outcome.HTTP_ERROR, http_status=503, ttft_us=None, e2e_us=None, error="overloaded")
    assert otlp.first_chunk_s(failed, TIMES) is None
    assert otlp.attributes(TARGET, failed)["error.type"] == "503"
    refused = replace(failed, outcome=Outcome.CONNECT_FAILED, http_status=None)
    assert otlp.attributes(TARGET, refused)["error.type"] == "connect_failed"
    in_band = replace(failed, http_status=200)
    assert otlp.attributes(TARGET, in_band)["error.type"] == "http_error"


def test_names_are_those_of_the_conventions() -> None:
    """Names are those of the conventions; only tokens that the provider counted are usage."""
    found = otlp.attributes(TARGET, SAMPLE)
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "moonshot_ai",
        "gen_ai.request.model": "kimi-k2.5",
        "isochrone.target": "moonshot/kimi",
        "server.address": "api.example",
        "server.port": 443,
    }
    local = replace(TARGET, provider="mine", dialect="gemini", base_url="http://127.0.0.1:81/v1")
    assert otlp.attributes(local, SAMPLE)["gen_ai.provider.name"] == "mine"
    assert otlp.attributes(local, SAMPLE)["gen_ai.operation.name"] == "generate_content"
    assert otlp.attributes(local, SAMPLE)["server.port"] == 81
    assert otlp.tokens(SAMPLE) == {"input": 40, "output": 90}
    assert otlp.tokens(replace(SAMPLE, token_source=TokenSource.ESTIMATED)) == {}


def test_unknown_frames_are_stated_if_there_are_any() -> None:
    """A span has the number of frames that nobody understood, unless it is zero."""
    for frames, stated in ((0, None), (3, 3)):
        found = otlp.span_attributes(TARGET, replace(SAMPLE, frames_unknown=frames), TIMES)
        assert found.get("isochrone.frames_unknown") == stated


def test_phases_follow_each_other() -> None:
    """Each phase ends at its own instant and begins where the one before it ended."""
    found = [(name, from_at - AT, until_at - AT) for name, from_at, until_at in otlp.phases(SAMPLE, TIMES)]
    assert found == [
        ("dns", 0, 1_000),
        ("connect", 1_000, 21_000),
        ("tls", 21_000, 51_000),
        ("request sent", 51_000, 52_000),
        ("first byte", 52_000, 252_000),
        ("first token", 252_000, 302_000),
        ("last token", 302_000, 952_000),
    ]


def test_a_probe_that_was_never_sent_has_only_its_connection() -> None:
    """A connection that fails has the phases that took place."""
    lost = replace(SAMPLE, outcome=Outcome.CONNECT_FAILED, tcp_us=None, tls_us=None, ttfb_us=None, ttft_us=None)
    assert [name for name, _, _ in otlp.phases(lost, replace(TIMES, sent_at=None))] == ["dns"]
    reused = replace(SAMPLE, dns_us=None, tcp_us=None, tls_us=None)
    first = next(otlp.phases(reused, replace(TIMES, sent_at=AT + 400)))
    assert first[::2] == ("request sent", AT + 400)
