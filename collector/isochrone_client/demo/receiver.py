"""The receiver of the demo's alerts: a webhook on loopback that counts what arrives."""

import json
import threading
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

_MAX_BYTES = 64 * 1024
_INCIDENT_TYPES = ("target_failing", "target_throttled", "target_recovered")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedAlert:
    """An alert as it arrived; `kind` is its type without the prefix."""

    id: str
    kind: str
    subject: str
    sentence: str

    @property
    def is_about_an_incident(self) -> bool:
        """Return whether it reports an incident of a target."""
        return self.kind in _INCIDENT_TYPES

    def __str__(self) -> str:
        # Since when and which errors are in the list of incidents.
        return f"alert {self.kind}: {self.subject} {self.sentence.partition(' since ')[0].rstrip(',')}"


class AlertReceiver:
    """A webhook for the length of a block. It accepts every alert, and does not verify signatures."""

    def __init__(self) -> None:
        self._received: list[ReceivedAlert] = []
        self._taken = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._received))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def new(self) -> tuple[ReceivedAlert, ...]:
        """Return what arrived since the last call."""
        found = tuple(self._received[self._taken :])
        self._taken += len(found)
        return found

    def count(self) -> str:
        """Return a sentence with the number of alerts, and of those that arrived more than once."""
        times = Counter(alert.id for alert in self._received)
        about = len({alert.id for alert in self._received if alert.is_about_an_incident})
        repeated = sum(number > 1 for number in times.values())
        how = f"{repeated} of them more than once" if repeated else "each once"
        return f"{len(times)} alerts arrived at the receiver, {about} of them about incidents: {how}"


def _handler(received: list[ReceivedAlert]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_POST(self) -> None:
            """Accept an alert."""
            body = json.loads(self.rfile.read(min(int(self.headers["content-length"]), _MAX_BYTES)))
            parts = {name: body["data"][name] for name in ("id", "subject", "sentence")}
            received.append(ReceivedAlert(kind=body["type"].removeprefix("isochrone."), **parts))
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the signature is http.server's
            """Log nothing: the screen belongs to the demo."""

    return Handler
