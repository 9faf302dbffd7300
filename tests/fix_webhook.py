"""Fixture for a webhook: a real HTTP server on loopback that records alerts and answers as the test specifies."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from isochrone_collector import webhook_signature

SECRET = b"a secret of thirty-two bytes 123"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its verified id, if it is signed, its body, path and headers by lower-case name."""

    message: str
    body: dict[str, Any]
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Receiver:
    """`answers` are the statuses of the next requests, then 200. `never_answer` delays answers until it is set.
    `retry_after` is a header of answers that are no success.
    """

    address: str = ""
    answers: list[int] = field(default_factory=list)
    received: list[Request] = field(default_factory=list)
    get_requests: int = 0
    never_answer: threading.Event | None = None
    retry_after: str = ""

    def kinds(self) -> list[str]:
        """Return the types of the received alerts."""
        return [one.body["type"] for one in self.received]


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            # The clock of a test may be ahead of the real time.
            message = ""
            if sent := headers.get(webhook_signature.TIMESTAMP):
                message = webhook_signature.verify(SECRET, headers, body, now_s=int(sent))
            receiver.received.append(Request(message, json.loads(body), self.path, headers))
            if receiver.never_answer is not None:
                receiver.never_answer.wait(30)
            status = receiver.answers.pop(0) if receiver.answers else 200
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("location", "/elsewhere?then=GET")
            if receiver.retry_after and status >= 400:
                self.send_header("retry-after", receiver.retry_after)
            self.end_headers()

        def do_GET(self) -> None:
            receiver.get_requests += 1

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the signature is http.server's
            pass

    return Handler


@contextmanager
def open_receiver() -> Iterator[Receiver]:
    """A receiver of alerts on loopback; `address` contains a secret token."""
    kept = Receiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(kept))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    kept.address = f"http://127.0.0.1:{server.server_port}/hooks/url-token-7f3a"
    try:
        yield kept
    finally:
        if kept.never_answer is not None:
            kept.never_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook that verifies signatures."""
    with open_receiver() as opened:
        yield opened


@pytest.fixture
def other_receiver() -> Iterator[Receiver]:
    """A second one."""
    with open_receiver() as opened:
        yield opened
