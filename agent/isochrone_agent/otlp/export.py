"""Export of probes over OTLP: metrics, and one trace per probe.

The laws:

1. A probe never waits: it is put into a bounded queue, and dropped and counted when the queue is full.
2. One thread does the rest: it makes spans and metrics of what is in the queue, and sends them. Without a receiver it
   waits, and the measurements go on.
3. Metrics are cumulative, so that a request that fails loses none; the spans of a request that fails are dropped and
   counted, after the retries of the exporter.

This module is imported only if an endpoint is set, because the SDK takes memory. See `docs/opentelemetry.md`.
"""

import logging
import queue
import threading
from collections.abc import Sequence
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
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from isochrone_agent.otlp import conventions
from isochrone_agent.probe.prober import ProbeTimes
from isochrone_wire import __version__
from isochrone_wire.model import Outcome, Sample, Target, Vantage

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


class _EndedSpans(SpanProcessor):
    """Keeps the spans that have ended until they are taken."""

    def __init__(self) -> None:
        self._ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span."""
        self._ended.append(span)

    def take(self) -> Sequence[ReadableSpan]:
        """Return the spans since the last call."""
        taken, self._ended = self._ended, []
        return taken


class OtlpExport:
    """The export of one agent. `endpoint` is the base URL of a receiver over HTTP. `dropped` counts probes whose spans
    were not delivered; those dropped because the queue was full are in no metric either.
    """

    def __init__(self, endpoint: str, vantage: Vantage, *, every_seconds: float = EVERY_SECONDS) -> None:
        # What fails is logged here, once.
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
        self._ended = _EndedSpans()
        self._reader = InMemoryMetricReader()
        traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        traces.add_span_processor(self._ended)
        metrics = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)
        self._tracer = traces.get_tracer("isochrone", __version__)
        self._instruments = _instruments(metrics)
        self._span_exporter = OTLPSpanExporter(f"{base}/v1/traces", timeout=TIMEOUT_SECONDS)
        self._metric_exporter = OTLPMetricExporter(f"{base}/v1/metrics", timeout=TIMEOUT_SECONDS)
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Start the thread."""
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
            is_delivered = self._export_spans() and self._export_metrics()
        except Exception:  # noqa: BLE001  # a bug here or in the SDK: the measurements go on
            _log.exception("otlp.failed")
            return
        if is_delivered != self._is_reachable:
            self._is_reachable = is_delivered
            if is_delivered:
                _log.info("otlp.reachable", receiver=self._shown, dropped=self.dropped)
            else:
                _log.warning("otlp.unreachable", receiver=self._shown, dropped=self.dropped)

    def _export_spans(self) -> bool:
        """Send the probes of the queue; return false after the first request that fails, and leave the others."""
        while probes := self._portion():
            for target, sample, times in probes:
                self._record(target, sample, times)
            # A sampler of the environment may have left none.
            spans = self._ended.take()
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

    def _export_metrics(self) -> bool:
        data = self._reader.get_metrics_data()
        return data is None or self._metric_exporter.export(data) is MetricExportResult.SUCCESS

    def _record(self, target: Target, sample: Sample, times: ProbeTimes) -> None:
        found = conventions.attributes(target, sample)
        self._instruments[conventions.DURATION].record(conventions.duration_s(sample, times), found)
        found.pop("error.type", None)
        first_s = conventions.first_chunk_s(sample, times)
        if first_s is not None:
            self._instruments[conventions.FIRST_CHUNK].record(first_s, found)
        for kind, count in conventions.tokens(sample).items():
            self._instruments[conventions.TOKEN_USAGE].record(count, {**found, "gen_ai.token.type": kind})
        self._trace(target, sample, times)

    def _trace(self, target: Target, sample: Sample, times: ProbeTimes) -> None:
        """Make the spans of a probe: a root, and one for each phase that took place."""
        found = conventions.span_attributes(target, sample, times)
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
        for phase in conventions.phases(sample, times):
            child = self._tracer.start_span(phase.name, context=context, start_time=phase.from_at * _NS)
            child.end(phase.until_at * _NS)
        root.end(max(times.ended_at, sample.dispatched_at) * _NS)


def _instruments(metrics: MeterProvider) -> dict[str, Any]:
    meter = metrics.get_meter("isochrone", __version__)
    described = (
        (conventions.DURATION, "s", "GenAI operation duration.", conventions.SECONDS_BOUNDS),
        (conventions.FIRST_CHUNK, "s", "Time to receive the first chunk with a token.", conventions.SECONDS_BOUNDS),
        (conventions.TOKEN_USAGE, "{token}", "Number of input and output tokens used.", conventions.TOKEN_BOUNDS),
    )
    return {
        name: meter.create_histogram(
            name, unit=unit, description=text, explicit_bucket_boundaries_advisory=[float(bound) for bound in bounds]
        )
        for name, unit, text, bounds in described
    }
