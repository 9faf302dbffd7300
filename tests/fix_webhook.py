"""Borrow a webhook: a real HTTP server on loopback that keeps what it is told and answers as a test says."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from isochrone_collector import webhook_signature

SECRET = b"a secret of thirty-two bytes 123"


@dataclass(frozen=True, slots=True)
class Told:
    """One request: its verified id, and its body."""

    message: str
    body: dict[str, Any]


@dataclass(slots=True)
class Receiver:
    """`answers` are the statuses of the next requests, 200 once there are none left; `hold` makes it never answer."""

    address: str = ""
    answers: list[int] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    strayed: int = 0
    hold: threading.Event | None = None

    def kinds(self) -> list[str]:
        """The types of what it was told."""
        return [one.body["type"] for one in self.told]


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            told = {name.lower(): value for name, value in self.headers.items()}
            # A test's clock may run ahead of the day.
            message = webhook_signature.verify(SECRET, told, body, now_s=int(told[webhook_signature.TIMESTAMP]))
            receiver.told.append(Told(message, json.loads(body)))
            if receiver.hold is not None:
                receiver.hold.wait(30)
            status = receiver.answers.pop(0) if receiver.answers else 200
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("location", "/elsewhere?then=GET")
            self.end_headers()

        def do_GET(self) -> None:
            receiver.strayed += 1

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the signature is http.server's
            pass

    return Handler


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook that verifies signatures; `address` is its URL, which holds a token nobody may see."""
    kept = Receiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(kept))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    kept.address = f"http://127.0.0.1:{server.server_port}/hooks/url-token-7f3a"
    yield kept
    if kept.hold is not None:
        kept.hold.set()
    server.shutdown()
    thread.join()
    server.server_close()
