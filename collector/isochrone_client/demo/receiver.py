"""The receiver of the demo's alerts: a webhook on loopback that counts what arrives."""

import json
import threading
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class AlertReceiver:
    """A webhook for the length of a block. It accepts every alert, and does not verify signatures."""

    def __init__(self) -> None:
        # The id of each alert, and a sentence if it reports an incident of a target.
        self._received: list[tuple[str, str]] = []
        self._taken = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._received))
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def new(self) -> list[str]:
        """Return the alerts about incidents that arrived since the last call, as sentences."""
        found = self._received[self._taken :]
        self._taken += len(found)
        return [sentence for _, sentence in found if sentence]

    def count(self) -> str:
        """Return a sentence with the number of alerts, and of those that arrived more than once."""
        times = Counter(alert for alert, _ in self._received)
        about = len({alert for alert, sentence in self._received if sentence})
        repeated = sum(number > 1 for number in times.values())
        how = f"{repeated} of them more than once" if repeated else "each once"
        return f"{len(times)} alerts arrived at the receiver, {about} of them about incidents: {how}"


def _handler(received: list[tuple[str, str]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_POST(self) -> None:
            """Accept an alert."""
            body = json.loads(self.rfile.read(min(int(self.headers["content-length"]), 64 * 1024)))
            kind, data = body["type"].removeprefix("isochrone."), body["data"]
            # Since when and which errors are in the list of incidents.
            what = data["sentence"].partition(" since ")[0].rstrip(",")
            sentence = (
                f"alert {kind}: {data['subject']} {what}"
                if kind in ("target_failing", "target_throttled", "target_recovered")
                else ""
            )
            received.append((data["id"], sentence))
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the signature is http.server's
            """Log nothing: the screen belongs to the demo."""

    return Handler
