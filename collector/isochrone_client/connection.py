"""HTTP connections to a collector, with its errors as errors of the client.

The collector is verified as its identity states (`isochrone_common.trust`), and the credential is sent over TLS only.
"""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from email.message import Message
from http import HTTPStatus
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPResponse, LineTooLong
from typing import Any

from isochrone_client import errors
from isochrone_client.address import Collector
from isochrone_common.address import DEFAULT_HTTP_PORT, DEFAULT_PORT, UNIX
from isochrone_common.local_socket import REFUSED_HINT
from isochrone_common.trust import PLAIN, require_private, tls_context
from isochrone_wire.durations import SECOND_US

_MAX_ANSWER_BYTES = 64 << 20
_ASK_LESS = "use a shorter --window or a longer --timeout"

# By the last part of the type of a problem.
_ERROR_OF: dict[str, tuple[type[errors.ClientError], str]] = {
    "bad-request": (errors.RefusedError, "see --help for the valid values"),
    "unknown-name": (
        errors.UnknownNameError,
        "`isochrone targets` lists the targets, `isochrone coverage` the regions, `isochrone routes` the routes",
    ),
    "not-built": (errors.NoTableError, "`isochrone coverage` shows the samples"),
    "database-unavailable": (errors.UnreachableError, "see `isochrone-collector doctor`"),
    "unauthenticated": (errors.AccessError, "ask an operator for access: isochrone-collector access add"),
    "forbidden": (errors.AccessError, "ask an operator for the role: isochrone-collector access add"),
    "deadline-exceeded": (errors.SlowError, _ASK_LESS),
    "resource-exhausted": (errors.CollectorError, "use a shorter --window or fewer --target"),
    "about:blank": (errors.CollectorError, "is it an Isochrone collector, and at least as new as this command?"),
}
# Hints for other unknown names, by the start of the collector's message.
_HINT_OF_UNKNOWN = {
    "unknown region ": "`isochrone vantages` lists them; a region becomes known when an agent starts there: "
    "isochrone-agent run --vantage NAME --region REGION",
    "unknown client region ": "`isochrone routes` shows the tables of all regions",
    "unknown route ": "`isochrone routes` shows the tables of all routes",
    "unknown use ": "`isochrone slo` shows all uses",
    "there is no route table yet": "add `routes` to the plan and apply it: isochrone-collector apply plan.yaml; "
    "`isochrone coverage` shows the samples",
    "there is no generation ": "`isochrone routes history` lists the generations; `isochrone explain` without "
    "--generation takes the newest",
}
# The starts of the messages of a collector without the table that was asked for.
_NO_TABLE = ("there is no route table yet", "there is no table of ")
_START_HINT = (
    "is it running? start one with `isochrone-collector serve`, or give its address with --collector HOST:PORT"
)


class _Limit(threading.Timer):
    def __init__(self, seconds: float, connection: HTTPConnection) -> None:
        super().__init__(seconds, self._expire)
        self.daemon = True
        self.is_over = False
        self._connection = connection

    def _expire(self) -> None:
        self.is_over = True  # before the thread that waits can see the end
        _end(self._connection)


class Connections:
    """Connections to a collector, opened by the first request and kept for later ones. Threads may share them.

    All requests raise `RefusedError`, `UnreachableError`, `SlowError`, `AccessError` or `CollectorError`, and the
    constructor `AddressError`. The times are in microseconds.
    """

    def __init__(self, collector: Collector, *, timeout_us: int, connect_timeout_us: int) -> None:
        self._address, self._name, identity = collector.address, collector.named, collector.identity
        self._trust = identity.trust if identity else PLAIN
        self._is_anonymous = identity is None
        self._timeout_s, self._connect_timeout_s = timeout_us / SECOND_US, connect_timeout_us / SECOND_US
        self._headers = {"Accept": "*/*"}
        self._idle: list[HTTPConnection] = []
        self._used: set[HTTPConnection] = set()
        self._is_closed = False
        try:
            require_private(self._address, self._trust)
            self._context = tls_context(self._trust) if self._trust.tls else None
        except ValueError as error:
            raise errors.AddressError(str(error), hint="join the collector first: isochrone join") from error
        if identity is not None and self._trust.tls:
            self._headers["Authorization"] = f"Bearer {identity.credential}"

    def close(self) -> None:
        """Close all connections, and end requests of other threads."""
        self._is_closed = True
        for connection in tuple(self._used):
            _end(connection)
        while self._idle:
            self._idle.pop().close()

    def ask(self, url: str, method: str = "GET") -> tuple[Any, Message]:
        """Return the JSON document at a path with a query, and the headers of the answer."""
        with self._response(url, method) as (response, _, limit):
            try:
                body = response.read(_MAX_ANSWER_BYTES)
                is_longer = bool(response.read(1))  # which also notes the end
            except (OSError, HTTPException) as error:
                raise TimeoutError if limit.is_over else error from error
            if limit.is_over:
                raise TimeoutError
        if is_longer:
            raise errors.CollectorError(f"the answer of the collector at {self._name} is too long", hint=_ASK_LESS)
        try:
            return json.loads(body), response.headers
        except (ValueError, RecursionError) as error:
            raise self._no_answer("its answer is not JSON") from error

    def stream(self, url: str, *, timeout_us: int = 0) -> Iterator[bytes]:
        """Yield the body at a path with a query as it arrives, for any time, if each piece comes within the timeout, or
        within `timeout_us` if that is longer.
        """
        with self._response(url) as (response, connection, limit):
            limit.cancel()
            if connection.sock is not None:
                connection.sock.settimeout(max(self._timeout_s, timeout_us / SECOND_US))
            while piece := response.read1(1 << 16):
                yield piece

    @contextmanager
    def _response(self, url: str, method: str = "GET") -> Iterator[tuple[HTTPResponse, HTTPConnection, _Limit]]:
        """Yield response, connection and the timer of the whole answer; the socket's begins again with each byte."""
        try:
            connection, response, limit = self._sent(url, method)
            try:
                if response.status != HTTPStatus.OK:
                    raise self._problem(response.status, response.read(1 << 20))
                yield response, connection, limit
            finally:
                limit.cancel()
                self._used.discard(connection)
                if response.isclosed() and connection.sock is not None and not self._is_closed:
                    self._idle.append(connection)
                else:
                    connection.close()
        except TimeoutError as error:
            sentence = f"the collector at {self._name} did not answer in time"
            raise errors.SlowError(sentence, hint=_ASK_LESS) from error
        except (OSError, HTTPException) as error:
            # A connection that was closed is a `BadStatusLine`, too.
            if isinstance(error, BadStatusLine | LineTooLong) and not isinstance(error, ConnectionError):
                raise self._no_answer("it does not speak HTTP") from error
            raise self._unreachable(error) from error

    def _sent(self, url: str, method: str) -> tuple[HTTPConnection, HTTPResponse, _Limit]:
        # None is idle, or the collector has closed the one that was.
        with suppress(IndexError, ConnectionError):
            return self._sent_over(self._idle.pop(), url, method)
        return self._sent_over(self._opened(), url, method)

    def _sent_over(
        self, connection: HTTPConnection, url: str, method: str
    ) -> tuple[HTTPConnection, HTTPResponse, _Limit]:
        limit = _Limit(self._timeout_s, connection)
        self._used.add(connection)
        try:
            limit.start()
            connection.sock.settimeout(self._timeout_s)
            connection.request(method, url, headers=self._headers)
            return connection, connection.getresponse(), limit
        except BaseException as error:
            is_late = limit.is_over
            limit.cancel()
            self._used.discard(connection)
            connection.close()
            if is_late and isinstance(error, Exception):
                raise TimeoutError from error
            raise

    def _opened(self) -> HTTPConnection:
        address = self._address
        connection = HTTPConnection("localhost" if address.is_socket else address.host, address.port or None)
        try:
            if address.is_socket:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(self._connect_timeout_s)
                connection.sock.connect(address.host.removeprefix(UNIX))
                return connection
            connection.sock = socket.create_connection((address.host, address.port), self._connect_timeout_s)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                name = self._trust.server_name or address.host
                connection.sock = self._context.wrap_socket(connection.sock, server_hostname=name)
        except ssl.SSLCertVerificationError as error:
            connection.close()
            sentence = f"the collector at {self._name} is not the one that was joined: its certificate differs"
            raise errors.AccessError(
                sentence, hint="if its operator has replaced the certificate, join again"
            ) from error
        except OSError as error:
            connection.close()
            raise self._unreachable(error) from error
        return connection

    def _unreachable(self, error: Exception) -> errors.UnreachableError:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        if isinstance(error, HTTPException | TimeoutError):
            reason = f"the connection {'timed out' if isinstance(error, TimeoutError) else 'was closed'}"
        return self._no_answer(reason)

    def _no_answer(self, reason: str) -> errors.UnreachableError:
        hint = _START_HINT
        if self._address.port == DEFAULT_PORT:
            other = replace(self._address, port=DEFAULT_HTTP_PORT)
            hint = f"port {DEFAULT_PORT} is that of agents (gRPC); try --collector {other}"
        return errors.UnreachableError(f"no collector answers at {self._name}: {reason}", hint=hint)

    def _problem(self, status: int, body: bytes) -> errors.ClientError:
        try:
            problem = json.loads(body)
            name, detail = str(problem["type"]).removeprefix("urn:isochrone:problem:"), str(problem["detail"])
        except (ValueError, LookupError, TypeError):
            return self._no_answer(f"HTTP status {status}")
        kind, hint = _ERROR_OF.get(name, (errors.CollectorError, "see the collector's log"))
        if kind is errors.AccessError and self._is_anonymous:
            return errors.AccessError(f"the collector at {self._name} requires TLS and a credential", hint=REFUSED_HINT)
        if kind is errors.UnknownNameError:
            hint = next((better for start, better in _HINT_OF_UNKNOWN.items() if detail.startswith(start)), hint)
            kind = errors.NoTableError if detail.startswith(_NO_TABLE) else kind
        is_sentence = issubclass(kind, errors.RefusedError | errors.AccessError)
        return kind(detail if is_sentence else f"the collector at {self._name} failed: {detail}", hint=hint)


def _end(connection: HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # it is closed
        connection.sock.shutdown(socket.SHUT_RDWR)
