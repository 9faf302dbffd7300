"""One request of a caller, sent to the members of its route until one returns content.

Theory of operation: until the first content of a stream another member may still answer, so it is read that far
before the caller gets it, and a response without a stream is read to its end. An attempt ends as an `Attempt`, with a
response or an error; a failed one, or one without content in its time, is followed by the next member, and the caller
gets the last failure if there is none. A hedged request has two attempts at once: the first content wins, and the other
attempt is cancelled, which closes its connection. No attempt outlives the request with an unread response.
"""

import json
import math
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    MutableMapping,
)
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any

import httpcore

from isochrone.routing import requests
from isochrone.routing.attempts import (
    Failure,
    HedgePlan,
    attempt_limit_s,
    failure_of,
    first_token_limit_s,
    plan_hedge,
    refusal_text,
)
from isochrone.routing.connections import Connections
from isochrone.routing.racing import LoopRacing, Racing, Start
from isochrone.routing.requests import FirstContent, Headers, Progress, ProviderRequest
from isochrone.routing.routes import Routes
from isochrone_common.sse import UNFRAMED_BYTES
from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RouteEntry, RouteTable

_FIRST_REFUSAL = 300
_RETRIABLE = (
    httpcore.NetworkError,
    httpcore.RemoteProtocolError,
    httpcore.ConnectTimeout,
    httpcore.WriteTimeout,
    httpcore.ReadTimeout,
)
ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
"""The errors of a request."""
MEMBER = "isochrone"
"""The extension of a member's response: the names of its `route` and `target`."""
# Of a response that is read ahead; the caller gets a larger one as it comes.
_MOST_HELD_BYTES = 4 << 20


_url = lru_cache(maxsize=256)(httpcore.URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """The request of the caller."""

    method: str
    url: str
    headers: Headers
    body: bytes
    extensions: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A response: `held` was read already, `rest` follows."""

    status: int
    headers: Headers
    rest: AsyncIterator[bytes]
    aclose: Callable[[], Coroutine[Any, Any, None]]
    held: tuple[bytes, ...] = ()
    extensions: MutableMapping[str, Any] = field(default_factory=dict)

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        for data in self.held:
            yield data
        async for data in self.rest:
            yield data


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """The end of an attempt at a member: a response, which may be a failure, or an error."""

    entry: RouteEntry
    response: Incoming | None = None
    error: Exception | None = None
    is_failed: bool = False

    async def discard(self) -> None:
        """Give up the response."""
        if self.response is not None:
            await self.response.aclose()


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """A request on its way to the members of its route, until `until_s` on the monotonic clock."""

    outgoing: Outgoing
    request: ProviderRequest
    table: RouteTable
    until_s: float


@dataclass(eq=False)
class Engine:
    """Sends requests over the connections of one event loop, or of threads, as `racing` has it. `served` are the names
    of routes, all if empty.
    """

    routes: Routes
    pool: Connections
    served: Collection[str] = ()
    racing: Racing = field(default_factory=LoopRacing)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.pool.aclose()

    async def send(self, outgoing: Outgoing) -> Incoming:
        """Return a member's response; without a route, that of the own address. Raises errors of httpcore."""
        request = requests.read_request(outgoing.method, outgoing.url, outgoing.body)
        table = await self._table(request.route) if request and request.route else None
        if request is None or table is None:
            self.routes.count("passed_through")
            return await self.elsewhere(outgoing, request)
        obstacles = [self._obstacle(entry, request, outgoing) for entry in table.entries]
        entries = tuple(entry for entry, why in zip(table.entries, obstacles, strict=True) if not why)
        if not entries:
            self.routes.count("no_member")
            return _no_member(table, obstacles)
        self.routes.note_usable(table, entries)
        self.routes.count("requests")
        order = self.routes.order(table, entries)
        if not order:
            self.routes.count("no_capacity")
            return _refusal(self.routes.shortest_rest_s(entries))
        given_s = outgoing.extensions.get("timeout", {}).get("read")
        limit_s = min(self.routes.deadline_s, math.inf if given_s is None else given_s)
        return await self._try_in_order(Sending(outgoing, request, table, time.monotonic() + limit_s), order)

    async def elsewhere(
        self,
        outgoing: Outgoing,
        request: ProviderRequest | None,  # noqa: ARG002  # for a subclass
    ) -> Incoming:
        """Return the response to a request without a route."""
        return await self._exchange(outgoing)

    async def _table(self, route: str) -> RouteTable | None:
        return (
            await self.routes.first_table(route, self.racing.sleep) if not self.served or route in self.served else None
        )

    def _obstacle(self, entry: RouteEntry, request: ProviderRequest, outgoing: Outgoing) -> str:
        """Return why the member cannot take the request; empty if it can."""
        if entry.dialect != request.dialect:
            return f"speaks {entry.dialect}, not {request.dialect}"
        sends_key = not entry.credential_ref and requests.has_key(outgoing.url, outgoing.headers)
        sends_key = sends_key and not requests.is_same_origin(outgoing.url, entry.base_url)
        return self.routes.obstacle(entry, sends_callers_key=sends_key)

    async def _try_in_order(self, sending: Sending, order: tuple[RouteEntry, ...]) -> Incoming:
        attempts = await self._first_attempts(sending, order)
        tried = {attempt.entry.target for attempt in attempts}
        rest, last = [entry for entry in order if entry.target not in tried], attempts[-1]
        for entry in rest:
            if not last.is_failed or time.monotonic() >= sending.until_s:
                break
            await last.discard()
            self.routes.count("failovers")
            last = await self._attempt(sending, entry, is_last=entry is rest[-1])
        if last.response is None:
            assert last.error is not None
            raise last.error
        last.response.extensions[MEMBER] = {"route": sending.table.route, "target": last.entry.target}
        # A redirection would take the caller's key elsewhere.
        kept = [(name, value) for name, value in last.response.headers if name.lower() != b"location"]
        return replace(last.response, headers=kept)

    async def _first_attempts(self, sending: Sending, order: tuple[RouteEntry, ...]) -> list[Attempt]:
        """Try the first member and, after the hedge delay, the second one; the last attempt counts."""
        request = sending.request
        hedge = plan_hedge(
            sending.table,
            order,
            is_streamed=request.is_streamed,
            has_effects=request.has_effects,
            allow_effects=self.routes.hedge_effects,
        )
        if not isinstance(hedge, HedgePlan):
            self.routes.count(f"not_hedged_{hedge.value}")
            return [await self._attempt(sending, order[0], is_last=len(order) == 1)]
        self.routes.expect_hedge()

        def second() -> Start[Attempt] | None:
            if not self.routes.take_hedge():
                return None
            self.routes.count("hedges")
            is_last = len(order) == len((order[0], hedge.entry))
            return partial(self._attempt, sending, hedge.entry, is_last=is_last)

        first = partial(self._attempt, sending, order[0], is_last=False)
        attempts = await self.racing.race(first, second, hedge.delay_us / SECOND_US)
        if not attempts[-1].is_failed and attempts[-1].entry is hedge.entry:
            self.routes.count("hedges_won")
        return attempts

    async def _attempt(self, sending: Sending, entry: RouteEntry, *, is_last: bool) -> Attempt:
        """Ask a member; without content in its time it has failed."""
        left_s = max(0.0, sending.until_s - time.monotonic())
        limit_s = attempt_limit_s(self._first_token_s(sending, entry), left_s=left_s, is_last=is_last)
        try:
            async with self.racing.limit(limit_s):
                return await self._ask(sending, entry)
        except TimeoutError:
            self.routes.count("late")
            self.routes.failed(entry.target)
            error = httpcore.ReadTimeout(f"{entry.target} returned no content within {limit_s:.3g} s")
            return Attempt(entry, error=error, is_failed=True)

    def _first_token_s(self, sending: Sending, entry: RouteEntry) -> float | None:
        request, stated = sending.request, self.routes.first_token_s
        limit_s = stated.get(request.route) if isinstance(stated, Mapping) else stated
        if limit_s is not None:
            return limit_s
        size = len(sending.outgoing.body)
        return first_token_limit_s(
            entry, is_streamed=request.is_streamed, body_bytes=size, max_tokens=request.max_tokens
        )

    async def _ask(self, sending: Sending, entry: RouteEntry) -> Attempt:
        request = sending.request
        try:
            response = await self._exchange(_addressed(sending.outgoing, request, entry, self.routes.key(entry)))
        except _RETRIABLE as error:
            self.routes.failed(entry.target)
            return Attempt(entry, error=error, is_failed=True)
        if failure := failure_of(response.status, is_page=_is_page(response)):
            return self._refused(request, entry, response, failure)
        try:
            attempt = await _read_ahead(response, request, entry)
        except BaseException:
            await response.aclose()
            raise
        (self.routes.failed if attempt.is_failed else self.routes.succeeded)(entry.target)
        return attempt

    def _refused(self, request: ProviderRequest, entry: RouteEntry, response: Incoming, failure: Failure) -> Attempt:
        if failure is Failure.REFUSED:
            if not self.routes.failover_on_refusals:
                return Attempt(entry, response)
            self.routes.warn(refusal_text(request.route, entry, response.status))
        is_throttled = failure is Failure.THROTTLED
        rest_s = retry_after_s(response.headers) if is_throttled else None
        self.routes.failed(entry.target, is_throttled=is_throttled, retry_after_s=rest_s)
        return Attempt(entry, response, is_failed=True)

    async def _exchange(self, outgoing: Outgoing) -> Incoming:
        response = await self.pool.handle_async_request(
            httpcore.Request(
                outgoing.method,
                _url(outgoing.url),
                headers=outgoing.headers,
                content=outgoing.body,
                extensions=dict(outgoing.extensions),
            )
        )
        return _incoming(response)


def _incoming(response: httpcore.Response) -> Incoming:
    stream = response.stream
    assert isinstance(stream, AsyncIterable)
    return Incoming(
        status=response.status,
        headers=response.headers,
        rest=aiter(stream),
        aclose=response.aclose,
        extensions=response.extensions,
    )


def _addressed(outgoing: Outgoing, request: ProviderRequest, entry: RouteEntry, key: str | None) -> Outgoing:
    body = requests.body(request, entry)
    return Outgoing(
        method=outgoing.method,
        url=requests.address(request, entry, key=key),
        headers=requests.headers(outgoing.headers, request, entry, key=key, size=len(body)),
        body=body,
        # The caller's own address decided these.
        extensions={name: value for name, value in outgoing.extensions.items() if name != "sni_hostname"},
    )


async def _read_ahead(response: Incoming, request: ProviderRequest, entry: RouteEntry) -> Attempt:
    """Read a stream up to its first content, and any other answer to its end; a failure before is the attempt's."""
    # Events are read only as they are: a compressed stream, which no request asks for, is for the caller to read.
    is_plain = _header(response.headers, b"content-encoding") in (b"", b"identity")
    is_stream = is_plain and _header(response.headers, b"content-type").startswith(b"text/event-stream")
    if response.status >= _FIRST_REFUSAL:  # the caller's own error
        return Attempt(entry, response)
    # Another answer may be the body of an error while it is small.
    judged = UNFRAMED_BYTES if is_plain else -1
    most = _MOST_HELD_BYTES if is_stream or not request.is_streamed else UNFRAMED_BYTES
    finder, held, size = FirstContent(request.dialect), list[bytes](), 0
    progress, is_ended = Progress.WAITING, True
    try:
        async for data in response.rest:
            held.append(data)
            size += len(data)
            if is_stream or (request.is_streamed and size <= judged):
                progress = finder.receive(data)
            if progress is not Progress.WAITING or size > most:
                is_ended = False
                break
    except _RETRIABLE as error:
        await response.aclose()
        return Attempt(entry, error=error, is_failed=True)
    if is_ended and (is_stream or size <= judged):
        progress = finder.end(b"" if is_stream or request.is_streamed else b"".join(held))
    is_failed = progress is Progress.FAILED or (is_stream and progress is Progress.WAITING and is_ended)
    return Attempt(entry, replace(response, held=tuple(held)), is_failed=is_failed)


def _is_page(response: Incoming) -> bool:
    return _header(response.headers, b"content-type").startswith(b"text/html")


def retry_after_s(headers: Headers) -> float | None:
    """The seconds of a `retry-after-ms` or `retry-after` header; `None` without a valid one."""
    found = {name.lower(): value.decode("latin-1") for name, value in headers}
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        try:
            seconds = float(found[name]) * unit_s
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        until, now = (parsedate_to_datetime(found[name]) for name in (b"retry-after", b"date"))
        return max(0.0, (until - now).total_seconds())
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def _header(headers: Headers, wanted: bytes) -> bytes:
    """The value in lower case, empty without one."""
    return next((value.strip().lower() for name, value in headers if name.lower() == wanted), b"")


def _refusal(rest_s: float) -> Incoming:
    """A 429 in place of a request that no member may take; callers wait and try again."""
    wait = (b"retry-after", str(max(1, math.ceil(rest_s))).encode())
    return own_response(429, refusal("no_capacity", "no member of the route has capacity"), wait)


def _no_member(table: RouteTable, obstacles: Iterable[str]) -> Incoming:
    """A 400 in place of a request that no member can take: its model is no model of the caller's own provider."""
    whys = (f"{entry.target} {why}" for entry, why in zip(table.entries, obstacles, strict=True))
    message = f"no member of the route {table.route} can take this request: {'; '.join(whys)}"
    return own_response(400, refusal("no_member", message))


def refusal(code: str, message: str) -> dict[str, Any]:
    """An error in a form that the SDKs of OpenAI and Anthropic both read."""
    return {"type": "error", "error": {"message": message, "type": code, "code": code}}


def own_response(status: int, document: object, *headers: tuple[bytes, bytes]) -> Incoming:
    """A response with JSON that is not a provider's."""
    body = json.dumps(document).encode()
    usual = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return _incoming(httpcore.Response(status, headers=[*usual, *headers], content=body))
