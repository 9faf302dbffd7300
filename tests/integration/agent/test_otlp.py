"""OTLP export to a real receiver over HTTP."""

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fixtures.agent import StartAgent
from fixtures.otlp import OtlpReceiver, attributes
from fixtures.simulator import Simulator
from isochrone_agent import otlp
from isochrone_agent.otlp import OtlpExport
from isochrone_agent.probe.prober import ProbeTimes
from isochrone_wire.model import Outcome, Sample, Target, TokenSource, Vantage
from testdata.waiting import eventually

US = Vantage(name="us-1", region="us-east-2")
TARGET = Target(id=7, name="sim/a", provider="sim", model="a", base_url="http://127.0.0.1:81/v1")
PHASES = ["connect", "request sent", "first byte", "first token", "last token"]


def probe(**more: Any) -> tuple[Target, Sample, ProbeTimes]:
    at = time.time_ns() // 1000
    sample = Sample(
        target_id=7,
        round_at=at,
        dispatched_at=at,
        outcome=Outcome.OK,
        tcp_us=1_000,
        ttfb_us=200_000,
        ttft_us=250_000,
        e2e_us=900_000,
        prompt_tokens=40,
        output_tokens=90,
        token_source=TokenSource.USAGE,
        http_status=200,
    )
    return TARGET, replace(sample, **more), ProbeTimes(sent_at=at + 1_100, ended_at=at + 950_000)


def test_a_probe_is_a_trace_and_values_of_metrics(otlp_receiver: OtlpReceiver) -> None:
    """The receiver decodes one trace with a span per phase, and histograms with the values of the conventions."""
    sending = OtlpExport(otlp_receiver.url, US)
    target, sample, times = probe()
    sending.offer(target, sample, times)
    sending.offer(*probe(outcome=Outcome.SKIPPED_BUDGET))
    sending.offer(*probe(outcome=Outcome.HTTP_ERROR, http_status=503, ttft_us=None, e2e_us=None, error="overloaded"))
    sending.close()
    first, second = otlp_receiver.roots
    assert (first.name, first.kind) == ("chat a", first.SPAN_KIND_CLIENT)
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (
        sample.dispatched_at * 1000,
        times.ended_at * 1000,
    )
    children = [span for span in otlp_receiver.spans if span.parent_span_id == first.span_id]
    assert [span.name for span in children] == PHASES
    assert {span.trace_id for span in children} == {first.trace_id} != {second.trace_id}
    assert children[3].end_time_unix_nano == (sample.dispatched_at + 1_100 + 250_000) * 1000
    assert attributes(first)["gen_ai.usage.output_tokens"] == 90
    assert second.status.message == "overloaded"
    assert attributes(second)["error.type"] == "503"
    resource = attributes(otlp_receiver.traces[0].resource_spans[0].resource)
    assert resource["service.instance.id"] == "us-1"
    assert resource["cloud.region"] == "us-east-2"
    points = otlp_receiver.points("gen_ai.client.operation.duration")
    durations = {attributes(one).get("error.type"): one for one in points}
    assert set(durations) == {None, "503"}
    assert durations[None].sum == pytest.approx(0.95)
    [chunk] = otlp_receiver.points("gen_ai.client.operation.time_to_first_chunk")
    assert chunk.sum == pytest.approx(0.2511)
    assert list(chunk.explicit_bounds)[:3] == [0.01, 0.02, 0.04]
    usage = {attributes(one)["gen_ai.token.type"]: one.sum for one in otlp_receiver.points("gen_ai.client.token.usage")}
    assert usage == {"input": 80, "output": 180}
    assert sending.dropped == 0


def test_a_receiver_that_is_gone_neither_blocks_nor_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand probes take no time, the queue is bounded, losses are counted, and the end is bounded too."""
    monkeypatch.setattr(otlp, "TIMEOUT_SECONDS", 0.5)
    sending = OtlpExport("http://127.0.0.1:9", US, every_seconds=0.1)
    one = probe()
    begun = time.thread_time()
    for _ in range(10_000):
        sending.offer(*one)
    assert time.thread_time() - begun < 1
    assert sending.dropped >= 10_000 - 2 * otlp.QUEUE_PROBES
    begun = time.monotonic()
    sending.close()
    assert time.monotonic() - begun < 2 * otlp.FLUSH_SECONDS + 1


def test_metrics_of_a_failed_request_come_with_the_next(otlp_receiver: OtlpReceiver) -> None:
    """Spans that are refused are dropped and counted; the histograms have their probes nevertheless."""
    otlp_receiver.status = 400
    sending = OtlpExport(otlp_receiver.url, US, every_seconds=0.05)
    sending.offer(*probe())
    eventually(10, lambda: sending.dropped == 1, "the refused spans are counted")
    otlp_receiver.status = 200
    sending.offer(*probe())
    sending.close()
    assert len(otlp_receiver.roots) == 1
    [duration] = otlp_receiver.points("gen_ai.client.operation.duration")
    assert duration.count == 2


def test_an_agent_exports_its_probes(
    otlp_receiver: OtlpReceiver, start_agent: StartAgent, fault_simulator: Simulator, tmp_path: Path
) -> None:
    """`isochrone-agent run --otlp-endpoint` exports real probes, successful and failed, whose phases are in order."""
    plan = f"""baseline: local
every: 500ms
targets:
  - {{provider: sim, model: fault-500, base_url: '{fault_simulator.base_url}'}}
  - {{provider: sim, model: glm-5, base_url: '{fault_simulator.base_url}'}}
"""
    file = tmp_path / "plan.yaml"
    file.write_text(plan)
    start_agent(vantage="x", more=("--plan", str(file), "--otlp-endpoint", otlp_receiver.url))
    kinds = {"500", None}
    eventually(30, lambda: {attributes(one).get("error.type") for one in otlp_receiver.roots} >= kinds, "both outcomes")
    answered = next(one for one in otlp_receiver.roots if "error.type" not in attributes(one))
    phases = [span for span in otlp_receiver.spans if span.parent_span_id == answered.span_id]
    assert [span.name for span in phases] == PHASES
    assert phases[0].start_time_unix_nano == answered.start_time_unix_nano
    assert all(b.start_time_unix_nano == a.end_time_unix_nano for a, b in pairwise(phases))
    assert phases[-1].end_time_unix_nano <= answered.end_time_unix_nano
    eventually(30, lambda: bool(otlp_receiver.points("gen_ai.client.operation.time_to_first_chunk")), "metrics")
