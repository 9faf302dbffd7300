"""Timed sockets: DNS, TCP, TLS and every read with a timestamp, as a network backend of httpcore.

The laws:

1. One address: the name is resolved, and the first address of the requested family is connected to and recorded. There
   is no second attempt, because a retry would be another sample. Only with `happy_eyeballs` the addresses compete.
2. DNS, TCP and TLS are timed separately, on the connection that the request then uses.
3. A read gets its timestamp in the loop's readiness callback, before any task is woken: the kernel's receive timestamp
   if there is one. The timestamp belongs to the bytes; a TLS record has that of the read that completed it.
4. Memory is bounded: with `_MAX_WAITING_BYTES` unread, the socket is not read until they are consumed.
5. During a stream, reads are collected, each with its timestamp, and delivered together every `READ_BATCH_SECONDS`.
   Decoding can wait, and the task of a probe is woken 30 times instead of 150.
6. Names are looked up by the system's resolver in threads, created on demand: the default pool of the event loop has
   six on two cores, so probes would wait for each other. The time of a lookup is measured in its thread, so it includes
   neither loop lag nor a wait for a thread.
7. Certificates are always verified, by the system's authorities and an optional own one.

Each probe has its own `SocketObserver`, which records these times; a `ProbeConnection` that is reused gets a new one
for every probe. Nothing here may be shared between event loops.
"""

import asyncio
import os
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpcore

from isochrone_agent.errors import SettingsError
from isochrone_agent.probe.destinations import REFUSED, SPEAKS_HTTP, Destinations, is_address
from isochrone_agent.probe.socket_observer import FIRST_BYTES, NO_TCP_INFO, SocketObserver, TcpInfo, read_tcp_info
from isochrone_agent.settings import DialOptions
from isochrone_common.receive_stamps import ANCILLARY_BYTES, NEVER, Stamp, enable_receive_stamps, read_stamp
from isochrone_wire.model import TlsFiles
from isochrone_wire.text import shortened

# A status line, and the page that a server sends to a client that it takes for one of HTTP/0.9.
_PLAIN_ANSWERS = (b"HTTP/", b"<")
_IF_HTTP = "if it speaks plain HTTP, try http://"
# OpenSSL's names of the alerts that a server sends, or its texts, which Python's errors have where it has no name.
_ALERT = re.compile(r"(?:\[SSL\] )?(?:SSLV3|TLSV1|TLSV13)[_ ](?:ALERT[_ ])?([\w ]+?)(?: \(_ssl.*)?", re.IGNORECASE)
# Hints for the reasons of TLS errors.
_TLS_HINTS = (
    (re.compile("self.signed|local issuer"), "trust its authority by --ca-file, or tls: {ca} in the plan"),
    (
        re.compile("certificate required|bad certificate|unknown ca"),
        "present a certificate by --client-certificate, or tls: {certificate} in the plan",
    ),
)
_MAX_CONTEXTS = 128


def tls_context(
    ca_file: Path | None = None, *, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Verify by the system's authorities and those of `ca_file`, and present `certificate`; slow, so once per process.

    Raises `SettingsError`.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        with _loading(ca_file, "the authorities need a file of PEM certificates"):
            context.load_verify_locations(cafile=ca_file)
    if certificate is not None:
        with _loading(certificate, "a client certificate and its key are PEM, in one file or two, without a password"):
            context.load_cert_chain(certificate, key, password="")  # or OpenSSL asks on the terminal
    return context


@contextmanager
def _loading(file: Path, hint: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        # Where OpenSSL has no name for the fault, Python states a line of its own source.
        problem = (error.reason or "incomplete, damaged or encrypted").lower().replace("_", " ")
        raise SettingsError(f"cannot load {shortened(str(file))}: {problem}", hint=hint) from error
    except OSError as error:
        raise SettingsError(f"cannot load {shortened(str(file))}: {error.strerror or error}", hint=hint) from error


def target_tls_context(files: TlsFiles, folder: Path, ca_file: Path | None) -> ssl.SSLContext:
    """Return the context of a target with these files, loaded again once one has changed. Raises `SettingsError`."""
    certificate, key, own_ca = (folder / path if path else None for path in (files.certificate, files.key, files.ca))
    paths = (certificate, key, own_ca or ca_file)
    changed = []
    for path in (path for path in paths if path is not None):
        with _loading(path, "the plan's paths are on the agent's machine"):
            changed.append(path.stat().st_mtime_ns)
    return _load_context(paths, tuple(changed))


@lru_cache(_MAX_CONTEXTS)
def _load_context(paths: tuple[Path | None, ...], _changed: tuple[int, ...]) -> ssl.SSLContext:
    certificate, key, ca_file = paths
    return tls_context(ca_file, certificate=certificate, key=key)


def handshake_problem(error: Exception, received: bytes) -> str:
    """Return why a handshake failed; `received` are the first bytes that the server sent, if any."""
    if received.startswith(_PLAIN_ANSWERS):
        return SPEAKS_HTTP
    if received and getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
        return f"this port does not speak TLS; {_IF_HTTP}"
    if isinstance(error, ssl.SSLEOFError):
        return f"the server closed the connection during the handshake; {_IF_HTTP}"
    return tls_reason(error) if isinstance(error, ssl.SSLError) else str(error)


def tls_reason(error: ssl.SSLError) -> str:
    """Return the reason of a TLS error: the fault of the certificate, or the alert of the server in words."""
    reason = getattr(error, "verify_message", "") or error.reason or str(error)
    alert = _ALERT.fullmatch(reason)
    reason = alert[1].lower().replace("_", " ") if alert else reason
    hint = next((hint for pattern, hint in _TLS_HINTS if pattern.search(reason)), "")
    return f"{reason}; {hint}" if hint else reason


MAX_THREADS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The addresses of a host, each with its family, as sockets use them; `dns_us` is `None` without a lookup."""

    addresses: tuple[tuple[int, Any], ...]
    dns_us: int | None

    def interleaved(self) -> list[tuple[int, Any]]:
        """Return the addresses of both families in turn, beginning with that of the first (RFC 8305, section 4)."""
        first = self.addresses[0][0]
        of_first = [each for each in self.addresses if each[0] == first]
        others = [each for each in self.addresses if each[0] != first]
        return [each for pair in zip_longest(of_first, others) for each in pair if each is not None]

    def failure(self, host: str, reason: str) -> str:
        """Return why the first address could not be connected to, and what to try if there are others."""
        (family, address), families = self.addresses[0], {family for family, _ in self.addresses}
        if len(families) == 1:
            return reason if address[0] == host else f"{reason} ({address[0]})"
        other = 4 if family == socket.AF_INET6 else 6
        return f"{reason} ({address[0]}); {host} also has IPv{other} addresses, try --family {other}"


async def resolve(host: str, port: int, *, family: int) -> Resolved:
    """Return the addresses of the given family. Raises `OSError` with the resolver's message, and `NotAttempted`."""
    if is_address(host):
        return _look_up(host, port, family, socket.AI_NUMERICHOST)
    try:
        looked_up = asyncio.get_running_loop().run_in_executor(_pool(), _look_up, host, port, family, 0)
    except RuntimeError as error:
        raise NotAttempted(f"no thread for the name lookup: {error}") from error
    return await looked_up


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="resolver")


def _look_up(host: str, port: int, family: int, flags: int) -> Resolved:
    started_ns = time.monotonic_ns()
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        hint = "; try --family any" if family else ""
        raise socket.gaierror(error.errno, f"{host}: {error.strerror}{hint}") from error
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is not a valid host name") from error
    took_us = (time.monotonic_ns() - started_ns) // 1000
    return Resolved(addresses=tuple((each[0], each[4]) for each in found), dns_us=None if flags else took_us)


READ_BATCH_SECONDS = 0.05
# The recommended value of RFC 8305, section 8.
ATTEMPT_DELAY_SECONDS = 0.25
# A SYN that is lost once is repeated after a second.
MAX_START_SECONDS = 2.0
_READ_BYTES = 65_536
_MAX_WAITING_BYTES = 1 << 20
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


class NotAttempted(httpcore.ConnectError):
    """The agent itself did not connect: its policy refuses the address, or it has no thread to look up the name."""


class TlsFailed(httpcore.ReadError):
    """TLS failed after the handshake, as with an alert of the server; under TLS 1.3 it judges certificates then."""


_Written = tuple[int, int]


class Start:
    """The instant at which the streams of a burst write their requests: once each is connected or has failed."""

    def __init__(self, streams: int) -> None:
        self._missing = streams
        self._writes: dict[asyncio.Future[_Written], Callable[[], _Written]] = {}

    async def together(self, write: Callable[[], _Written]) -> _Written:
        """Call `write` in a row with those of the others, after at most `MAX_START_SECONDS`; return its result."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[_Written] = loop.create_future()
        self._writes[written] = write
        limit = loop.call_later(MAX_START_SECONDS, self._begin)
        self.ready()
        try:
            return await written
        finally:
            limit.cancel()
            self._writes.pop(written, None)

    def ready(self) -> None:
        """Record that one more stream is connected or has ended."""
        self._missing -= 1
        if self._missing <= 0:
            self._begin()

    def _begin(self) -> None:
        self._missing = 0
        writes, self._writes = self._writes, {}
        for written, write in writes.items():
            if not written.done():
                written.set_result(write())


class ProbeConnection:
    """A pool of at most one connection to one target, and the `observer` of the probe that is using it."""

    def __init__(
        self,
        tls: ssl.SSLContext,
        dial_options: DialOptions,
        destinations: Destinations | None = None,
        *,
        happy_eyeballs: bool = False,
    ) -> None:
        self.happy_eyeballs = happy_eyeballs
        self.observer = SocketObserver()
        self.batch_reads = False
        self.start: Start | None = None
        self.stream: StampingStream | None = None
        backend = StampingBackend(self, dial_options, destinations)
        self.pool = httpcore.AsyncConnectionPool(ssl_context=tls, network_backend=backend, max_connections=1)

    @contextmanager
    def use(self, start: Start | None = None) -> Iterator[SocketObserver]:
        """Lend this connection to one probe, of the burst of `start`; on exit its observer has the kernel's figures."""
        self.start = start
        self.observer = SocketObserver()
        self.batch_reads = False
        kept, before = self.stream, self.stream.tcp_info() if self.stream else NO_TCP_INFO
        try:
            yield self.observer
        finally:
            used = self.stream if self.observer.sent_ns is not None else None
            found = used.tcp_info() if used else NO_TCP_INFO
            if self.start is not None:  # ended before it could send
                self.start.ready()
                self.start = None
            self.observer.end(found.since(before) if used is kept else found)


@dataclass
class StampingBackend(httpcore.AsyncNetworkBackend):
    """Opens connections for httpcore, to allowed addresses, and records their phases in the observer."""

    _connection: ProbeConnection
    _dial_options: DialOptions
    _destinations: Destinations | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve the host and connect to its first address. Raises `httpcore.ConnectError` (`NotAttempted`, if that
        says nothing about the provider) or `ConnectTimeout`.

        `timeout` covers the whole connection; the TLS handshake gets the rest of it.
        """
        del local_address, socket_options  # not used by this agent
        named, (host, port) = (host, port), self._dial_options.connect_to.get((host, port), (host, port))
        found = None
        try:
            async with asyncio.timeout(timeout) as limit:
                found = await resolve(host, port, family=_FAMILIES.get(self._dial_options.family, socket.AF_UNSPEC))
                addresses = found.interleaved() if self._connection.happy_eyeballs else found.addresses[:1]
                for _, address in addresses:
                    if self._destinations and (why := self._destinations.address_refusal(*named, address[0])):
                        raise NotAttempted(f"{REFUSED}{why}")
                self._connection.observer.dns_us = found.dns_us
                return await self._connect(addresses, limit.when())
        except OSError as error:
            late = isinstance(error, TimeoutError)
            reason = f"connecting to {host} took longer than {timeout:g} s" if late else _os_reason(error)
            failed = httpcore.ConnectTimeout if late else httpcore.ConnectError
            if found and not self._connection.happy_eyeballs:
                reason = found.failure(host, reason)
            raise failed(reason) from error

    async def sleep(self, seconds: float) -> None:
        """Required by httpcore for its retries, which this agent does not use."""
        await asyncio.sleep(seconds)

    async def _connect(self, addresses: Sequence[tuple[int, Any]], connect_by: float | None) -> "StampingStream":
        observer = self._connection.observer
        observer.remote_address = addresses[0][1][0]
        opened = await _first_connected(addresses)
        observer.tcp_us, observer.remote_address = opened.tcp_us, opened.address
        self._connection.stream = StampingStream(
            opened.sock, self._connection, stamped=opened.stamped, connect_by=connect_by
        )
        return self._connection.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A connected socket, and the duration of its own handshake."""

    sock: socket.socket
    address: str
    stamped: bool
    tcp_us: int


async def _open(family: int, address: Any) -> _Opened:  # noqa: ANN401  # a socket address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamped = enable_receive_stamps(sock)
        started_ns = time.monotonic_ns()
        await asyncio.get_running_loop().sock_connect(sock, address)
        # The kernel's first round trip, without the wait for a busy loop; a SYN that was lost has none.
        tcp_us, info = _since_us(started_ns), read_tcp_info(sock)
        tcp_us = tcp_us if info.retransmits or info.rtt_us is None else min(tcp_us, info.rtt_us)
    except BaseException:
        sock.close()
        raise
    return _Opened(sock=sock, address=address[0], stamped=stamped, tcp_us=tcp_us)


async def _first_connected(addresses: Sequence[tuple[int, Any]]) -> _Opened:
    """Connect to the addresses in turn, to the next one once one has failed or after `ATTEMPT_DELAY_SECONDS`.

    The first to connect wins; all others are closed. Raises the error of the first address if all fail.
    """
    if len(addresses) == 1:
        return await _open(*addresses[0])
    attempts: list[asyncio.Task[_Opened]] = []
    won = None
    try:
        while won is None and not (len(attempts) == len(addresses) and all(each.done() for each in attempts)):
            if len(attempts) < len(addresses):
                attempts.append(asyncio.create_task(_open(*addresses[len(attempts)])))
            delay = ATTEMPT_DELAY_SECONDS if len(attempts) < len(addresses) else None
            running = [each for each in attempts if not each.done()]
            await asyncio.wait(running, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            won = next((each for each in attempts if each.done() and each.exception() is None), None)
        return (won or attempts[0]).result()
    finally:
        for each in attempts:
            if each is not won:
                each.add_done_callback(_close_loser)
                each.cancel()


def _close_loser(attempt: "asyncio.Task[_Opened]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().sock.close()


class StampingStream(httpcore.AsyncNetworkStream):
    """A TCP connection with a timestamp for every read. `connect_by`: the handshake's deadline, on the loop's clock."""

    def __init__(
        self, sock: socket.socket, connection: ProbeConnection, *, stamped: bool, connect_by: float | None = None
    ) -> None:
        self._sock = sock
        self._stamped = stamped
        self._connect_by = connect_by
        self._connection = connection
        self._remote_address: str = sock.getpeername()[0]
        self._last_info = TcpInfo()
        self._loop = asyncio.get_running_loop()
        self._received: deque[tuple[bytes, Stamp]] = deque()
        self._unsent = b""
        self._waiting_bytes = 0
        self._listening = False
        self._reader: asyncio.Future[None] | None = None
        self._batch_timer: asyncio.TimerHandle | None = None
        self._error: OSError | None = None
        self._listen()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  # httpcore's interface; limits are the prober's
        """Return the bytes of one read of the socket, empty at the end. Raises `httpcore.ReadError`."""
        data, stamp = await self.take()
        self._connection.observer.delivered(data, stamp)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # httpcore's interface
        """Collect the request, whose end has no bytes; then write it at once, and record the time of its last part.

        Raises `httpcore.WriteError`.
        """
        self._unsent += buffer
        if buffer or not self._unsent:
            return
        request, self._unsent = self._unsent, b""
        start, self._connection.start = self._connection.start, None
        self._connection.observer.sent(await self.send(request, timeout, start), self._remote_address)
        if not self._stamped:
            self._connection.observer.monitor_loop_lag()

    async def send(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109  # as `write`
        start: Start | None = None,
    ) -> int:
        """Write all of `buffer`, from `start` on; return when its last part was passed to the kernel, in monotonic ns.

        The clock is read before the system call: a peer on the same core may run before the call returns, and its time
        must not be counted.
        """
        rest, handed_ns = memoryview(buffer), time.monotonic_ns()
        if start is not None:
            handed_ns, size = await start.together(partial(self._write_now, rest))
            rest = rest[size:]
        try:
            async with asyncio.timeout(timeout):
                while rest:
                    handed_ns = time.monotonic_ns()
                    rest = rest[await self._send_some(rest) :]
        except TimeoutError as error:
            raise httpcore.WriteTimeout("writing the request took too long") from error
        except OSError as error:
            raise httpcore.WriteError(_os_reason(error)) from error
        return handed_ns

    def _write_now(self, piece: memoryview) -> _Written:
        handed_ns = time.monotonic_ns()
        with suppress(OSError):  # `send` goes on with the rest, and raises
            return handed_ns, self._sock.send(piece)
        return handed_ns, 0

    async def _send_some(self, piece: memoryview) -> int:
        try:
            return self._sock.send(piece)
        except (BlockingIOError, InterruptedError):
            room: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_writer(self._sock.fileno(), _complete, room)
            try:
                await room
            finally:
                self._loop.remove_writer(self._sock.fileno())
            return 0

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's interface
    ) -> httpcore.AsyncNetworkStream:
        """Perform the TLS handshake in the rest of the time to connect. Raises as `connect_tcp`."""
        stream = TlsStream(self, self._connection, ssl_context, server_hostname)
        started_ns = time.monotonic_ns()
        try:
            async with asyncio.timeout_at(self._connect_by):
                await stream.handshake()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise httpcore.ConnectTimeout(
                    f"not connected in {timeout:g} s: TLS handshake not finished; {_IF_HTTP}"
                ) from error
            if isinstance(error, ssl.SSLError | httpcore.ReadError | httpcore.WriteError):
                raise httpcore.ConnectError(f"TLS: {handshake_problem(error, stream.first_bytes)}") from error
            raise
        self._connection.observer.tls_us = _since_us(started_ns + stream.delay_ns)
        return stream

    async def aclose(self) -> None:
        """Close the socket, and keep the kernel's last figures for the connection."""
        if self._sock.fileno() < 0:
            return
        self._last_info = read_tcp_info(self._sock)
        self._stop_listening()
        self._wake_reader()
        self._sock.close()

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # httpcore's interface
        """Return the values that httpcore needs to decide whether the connection can be reused."""
        # A connection that failed while idle has nothing to read, but must not be reused either.
        return {"socket": self._sock, "is_readable": bool(self._received) or self._error is not None}.get(info)

    def tcp_info(self) -> TcpInfo:
        """Return the kernel's figures, for a closed connection the last ones."""
        return read_tcp_info(self._sock) if self._sock.fileno() >= 0 else self._last_info

    async def take(self) -> tuple[bytes, Stamp]:
        """Return the next read and its timestamp, waiting for it if necessary."""
        while not self._received:
            if self._error is not None:
                raise httpcore.ReadError(_os_reason(self._error)) from self._error
            self._listen()
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data, stamp = self._received[0]
        if data:  # the end remains, so that it can be read again
            self._received.popleft()
            self._waiting_bytes -= len(data)
            self._listen()
        return data, stamp

    def _listen(self) -> None:
        if not self._listening and self._error is None and self._waiting_bytes < _MAX_WAITING_BYTES:
            self._loop.add_reader(self._sock.fileno(), self._on_readable)
            self._listening = True

    def _stop_listening(self) -> None:
        if self._listening:
            self._loop.remove_reader(self._sock.fileno())
            self._listening = False

    def _on_readable(self) -> None:
        try:
            data, ancillary, _, _ = self._sock.recvmsg(_READ_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._error = error
            data, ancillary = b"", []
        if self._error is None:
            self._received.append((data, read_stamp(ancillary)))
            self._waiting_bytes += len(data)
        if not data or self._waiting_bytes >= _MAX_WAITING_BYTES:
            self._stop_listening()
        if self._connection.batch_reads and self._listening:
            self._batch_timer = self._batch_timer or self._loop.call_later(READ_BATCH_SECONDS, self._wake_reader)
        else:
            self._wake_reader()

    def _wake_reader(self) -> None:
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        if self._reader is not None:
            _complete(self._reader)


class TlsStream(httpcore.AsyncNetworkStream):
    """TLS over a `StampingStream`, decrypted in memory so that the timestamps of the reads are preserved."""

    def __init__(
        self, stream: StampingStream, connection: ProbeConnection, context: ssl.SSLContext, server_hostname: str | None
    ) -> None:
        self._stream = stream
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._stamp = NEVER
        self.first_bytes = b""
        # How long received bytes waited for this process, from their arrival or from when it had time for them.
        self.delay_ns = 0

    async def handshake(self) -> None:
        """Perform the handshake. Raises `ssl.SSLError`."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            else:
                await self._flush()
                return

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  # as StampingStream.read
        """Return decrypted bytes, empty at the end. Raises `httpcore.ReadError`."""
        while True:
            try:
                data = self._tls.read(max_bytes)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                data = b""
                break
            except ssl.SSLError as error:
                raise TlsFailed(f"TLS: {tls_reason(error)}") from error
            else:
                break
        self._connection.observer.delivered(data, self._stamp)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # httpcore's interface
        """Encrypt and collect as `StampingStream.write`. Raises `httpcore.WriteError`."""
        if buffer:
            self._tls.write(buffer)
        await self._stream.write(self._outgoing.read(), timeout)

    async def aclose(self) -> None:
        """Close without the TLS closing handshake, which would only wait for the peer."""
        await self._stream.aclose()

    async def start_tls(self, *_args: object, **_kwargs: object) -> httpcore.AsyncNetworkStream:
        """Not supported: TLS within TLS is for proxies."""
        raise httpcore.UnsupportedProtocol("proxies are not supported")

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # httpcore's interface
        """As `StampingStream.get_extra_info`, and the TLS session."""
        return self._tls if info == "ssl_object" else self._stream.get_extra_info(info)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._stream.send(self._outgoing.read())

    async def _fill(self) -> None:
        free_ns = time.monotonic_ns()
        data, self._stamp = await self._stream.take()
        self.delay_ns += time.monotonic_ns() - max(self._stamp.at_ns, free_ns)
        self.first_bytes = self.first_bytes or data[:FIRST_BYTES]
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


def _complete(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _since_us(started_ns: int) -> int:
    return (time.monotonic_ns() - started_ns) // 1000


def _os_reason(error: OSError) -> str:
    """Return the system's message for the error, without asyncio's additions; for a resolver error, its own message."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)
