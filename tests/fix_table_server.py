"""Fixture for route tables over HTTP: a real socket that streams the tables of a test as a collector does."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from isochrone_wire.json_format import to_json_value
from isochrone_wire.routes import RouteTable

_TICK_SECONDS = 0.02


@dataclass(slots=True, repr=False)
class TableServer:
    """The tables of one region, or of several: then each watch receives those of its region (`by_region`). `requests`
    are the headers of every watch; `lines` what was published, oldest first. With a `refusal`, a watch is a 404 with
    that text. The overview has the routes of the plan, `planned`; without them it is a 404. `overviews` are the paths
    of its requests.
    """

    lines: list[bytes] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    date: str | None = None
    refusal: str = ""
    port: int = 0
    starts: int = 1
    by_region: bool = False
    planned: tuple[str, ...] | None = None
    overviews: list[str] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """The address of the collector."""
        return f"http://127.0.0.1:{self.port}"

    def publish(self, table: RouteTable) -> None:
        """Publish a table."""
        self.publish_line(json.dumps(to_json_value(table)).encode(), generation=table.generation)

    def publish_line(self, data: bytes, *, generation: int = 0) -> None:
        """Publish data as an event."""
        self.lines.append(f"id: {generation}\nevent: table\ndata: ".encode() + data + b"\n\n")

    def is_for(self, path: str, line: bytes) -> bool:
        """Return whether the watch at this path receives the line."""
        field = b'"client_region": '
        own = field + json.dumps(path.split("/")[3]).encode()
        return not self.by_region or own in line or field not in line

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(_TICK_SECONDS,), daemon=True).start()

    def stop(self) -> None:
        """End all streams and stop listening."""
        self.starts += 1
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _handler(tables: TableServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/routes":
                tables.overviews.append(self.path)
                overview = {"plan_version": 2, "routes": tables.planned}
                self._send_document(404 if tables.planned is None else 200, overview)
                return
            tables.requests.append({name.lower(): value for name, value in self.headers.items()} | {"path": self.path})
            if tables.refusal:
                self._send_document(404, {"error": tables.refusal})
                return
            start, sent = tables.starts, 0
            self.send_response_only(200)
            self.send_header("Date", tables.date or self.date_time_string())
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            ended = threading.Event()
            with suppress(OSError):
                while start == tables.starts:
                    lines = tables.lines[sent:]
                    sent += len(lines)
                    self.wfile.write(b"".join(one for one in lines if tables.is_for(self.path, one)) or b":\n")
                    ended.wait(_TICK_SECONDS)

        def _send_document(self, status: int, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    return Handler


@pytest.fixture
def table_server() -> Iterator[TableServer]:
    """A server without tables."""
    server = TableServer()
    server.start()
    yield server
    server.stop()
