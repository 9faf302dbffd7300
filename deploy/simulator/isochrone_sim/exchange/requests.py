"""Request parsing with h11, which is used for nothing else: responses are written as plain bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

import h11

MAX_BODY_BYTES = 8 << 20


class Malformed(Exception):  # noqa: N818  # named after the event
    """Bytes that are not an acceptable HTTP/1.1 request; `status` is the status of the response."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One complete request; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def keeps_alive(self) -> bool:
        """True if the client allows the connection to stay open after the response."""
        return self.headers.get("connection", "").lower() != "close"


class RequestReader:
    """Incremental parser: receives bytes and returns complete requests in order."""

    def __init__(self) -> None:
        self._parser: h11.Connection
        self._head: h11.Request | None
        self._body: list[bytes]
        self._size: int
        self._renew()

    def receive(self, data: bytes) -> None:
        """Add received bytes."""
        self._parser.receive_data(data)

    @property
    def wants_continue(self) -> bool:
        """True if the client waits for `100 Continue` before it sends the body."""
        return self._parser.they_are_waiting_for_100_continue

    def next_request(self) -> Request | None:
        """Return the next complete request; `None` until more bytes arrive. Raises `Malformed`."""
        try:
            while (event := self._parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.EndOfMessage):
                    return self._complete()
                self._take(event)
        except h11.RemoteProtocolError as error:
            raise Malformed(str(error), status=error.error_status_hint) from error
        return None

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._head = event
        elif isinstance(event, h11.Data):
            self._body.append(bytes(event.data))
            self._size += len(event.data)
        elif isinstance(event, h11.ConnectionClosed):
            raise Malformed("the client closed the connection")
        if self._size > MAX_BODY_BYTES:
            raise Malformed(f"the body is larger than {MAX_BODY_BYTES} bytes", status=413)

    def _complete(self) -> Request:
        assert self._head is not None
        head, body = self._head, b"".join(self._body)
        target = urlsplit(head.target.decode("latin-1"))
        request = Request(
            method=head.method.decode("latin-1"),
            path=target.path,
            query=dict(parse_qsl(target.query)),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
            body=body,
        )
        # h11 requires the response before it parses another request; a new parser does not.
        rest = self._parser.trailing_data[0]
        self._renew()
        if rest:
            self.receive(rest)
        return request

    def _renew(self) -> None:
        self._parser = h11.Connection(h11.SERVER)
        self._head = None
        self._body = []
        self._size = 0
