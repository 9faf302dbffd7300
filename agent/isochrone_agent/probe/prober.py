"""Probes: sends a request, reads its stream with a timestamp for every read, and returns a Sample.

The loop is deliberately simple: read, take the timestamp of the read, decode, interpret, observe. It never retries,
except on a fresh connection if the reused one had been closed while it was idle, and never raises for anything that the
network or the provider does; a failed probe is a Sample too.
"""

import asyncio
import logging
import re
import ssl
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

import httpcore

from isochrone_agent.clock import ClockPair, now_at, read_clocks
from isochrone_agent.probe.destinations import REFUSED, SPEAKS_HTTP2, SPEAKS_TLS, Destinations, Url, parse_url
from isochrone_agent.probe.measurement import ERROR_CHARS, Measurement
from isochrone_agent.probe.recording import Recorder
from isochrone_agent.probe.response_headers import read_headers
from isochrone_agent.probe.socket_observer import SocketObserver
from isochrone_agent.probe.transport import (
    NotAttempted,
    ProbeConnection,
    Start,
    TlsFailed,
    target_tls_context,
)
from isochrone_agent.settings import DialOptions
from isochrone_common.dialects import DIALECTS, Request
from isochrone_common.dialects.base import make_nonce
from isochrone_common.dialects.failures import error_sentence, omission_hint, stated_wait_us, unframed_failure
from isochrone_common.dialects.providers import quirks_of
from isochrone_common.dialects.reader import ResponseReader
from isochrone_common.dialects.signals import Failed, Sent, Signal
from isochrone_common.sse import FIELDS, SseOverflow
from isochrone_wire.model import SECOND_US, ConnectionUse, Outcome, Quality, Sample, Target, Timeouts, TlsFiles
from isochrone_wire.text import redact, secret_problem, shortened

log = logging.getLogger(__name__)

Reads = AsyncGenerator[bytes, None]

MAX_RESPONSE_BYTES = 64 << 20
MAX_ERROR_BYTES = 8 << 10
MAX_TRAILER_US = 5 * SECOND_US
# The extra time to read the message of a refusal, whose status is already known.
MAX_REFUSAL_READ_US = 2 * SECOND_US
LAG_NS = 5_000_000
_STANDARD_HEADERS = {
    "content-type": "application/json",
    "accept": "text/event-stream",
    # Compression would batch events, and so falsify their timestamps.
    "accept-encoding": "identity",
    "user-agent": "isochrone-agent",
}
# Other values of Content-Encoding, such as `none` or `utf-8`, are those of servers that do not compress.
_COMPRESSIONS = {"gzip", "x-gzip", "deflate", "br", "zstd", "compress"}
# The types of an alert and of a handshake record, each followed by the major version of TLS.
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
# The bodies of nginx, Apache and Go for a plain request to a port with TLS.
_TLS_EXPECTED = re.compile(rb"plain HTTP (request )?(was sent )?to|HTTP request to an HTTPS server")
# A frame of the type SETTINGS on stream 0, which begins a connection of HTTP/2.
_HTTP2_SETTINGS = re.compile(rb"\0.{2}\x04.\0{4}", re.DOTALL)
_LIBRARY_TERMS = re.compile(r": bytearray\(.*|.*(event|state|status_code).*", re.DOTALL)
# The fields of events, and comments: with them a body is a stream, whatever its media type.
_EVENT_STARTS = tuple(field + b":" for field in (*FIELDS, b""))
_NO_CONTENT = (204, 205)
_GZIP_OR_ZLIB = 47
# Bad Request and Unprocessable Content: a field may be at fault.
_REFUSED_FIELDS = (400, 422)
_NOT_A_STREAM = ("text/html", "application/json")
_USERINFO = re.compile("//[^/?#]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTimes:
    """When the request was written and its response ended: microseconds since the epoch, by the monotonic clock."""

    sent_at: int | None
    ended_at: int


# Warm connections are kept by the id of their target, and by how they connect.
_ConnectionKey = tuple[int, TlsFiles | None, bool]
_connection_key: Callable[[Target], _ConnectionKey] = attrgetter("id", "tls", "happy_eyeballs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """Probes targets from one vantage, anywhere without `destinations`; `error_chars` limits texts of providers.

    The paths of a target's TLS begin in `tls_folder`; `ca_file` is trusted unless it names its own.
    """

    vantage: str
    tls: ssl.SSLContext
    dial_options: DialOptions = field(default_factory=DialOptions)
    destinations: Destinations | None = None
    error_chars: int = ERROR_CHARS
    tls_folder: Path = Path()
    ca_file: Path | None = None
    on_probe: Callable[[Target, Sample, ProbeTimes], None] | None = None
    recorder: Recorder | None = None

    idle: dict[_ConnectionKey, list[ProbeConnection]] = field(default_factory=dict, repr=False)
    in_flight: set["StreamingRequest"] = field(default_factory=set, repr=False)
    # What `retain` was last called with; empty before.
    _retained: list[Collection[_ConnectionKey]] = field(default_factory=list, init=False, repr=False)

    async def burst(self, target: Target, *, round_at: int, key: str | None = None) -> list[Sample]:
        """Run the probes of all streams at once, and return their samples. Raises only if each failed inside.

        All connect first, and then write their requests at one instant.
        """
        streams = range(target.workload.concurrency)
        start = Start(len(streams)) if len(streams) > 1 else None
        started_at = now_at()
        ended = await asyncio.gather(
            *(self.probe(target, round_at=round_at, key=key, stream=n, start=start) for n in streams),
            return_exceptions=True,
        )
        failures = [one for one in ended if isinstance(one, BaseException)]
        if len(failures) == len(ended):
            raise failures[0]
        for failure in failures:
            log.error("a stream of %s failed inside the agent", target.name, exc_info=failure)
        return [
            _failed_inside(target, round_at, started_at, one) if isinstance(one, BaseException) else one
            for one in ended
        ]

    async def probe(
        self, target: Target, *, round_at: int, key: str | None = None, stream: int = 0, start: Start | None = None
    ) -> Sample:
        """Probe once for the round at `round_at`; `stream` counts from 0. Failures are recorded in the sample.

        Raises `SettingsError` if files of the target's TLS cannot be loaded.
        """
        dialect = DIALECTS[target.dialect]
        nonce = make_nonce(target_id=target.id, round_at=round_at, vantage=self.vantage, stream=stream)
        request = dialect.request(target, nonce=nonce, key=key, quirks=quirks_of(target))
        measurement = Measurement()
        async with self._connection(target) as connection:
            dispatched = read_clocks()
            with connection.use(start) as observer:
                reader = ResponseReader(dialect)
                active = StreamingRequest(reader, measurement, connection, target.workload.timeouts, self.recorder)
                self.in_flight.add(active)
                try:
                    await active.run(request, self.destinations)
                finally:
                    self.in_flight.discard(active)
                ended_ns = time.monotonic_ns()
        sample = measurement.sample(
            target_id=target.id,
            round_at=round_at,
            dispatched_at=dispatched.wall_at,
            connection=observer.connection,
            price=target.price,
            quality=_quality(observer, dispatched, read_clocks()),
        )
        sample = _without_secrets(sample, key, chars=self.error_chars)
        if self.on_probe is not None:
            sent_ns, ahead_ns = measurement.sent_ns, dispatched.wall_ns - dispatched.monotonic_ns
            sent_at = None if sent_ns is None else (sent_ns + ahead_ns) // 1000
            self.on_probe(target, sample, ProbeTimes(sent_at=sent_at, ended_at=(ended_ns + ahead_ns) // 1000))
        return sample

    def abort(self) -> None:
        """End every probe in flight now; its sample records the time waited."""
        for active in self.in_flight:
            active.abort()

    async def retain(self, targets: Iterable[Target]) -> None:
        """Keep warm connections of these targets only, as they connect now; one in use is closed after its probe."""
        retained = frozenset(map(_connection_key, targets))
        self._retained[:] = [retained]
        for key in self.idle.keys() - retained:
            for connection in self.idle.pop(key):
                await connection.pool.aclose()

    async def aclose(self) -> None:
        """Close all warm connections."""
        await self.retain(())

    @asynccontextmanager
    async def _connection(self, target: Target) -> AsyncIterator[ProbeConnection]:
        """Lend a connection to one probe: a new one that is closed afterwards, or for a warm target a reused one."""
        if target.workload.connection is ConnectionUse.COLD:
            connection = await self._new_connection(target)
            async with connection.pool:
                yield connection
            return
        key = _connection_key(target)
        idle = self.idle.get(key)
        connection = idle.pop() if idle else await self._new_connection(target)
        try:
            yield connection
        finally:
            if all(key in retained for retained in self._retained):
                self.idle.setdefault(key, []).append(connection)
            else:
                await connection.pool.aclose()

    async def _new_connection(self, target: Target) -> ProbeConnection:
        tls = self.tls
        if target.tls is not None:
            tls = await asyncio.to_thread(target_tls_context, target.tls, self.tls_folder, self.ca_file)
        return ProbeConnection(tls, self.dial_options, self.destinations, happy_eyeballs=target.happy_eyeballs)


@dataclass(eq=False)
class StreamingRequest:
    """One request and its response stream: passes received data to the measurement, and enforces the time limits."""

    _reader: ResponseReader
    _measurement: Measurement
    _connection: ProbeConnection
    _timeouts: Timeouts
    _recorder: Recorder | None = None
    _received_bytes: int = 0
    _deadline: asyncio.Timeout | None = None
    _aborted: bool = False

    def __post_init__(self) -> None:
        self._observer = self._connection.observer
        self._begun_ns = time.monotonic_ns()
        self._limit_us = self._timeouts.total_us
        self._end_ns = self._begun_ns + self._limit_us * 1000

    def abort(self) -> None:
        """End the request now: its outcome is that of a round without a request."""
        self._aborted, self._end_ns = True, time.monotonic_ns()
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(self._end_ns / 1e9)

    async def run(self, request: Request, destinations: Destinations | None = None) -> None:
        """Send the request, if `destinations` allow it, and read the stream; record any error as a failure."""
        try:
            url = parse_url(request.url)
        except ValueError as error:
            self._fail(Failed(outcome=Outcome.CONNECT_FAILED, error=str(error)))
            return
        if destinations and (refusal := destinations.refusal(url)):
            self._fail(Failed(outcome=Outcome.SKIPPED_NOT_READY, error=f"{REFUSED}{refusal}"))
            return
        try:
            async with asyncio.timeout_at(self._end_ns / 1e9) as deadline:
                self._deadline = deadline
                self._observer.on_sent = lambda: self._set_limit(deadline, self._timeouts.first_token_us)
                await self._send_and_reconnect(request, url, deadline)
        except TimeoutError:
            self._fail_unless_finished(self._timed_out())
        except (httpcore.ConnectTimeout, httpcore.WriteTimeout) as error:
            # The request was never sent, so no duration of it had begun.
            self._fail(Failed(outcome=Outcome.CONNECT_FAILED, error=str(error), timeout_us=self._timeouts.connect_us))
        except NotAttempted as error:
            self._fail(Failed(outcome=Outcome.SKIPPED_NOT_READY, error=str(error)))
        except (httpcore.ConnectError, httpcore.UnsupportedProtocol, httpcore.WriteError) as error:
            self._fail(Failed(outcome=Outcome.CONNECT_FAILED, error=str(error)))
        except httpcore.LocalProtocolError:  # its text quotes the header, which may contain the key
            error_text = "not sent: a header contains a character that HTTP does not allow"
            self._fail(Failed(outcome=Outcome.CONNECT_FAILED, error=error_text))
        except (httpcore.RemoteProtocolError, httpcore.ReadError) as error:
            self._fail_unless_finished(self._connection_lost(error))
        except (SseOverflow, ValueError) as error:
            self._fail(Failed(outcome=Outcome.GARBLED, error=str(error)))

    async def _send_and_reconnect(self, request: Request, url: Url, deadline: asyncio.Timeout) -> None:
        """Send and read, and once more on a fresh connection if a reused one had been closed while it was idle."""
        try:
            await self._send_and_read(request, url, deadline)
        except (httpcore.RemoteProtocolError, httpcore.ReadError):
            if not self._observer.closed_while_idle:
                raise
            self._observer.sent_ns, self._observer.ended, self._observer.reconnected = None, False, True
            self._set_limit(deadline, self._timeouts.total_us)
            await self._send_and_read(request, url, deadline)

    async def _send_and_read(self, request: Request, url: Url, deadline: asyncio.Timeout) -> None:
        seconds = self._timeouts.connect_us / SECOND_US
        sent = {"host": url.authority} | _STANDARD_HEADERS | dict(request.headers)
        async with self._connection.pool.stream(
            "POST",
            httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
            headers=[(name.encode(), value.encode()) for name, value in sent.items()],
            content=request.body,
            extensions={"timeout": {"connect": seconds, "write": seconds}},
        ) as response:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            self._observe_sent()
            self._measurement.receive(self._observer.first_byte_ns or self._observer.received.at_ns)
            opened = read_headers(response.status, headers, now_at=now_at())
            self._measurement.observe(opened, self._observer.received.at_ns)
            if self._recorder and self._measurement.sent_ns is not None:
                self._recorder.open(response.status, headers, self._measurement.sent_ns)
            reads, refusal = self._reads(response), _refusal(response.status, headers)
            media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            if refusal is None and media_type in _NOT_A_STREAM:
                reads, refusal = await self._judge_by_content(reads, media_type)
            if refusal:
                omissible = request.omissible if response.status in _REFUSED_FIELDS else ()
                await self._read_refusal(refusal, reads, deadline, omissible)
            else:
                await self._read_events(reads, deadline)

    async def _judge_by_content(self, reads: Reads, media_type: str) -> tuple[Reads, Failed | None]:
        """Return the reads, and a refusal unless they begin as events do: some servers name another media type."""
        refusal = Failed(outcome=Outcome.GARBLED, error=f"the response is {media_type}, not an event stream")
        first = b""
        try:
            first = await anext(reads, b"")
        finally:
            if not first:
                self._fail(refusal)
        return _prepended(first, reads), None if first.lstrip().startswith(_EVENT_STARTS) else refusal

    async def _read_refusal(
        self, refusal: Failed, reads: Reads, deadline: asyncio.Timeout, omissible: tuple[str, ...]
    ) -> None:
        """Read the body of a refusal; record the refusal even if that fails."""
        body = bytearray()
        self._set_limit(deadline, MAX_REFUSAL_READ_US)
        try:
            async for data in reads:
                body += data
                if len(body) >= MAX_ERROR_BYTES:
                    break
        finally:
            stated = bytes(body[:MAX_ERROR_BYTES])
            self._fail(self._with_stated_error(refusal, stated, omission_hint(stated, omissible)))

    async def _read_events(self, reads: Reads, deadline: asyncio.Timeout) -> None:
        self._connection.batch_reads = True
        async for data in reads:
            at_ns = self._observer.received.at_ns
            self._received_bytes += len(data)
            if self._received_bytes > MAX_RESPONSE_BYTES:
                raise ValueError(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
            before = len(self._measurement.chunk_ns)
            self._observe(self._reader.receive(data), at_ns)
            has_grown = len(self._measurement.chunk_ns) > before
            if has_grown and not self._measurement.is_final:
                self._set_limit(deadline, self._timeouts.gap_us)
            elif self._measurement.ended:
                self._set_limit(deadline, min(self._timeouts.gap_us, MAX_TRAILER_US))
        self._observe(self._reader.end(), self._observer.received.at_ns)

    async def _reads(self, response: httpcore.Response) -> Reads:
        async for data in response.aiter_stream():
            if self._recorder:
                self._recorder.read(data, self._observer.received.at_ns)
            yield data

    def _observe(self, signals: list[Signal], at_ns: int) -> None:
        for signal in signals:
            self._measurement.observe(signal, at_ns)

    def _observe_sent(self) -> None:
        if self._measurement.sent_ns is None and self._observer.sent_ns is not None:
            self._measurement.observe(Sent(), self._observer.sent_ns)

    def _set_limit(self, deadline: asyncio.Timeout, limit_us: int) -> None:
        """Allow `limit_us` from now until the next progress, within the total limit."""
        deadline_ns = time.monotonic_ns() + limit_us * 1000
        self._limit_us = limit_us if deadline_ns < self._end_ns else self._timeouts.total_us
        deadline.reschedule(min(deadline_ns, self._end_ns) / 1e9)

    def _fail(self, failure: Failed) -> None:
        self._observe_sent()
        self._measurement.observe(failure, self._observer.received.at_ns)

    def _fail_unless_finished(self, failure: Failed) -> None:
        if not self._aborted:
            self._observe(self._reader.end(), self._observer.received.at_ns)
        # After a complete answer, a connection that stays open or drops is not the model's failure.
        if not self._measurement.is_complete:
            self._fail(failure)

    def _timed_out(self) -> Failed:
        if self._aborted:
            # No failure of the provider, and no duration either: how long the answer would have taken is not known.
            waited_us = (self._end_ns - self._begun_ns) // 1000
            error = "the agent stopped before the answer was complete"
            return Failed(outcome=Outcome.SKIPPED_NOT_READY, error=error, timeout_us=waited_us)
        seconds = f"{self._limit_us / SECOND_US:g} s"
        if self._limit_us == self._timeouts.total_us:
            error, outcome = f"not finished after {seconds}", Outcome.TIMED_OUT
        elif self._measurement.chunk_ns:
            error, outcome = f"no token for {seconds} in the middle of the answer", Outcome.STALLED
        else:
            error, outcome = f"no token within {seconds} of the request", Outcome.TIMED_OUT
        return Failed(outcome=outcome, error=error, timeout_us=self._limit_us)

    def _connection_lost(self, error: Exception) -> Failed:
        if protocol := _other_protocol(self._observer.first_bytes):
            return Failed(outcome=Outcome.GARBLED, error=protocol)
        if isinstance(error, TlsFailed) and self._observer.first_byte_ns is None:
            return Failed(outcome=Outcome.CONNECT_FAILED, error=str(error))
        reset = isinstance(error, httpcore.ReadError)
        if not (reset or self._observer.ended):
            return Failed(outcome=Outcome.GARBLED, error=_invalid_response(self._observer.first_bytes, error))
        where = "in the middle of the answer" if self._measurement.opened else "before it answered"
        why = f" ({error})" if isinstance(error, TlsFailed) else ""
        return Failed(outcome=Outcome.TRUNCATED, error=f"the provider closed the connection {where}{why}")

    def _with_stated_error(self, refusal: Failed, body: bytes, hint: str) -> Failed:
        """Add the message of the body to `refusal`, so long that a hint fits behind it; an error object under a 2xx
        status becomes an in-band failure.
        """
        if refusal.outcome is Outcome.GARBLED and (stated := unframed_failure(body)):
            return stated
        sentence = SPEAKS_TLS if _TLS_EXPECTED.search(body) else error_sentence(_decompressed(body))
        error = f"{refusal.error}: {sentence}" if sentence else refusal.error
        if hint:
            error = f"{shortened(error, ERROR_CHARS - len(hint) - 3)} ({hint})"
        return replace(refusal, error=error, retry_after_us=stated_wait_us(body))


def _other_protocol(received: bytes) -> str:
    """Return which protocol other than HTTP/1 the first bytes of an answer are of; empty for HTTP/1, or for none."""
    if received.startswith(_TLS_RECORDS):
        return SPEAKS_TLS
    if _HTTP2_SETTINGS.match(received):
        return SPEAKS_HTTP2
    if not received or received.upper().startswith((b"HTTP/", b"ICY ")) or b"HTTP/".startswith(received.upper()):
        return ""
    return _invalid_response(received)


def _decompressed(body: bytes) -> bytes:
    """Return the beginning of a body in plain: some servers compress their refusals although not asked to."""
    with suppress(zlib.error):
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, MAX_ERROR_BYTES)
    return body


def _invalid_response(received: bytes, error: Exception | None = None) -> str:
    """Return what is not valid in a response, in no terms of the HTTP library, or how it begins."""
    text = _LIBRARY_TERMS.sub("", str(error or ""))
    line = printable(received.partition(b"\n")[0].strip().decode("latin-1"))
    return f"not a valid HTTP response: {text or f'it begins with {line!r}'}"


def _failed_inside(target: Target, round_at: int, started_at: int, failure: BaseException) -> Sample:
    """Return the sample of a stream that failed inside the agent. A request may have been sent, so it has a time."""
    return Sample(
        target_id=target.id,
        round_at=round_at,
        outcome=Outcome.SKIPPED_NOT_READY,
        dispatched_at=started_at,
        timeout_us=max(now_at() - started_at, 1),
        error=f"the agent failed: {type(failure).__name__}",
    )


def _refusal(status: int, headers: Mapping[str, str]) -> Failed | None:
    """Return why a response with this head is not a stream, or `None` if it may be one."""
    coding = headers.get("content-encoding", "").strip().lower()
    is_compressed = not _COMPRESSIONS.isdisjoint(re.split(r"[\s,]+", coding))
    unread = f", its body is compressed ({coding})" if is_compressed else ""
    if status == 429:  # noqa: PLR2004  # Too Many Requests
        return Failed(outcome=Outcome.THROTTLED, error=f"HTTP {status}{unread}")
    if not 200 <= status < 300 or status in _NO_CONTENT:  # noqa: PLR2004  # the class of success
        place = _USERINFO.sub("//", headers.get("location", ""))
        place = place.partition("?")[0] if secret_problem(place) else place
        moved = f", moved to {place}" if place else ""
        return Failed(outcome=Outcome.HTTP_ERROR, error=f"HTTP {status}{moved}{unread}")
    if is_compressed:
        return Failed(outcome=Outcome.GARBLED, error=f"the response is compressed ({coding}), although not asked for")
    return None


async def _prepended(first: bytes, others: Reads) -> Reads:
    yield first
    async for data in others:
        yield data


def _quality(observer: SocketObserver, started: ClockPair, ended: ClockPair) -> Quality:
    raised = {
        Quality.LAGGED: observer.loop_lag_ns > LAG_NS,
        Quality.USER_STAMPS: observer.kernel_reads < observer.reads,
        Quality.CLOCK_STEPPED: ended.stepped_since(started),
        Quality.REUSED: observer.reused,
        Quality.RECONNECTED: observer.reconnected,
    }
    return Quality(sum(flag for flag, up in raised.items() if up))


def _without_secrets(sample: Sample, key: str | None, *, chars: int) -> Sample:
    end = chars if sample.http_status else None

    def clean(text: str | None) -> str | None:
        return text and printable(redact(text, key or ""))[:end]

    return replace(sample, error=clean(sample.error), edge=clean(sample.edge), request_id=clean(sample.request_id))


def printable(text: str) -> str:
    """Replace characters that cannot be printed or stored (control characters, lone surrogates) by question marks."""
    return "".join(char if char.isprintable() else "?" for char in text)
