"""Export of probes over OTLP: metrics, and one trace per probe, in the terms of OpenTelemetry's semantic conventions
for generative AI (semantic-conventions-genai, status: development).

The laws:

1. A probe never waits: it is put into a bounded queue, and dropped and counted when the queue is full.
2. One thread does the rest: it makes spans and metrics of what is in the queue, and sends them. Without a receiver it
   waits, and the measurements go on.
3. Metrics are cumulative, so that a request that fails loses none; the spans of a request that fails are dropped and
   counted, after the retries of the exporter.
4. Where the convention defines a quantity differently from a `Sample`, the value is that of the convention.

Instants are microseconds since the epoch. This module is imported only if an endpoint is set, because the SDK takes
memory. See `docs/prometheus.md`.
"""

import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from isochrone_agent.probe.prober import ProbeTimes
from isochrone_wire import __version__
from isochrone_wire.model import SECOND_US, Outcome, Sample, Target, TokenSource, Vantage

QUEUE_PROBES = 2_000
"""Probes that wait for the thread; more are dropped."""

PORTION_PROBES = 200
"""Probes of one request with spans, each with at most eight spans."""

EVERY_SECONDS = 5.0
TIMEOUT_SECONDS = 10.0
FLUSH_SECONDS = 3.0

_NS = 1_000
_Probe = tuple[Target, Sample, ProbeTimes]

_log = structlog.get_logger()


class OtlpExport:
    """The export of one agent to a receiver over HTTP. `dropped` counts probes whose spans were not delivered."""

    def __init__(self, endpoint: str, vantage: Vantage, *, every_seconds: float = EVERY_SECONDS) -> None:
        # A failure is logged here, once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        resource = Resource.create(
            {
                "service.name": "isochrone-agent",
                "service.version": __version__,
                "service.instance.id": vantage.name,
                "cloud.region": vantage.region,
            }
        )
        base = endpoint.rstrip("/")
        self._shown = urlsplit(endpoint).netloc.rpartition("@")[2]
        self._every_seconds = every_seconds
        self._queue: queue.Queue[_Probe] = queue.Queue(QUEUE_PROBES)
        self._stopping = threading.Event()
        self._is_reachable = True
        self.dropped = 0
        self._ended = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        traces.add_span_processor(SimpleSpanProcessor(self._ended))
        metrics = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)
        self._tracer = traces.get_tracer("isochrone", __version__)
        self._instruments = _instruments(metrics)
        self._span_exporter = OTLPSpanExporter(f"{base}/v1/traces", timeout=TIMEOUT_SECONDS)
        self._metric_exporter = OTLPMetricExporter(f"{base}/v1/metrics", timeout=TIMEOUT_SECONDS)
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()
        _log.info("otlp.started", receiver=self._shown)

    def offer(self, target: Target, sample: Sample, times: ProbeTimes) -> None:
        """Export a probe, unless no request was sent. Never waits, and never raises."""
        if not sample.sent:
            return
        try:
            self._queue.put_nowait((target, sample, times))
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Send what is left, for a limited time, and end the thread."""
        self._stopping.set()
        self._thread.join(FLUSH_SECONDS)
        # Ends the waits between retries.
        self._span_exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK lacks the type
        self._metric_exporter.shutdown()
        self._thread.join(FLUSH_SECONDS)
        left = self.dropped + self._queue.qsize()
        _log.info("otlp.stopped", receiver=self._shown, dropped=left)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_seconds):
            self._export()
        self._export()

    def _export(self) -> None:
        try:
            is_delivered = self._export_spans()
            if is_delivered and (data := self._reader.get_metrics_data()) is not None:
                is_delivered = self._metric_exporter.export(data) is MetricExportResult.SUCCESS
        except Exception:  # noqa: BLE001  # a bug here or in the SDK: the measurements go on
            _log.exception("otlp.failed")
            return
        if is_delivered != self._is_reachable:
            self._is_reachable = is_delivered
            log = _log.info if is_delivered else _log.warning
            log("otlp.reachable" if is_delivered else "otlp.unreachable", receiver=self._shown, dropped=self.dropped)

    def _export_spans(self) -> bool:
        """Send the probes of the queue; return false after the first request that fails, and leave the others."""
        while probes := self._portion():
            for target, sample, times in probes:
                self._record(target, sample, times)
            # A sampler of the environment may have left none.
            spans = self._ended.get_finished_spans()
            self._ended.clear()
            if spans and self._span_exporter.export(spans) is not SpanExportResult.SUCCESS:
                self.dropped += len(probes)
                return False
        return True

    def _portion(self) -> list[_Probe]:
        portion: list[_Probe] = []
        with suppress(queue.Empty):
            while len(portion) < PORTION_PROBES:
                portion.append(self._queue.get_nowait())
        return portion

    def _record(self, target: Target, sample: Sample, times: ProbeTimes) -> None:
        found = attributes(target, sample)
        self._instruments[DURATION].record(duration_s(sample, times), found)
        found.pop("error.type", None)
        first_s = first_chunk_s(sample, times)
        if first_s is not None:
            self._instruments[FIRST_CHUNK].record(first_s, found)
        for kind, count in tokens(sample).items():
            self._instruments[TOKEN_USAGE].record(count, {**found, "gen_ai.token.type": kind})
        self._trace(target, sample, times)

    def _trace(self, target: Target, sample: Sample, times: ProbeTimes) -> None:
        found = span_attributes(target, sample, times)
        root = self._tracer.start_span(
            f"{found['gen_ai.operation.name']} {target.model}",
            context=Context(),
            kind=SpanKind.CLIENT,
            attributes=found,
            start_time=sample.dispatched_at * _NS,
        )
        if sample.outcome is not Outcome.OK:
            root.set_status(Status(StatusCode.ERROR, sample.error or sample.outcome.value))
        context = set_span_in_context(root)
        for name, from_at, until_at in phases(sample, times):
            self._tracer.start_span(name, context=context, start_time=from_at * _NS).end(until_at * _NS)
        root.end(max(times.ended_at, sample.dispatched_at) * _NS)


def _instruments(metrics: MeterProvider) -> dict[str, Any]:
    meter = metrics.get_meter("isochrone", __version__)
    described = (
        (DURATION, "s", "GenAI operation duration.", SECONDS_BOUNDS),
        (FIRST_CHUNK, "s", "Time to receive the first chunk with a token.", SECONDS_BOUNDS),
        (TOKEN_USAGE, "{token}", "Number of input and output tokens used.", TOKEN_BOUNDS),
    )
    return {
        name: meter.create_histogram(
            name, unit=unit, description=text, explicit_bucket_boundaries_advisory=[float(bound) for bound in bounds]
        )
        for name, unit, text, bounds in described
    }


DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE = "gen_ai.client.token.usage"
# The class bounds that the convention recommends.
SECONDS_BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKEN_BOUNDS = tuple(4**power for power in range(14))

Attributes = dict[str, str | int | float | bool]

_OPERATIONS = {"gemini": "generate_content"}
_CHAT = "chat"
# Names that the convention prescribes, by the provider's name in the plan.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "moonshot": "moonshot_ai",
    "moonshotai": "moonshot_ai",
    "openai-responses": "openai",
    "vertex": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
    "x-ai": "x_ai",
}
_PORTS = {"http": 80, "https": 443}


def attributes(target: Target, sample: Sample) -> Attributes:
    """Return the attributes of metrics and spans. `error.type` is the status of a refused request, else the outcome."""
    url = urlsplit(target.base_url)
    found: Attributes = {
        "gen_ai.operation.name": _OPERATIONS.get(target.dialect, _CHAT),
        "gen_ai.provider.name": _PROVIDERS.get(target.provider, target.provider),
        "gen_ai.request.model": target.model,
        "isochrone.target": target.name,
    }
    if url.hostname:
        found["server.address"] = url.hostname
        found["server.port"] = url.port or _PORTS.get(url.scheme, 443)
    if sample.outcome is not Outcome.OK:
        is_status = sample.http_status is not None and sample.http_status >= 400  # noqa: PLR2004  # HTTP's errors
        found["error.type"] = str(sample.http_status) if is_status else sample.outcome.value
    return found


def span_attributes(target: Target, sample: Sample, times: ProbeTimes) -> Attributes:
    """Return the further attributes of a probe's span. Neither prompts nor answers are among them."""
    first_s = first_chunk_s(sample, times)
    optional = {
        "gen_ai.request.temperature": target.workload.temperature,
        "gen_ai.response.time_to_first_chunk": first_s,
        "gen_ai.usage.cache_read.input_tokens": sample.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": sample.reasoning_tokens,
        "http.response.status_code": sample.http_status,
        "isochrone.frames_unknown": sample.frames_unknown or None,
        "network.peer.address": sample.remote_address,
        **{f"gen_ai.usage.{kind}_tokens": count for kind, count in tokens(sample).items()},
    }
    return {
        **attributes(target, sample),
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": target.workload.max_output_tokens,
        "isochrone.outcome": sample.outcome.value,
        "isochrone.round_at": sample.round_at,
        **{name: value for name, value in optional.items() if value is not None},
    }


def tokens(sample: Sample) -> dict[str, int]:
    """Return the tokens that the provider stated, by `gen_ai.token.type`; estimates are not reported."""
    if sample.token_source is not TokenSource.USAGE:
        return {}
    counts = {"input": sample.prompt_tokens, "output": sample.output_tokens}
    return {kind: count for kind, count in counts.items() if count is not None}


def duration_s(sample: Sample, times: ProbeTimes) -> float:
    """Return the seconds from the begin of the probe, with its connection, to the end of the response or the error."""
    return max(times.ended_at - sample.dispatched_at, 0) / SECOND_US


def first_chunk_s(sample: Sample, times: ProbeTimes) -> float | None:
    """Return the seconds from the begin of the probe, with its connection, to the first chunk that has a token."""
    if sample.ttft_us is None or times.sent_at is None:
        return None
    return (times.sent_at + sample.ttft_us - sample.dispatched_at) / SECOND_US


def phases(sample: Sample, times: ProbeTimes) -> Iterator[tuple[str, int, int]]:
    """Yield the phases that took place as name, begin and end, in order. Each begins when the one before it ends."""
    at = sample.dispatched_at
    for name, us in (("dns", sample.dns_us), ("connect", sample.tcp_us), ("tls", sample.tls_us)):
        if us is not None:
            yield name, at, at + us
            at += us
    if times.sent_at is None:
        return
    # The phases are rounded one by one, so the sum may be a microsecond later.
    yield "request sent", min(at, times.sent_at), times.sent_at
    at = times.sent_at
    for name, us in (("first byte", sample.ttfb_us), ("first token", sample.ttft_us), ("last token", sample.e2e_us)):
        if us is not None:
            until_at = max(times.sent_at + us, at)
            yield name, at, until_at
            at = until_at
