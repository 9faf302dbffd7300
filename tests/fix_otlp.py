"""A receiver of OTLP over HTTP that decodes what it gets."""

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span, a data point or a resource."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


@dataclass(slots=True)
class OtlpReceiver:
    """The requests that were received. It answers with `status`."""

    url: str = ""
    status: int = 200
    traces: "list[ExportTraceServiceRequest]" = field(default_factory=list)
    metrics: "list[ExportMetricsServiceRequest]" = field(default_factory=list)

    @property
    def spans(self) -> "list[Span]":
        """All spans."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def roots(self) -> "list[Span]":
        """The spans of whole probes."""
        return [span for span in self.spans if not span.parent_span_id]

    def points(self, name: str) -> list[Any]:
        """Return the data points of a histogram in the newest request, with their attributes."""
        newest = self.metrics[-1:]
        return [
            point
            for request in newest
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.histogram.data_points
        ]

    def receive(self, path: str, body: bytes) -> None:
        """Decode a request."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))


@pytest.fixture
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on loopback."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if receiver.status == 200:
                receiver.receive(self.path, body)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield receiver
    server.shutdown()
    server.server_close()
    thread.join()
