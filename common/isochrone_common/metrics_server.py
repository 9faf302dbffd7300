"""Metrics in the formats of Prometheus, and an endpoint for them: `/metrics` over plain HTTP, served by threads.

The endpoint needs no credential, so it may be used only where names and latencies of targets are no secret.

`prometheus_client` is imported when it is used, so that an agent without metrics does not load it.
"""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from socketserver import TCPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from isochrone_common.address import Address, parse_address

if TYPE_CHECKING:
    from prometheus_client.core import Metric


MAX_SCRAPES = 4
"""Requests that an endpoint serves at once."""


def encode_metrics(families: "Iterable[Metric]", accept: str) -> tuple[bytes, str]:
    """Return these metrics, and those of this process, in the format of an `Accept` header; with the media type."""
    from prometheus_client import ProcessCollector  # noqa: PLC0415  # see above
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  # as above

    try:
        encode, media_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # A version that is not a number.
        encode, media_type = choose_encoder("")
    process = ProcessCollector(registry=None).collect()
    return encode(SimpleNamespace(collect=lambda: chain(families, process))), media_type


def parse_listen(text: str, *, default_port: int) -> Address | None:
    """Parse `host:port` (port 0 selects a free port); `None` for `off`. Raises `ValueError`."""
    return None if text == "off" else parse_address(text, default_port=default_port)


@contextmanager
def serve_metrics(listen: Address, collect: "Callable[[], Iterable[Metric]]") -> Iterator[Address]:
    """Serve the metrics of `collect`, called in threads, during the block. Raises `OSError` if the port is used."""
    server = _Server((listen.host, listen.port), partial(_Handler, collect))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield Address(listen.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """A server of at most `MAX_SCRAPES` requests at once; it closes other connections."""

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._free = threading.Semaphore(MAX_SCRAPES)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the look-up of the machine's name in http.server, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_port = self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as in socketserver
        """Start a thread for a connection, if there is room."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as above
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as above
        """Ignore connections that break; socketserver would print a traceback."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0

    def __init__(self, collect: "Callable[[], Iterable[Metric]]", *connection: Any) -> None:  # noqa: ANN401  # as in socketserver
        self._collect = collect
        super().__init__(*connection)

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content, media_type = encode_metrics(self._collect(), self.headers.get("Accept", ""))
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:  # noqa: ANN401  # as in http.server
        """Log nothing."""
