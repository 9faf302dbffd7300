"""Requests out of bytes. h11 parses them and does nothing else: responses are bytes of our own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

import h11

MAX_BODY_BYTES = 8 << 20


class Malformed(Exception):  # noqa: N818  # reads as what happened
    """Bytes that are no HTTP/1.1 request we would take; `status` is the answer they deserve."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One complete request; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def keeps_alive(self) -> bool:
        """Whether the client lets the connection stay open behind the response."""
        return self.headers.get("connection", "").lower() != "close"


class RequestReader:
    """Feed it what arrives; it gives back requests, one after the other."""

    def __init__(self) -> None:
        self._parser: h11.Connection
        self._head: h11.Request | None
        self._body: list[bytes]
        self._size: int
        self._renew()

    def receive(self, data: bytes) -> None:
        """Take bytes as they came."""
        self._parser.receive_data(data)

    @property
    def wants_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends its body."""
        return self._parser.they_are_waiting_for_100_continue

    def next_request(self) -> Request | None:
        """The next complete request; `None` until more bytes come. Raises `Malformed`."""
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
        # h11 would want to see our response before it takes another request; a new parser does not.
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
