"""A receiver of alerts to try them with: verifies each one and hands it on as a line of JSON."""

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AF_INET6

from isochrone_collector import webhook_signature
from isochrone_collector.clock import now_at
from isochrone_collector.errors import StartError
from isochrone_collector.webhook_signature import Unverified
from isochrone_wire.address import Address
from isochrone_wire.model import SECOND_US

_MOST_BYTES = 64 * 1024
_PATIENCE_S = 5.0

Say = Callable[[str], None]


def receive(listen: Address, secret: bytes, *, say: Say, note: Say) -> None:
    """Receive until interrupted: alerts that verify are said, and everything else is noted. Raises `StartError`."""
    seen: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_S

        def do_POST(self) -> None:
            """Take an alert, or refuse it."""
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > _MOST_BYTES:
                self._refuse(HTTPStatus.LENGTH_REQUIRED, f"a body of at most {_MOST_BYTES} bytes is taken")
                return
            body = self.rfile.read(int(length))
            told = {name.lower(): value for name, value in self.headers.items()}
            try:
                message = webhook_signature.verify(secret, told, body, now_s=now_at() // SECOND_US)
            except Unverified as error:
                self._refuse(HTTPStatus.UNAUTHORIZED, str(error))
                return
            if message not in seen:
                seen.add(message)
                say(body.decode(errors="replace"))
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def _refuse(self, status: HTTPStatus, reason: str) -> None:
            note(f"refused a message: {reason}")
            self.send_error(status, reason)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the signature is http.server's
            """Say nothing: what matters is said already."""

    with _server(listen, Handler) as server:
        note(f"receiving alerts at http://{Address(listen.host, server.server_port)}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _server(listen: Address, handler: type[BaseHTTPRequestHandler]) -> HTTPServer:
    class Server(HTTPServer):
        if ":" in listen.host:
            address_family = AF_INET6

    try:
        return Server((listen.host, listen.port), handler)
    except OSError as error:
        raise StartError(f"cannot listen on {listen}: {error.strerror}", hint="choose another --listen") from error
