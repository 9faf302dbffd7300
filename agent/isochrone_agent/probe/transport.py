"""Sockets that say when: resolver, TCP, TLS and reads, each stamped, behind httpcore's public backend seam.

The laws:

1. One address. The name is resolved first, the first address of the wanted family is connected to, and recorded. No
   second attempt: a retry would be another sample.
2. DNS, TCP and TLS are timed apart, on the same connection the request then uses.
3. A read is stamped in the loop's readiness callback, before any task is woken, with the kernel's receive timestamp
   where there is one. The stamp belongs to the bytes; a TLS record carries that of the read that completed it.
4. Memory is bounded: when `_MAX_WAITING_BYTES` lie unread the socket is left alone until they are taken.
5. Once a stream is under way its reads are collected, each with its stamp, and handed on together every
   `READ_BATCH_SECONDS`: thinking can wait, and a probe then wakes its task 30 times instead of 150.

Each probe has its own `SocketObserver`, which records these times; a `ProbeConnection` that is reused gets a new one
for every probe. Nothing here may be shared between event loops.
"""

import asyncio
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpcore

from isochrone_agent.probe.receive_timestamps import ANCILLARY_BYTES, NEVER, Stamp, enable_receive_stamps, read_stamp
from isochrone_agent.probe.resolver import resolve
from isochrone_agent.probe.socket_observer import SocketObserver
from isochrone_agent.probe.tcp_info import NO_TCP_INFO, TcpInfo, read_tcp_info

READ_BATCH_SECONDS = 0.05
_READ_BYTES = 65_536
_MAX_WAITING_BYTES = 1 << 20
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialOptions:
    """How to reach hosts: `family` 4, 6 or 0 for either; `connect_to` sends the connections meant for one host and
    port to another, as curl's option of that name does, leaving URL, Host header and TLS name as they are.
    """

    family: int = 0
    connect_to: Mapping[Address, Address] = field(default_factory=dict)


DEFAULT_DIAL_OPTIONS = DialOptions()


class ProbeConnection:
    """A pool of at most one connection to one target, and the `observer` of the probe that is using it. With
    `batch_reads`, reads are delivered in batches.
    """

    def __init__(self, tls: ssl.SSLContext, dial_options: DialOptions) -> None:
        self.observer = SocketObserver()
        self.batch_reads = False
        self.stream: StampingStream | None = None
        backend = StampingBackend(self, dial_options)
        self.pool = httpcore.AsyncConnectionPool(ssl_context=tls, network_backend=backend, max_connections=1)

    @contextmanager
    def use(self) -> Iterator[SocketObserver]:
        """Lend this connection to one probe for the duration of the block, and yield that probe's observer. On exit the
        observer has the kernel's figures for the connection that carried the request.
        """
        self.observer = SocketObserver()
        self.batch_reads = False
        kept, before = self.stream, self.stream.tcp_info() if self.stream else NO_TCP_INFO
        try:
            yield self.observer
        finally:
            used = self.stream if self.observer.sent_ns is not None else None
            found = used.tcp_info() if used else NO_TCP_INFO
            self.observer.end(found.since(before) if used is kept else found)

    async def aclose(self) -> None:
        """Hang up."""
        await self.pool.aclose()


class StampingBackend(httpcore.AsyncNetworkBackend):
    """Opens connections for httpcore and notes their phases in the observer of its connection."""

    def __init__(self, connection: ProbeConnection, dial_options: DialOptions) -> None:
        self._connection = connection
        self._dial_options = dial_options

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve, connect to the first address, or raise `httpcore.ConnectError` / `ConnectTimeout`.

        `timeout` is for the whole connection: what is left of it is the handshake's.
        """
        del local_address, socket_options  # never asked for by this agent
        host, port = self._dial_options.connect_to.get((host, port), (host, port))
        try:
            async with asyncio.timeout(timeout) as limit:
                found = await resolve(host, port, family=_FAMILIES.get(self._dial_options.family, socket.AF_UNSPEC))
                self._connection.observer.dns_us = found.dns_us
                return await self._connect(found.family, found.address, limit.when())
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"connecting to {host} took longer than {timeout:g} s") from error
        except OSError as error:
            raise httpcore.ConnectError(_os_reason(error)) from error

    async def connect_unix_socket(self, *_args: object, **_kwargs: object) -> httpcore.AsyncNetworkStream:
        """Not a way to reach an LLM API."""
        raise httpcore.UnsupportedProtocol("unix sockets are not probed")

    async def sleep(self, seconds: float) -> None:
        """Only httpcore's own retries sleep, and there are none."""
        await asyncio.sleep(seconds)

    async def _connect(
        self,
        family: int,
        address: Any,  # noqa: ANN401  # a socket address
        connect_by: float | None,
    ) -> "StampingStream":
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stamped = enable_receive_stamps(sock)
            self._connection.observer.remote_address = address[0]
            started_ns = time.monotonic_ns()
            await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        self._connection.observer.tcp_us = _since_us(started_ns)
        self._connection.stream = StampingStream(sock, self._connection, stamped=stamped, connect_by=connect_by)
        return self._connection.stream


class StampingStream(httpcore.AsyncNetworkStream):
    """A TCP connection whose reads carry stamps; the kernel's, if `stamped`. TLS must stand by `connect_by`, an instant
    of the loop's clock, if at all.
    """

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
        self._waiting_bytes = 0
        self._listening = False
        self._reader: asyncio.Future[None] | None = None
        self._batch_timer: asyncio.TimerHandle | None = None
        self._error: OSError | None = None
        self._listen()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  # httpcore's interface; limits are the prober's
        """The bytes of one read of the socket, empty at the end; raises `httpcore.ReadError`."""
        data, stamp = await self.take()
        self._connection.observer.delivered(data, stamp)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # httpcore's interface
        """Write all of `buffer` and note when its last piece was handed over; raises `httpcore.WriteError`."""
        if not buffer:  # the end of a message has no bytes, and no instant either
            return
        self._connection.observer.sent(await self.send(buffer, timeout), self._remote_address)
        if not self._stamped:
            self._connection.observer.monitor_loop_lag()

    async def send(self, buffer: bytes, timeout: float | None = None) -> int:  # noqa: ASYNC109  # as `write`
        """Write all of `buffer`; the instant, in monotonic nanoseconds, at which its last piece went to the kernel.

        Read before the call, not after it: on return from a send the peer may have been running for a while on this
        very core, and that time is the peer's.
        """
        rest, handed_ns = memoryview(buffer), time.monotonic_ns()
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
        """Shake hands in what is left of the time to connect; raises `httpcore.ConnectError` with the reason, such as
        what the certificate was refused for, or `ConnectTimeout`.
        """
        stream = TlsStream(self, self._connection, ssl_context, server_hostname)
        started_ns = time.monotonic_ns()
        try:
            async with asyncio.timeout_at(self._connect_by):
                await stream.handshake()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise httpcore.ConnectTimeout(f"not connected in {timeout:g} s: TLS was not through") from error
            if isinstance(error, ssl.SSLError):
                raise httpcore.ConnectError(f"TLS: {_tls_reason(error)}") from error
            if isinstance(error, httpcore.ReadError | httpcore.WriteError):
                raise httpcore.ConnectError(f"TLS: {error}") from error
            raise
        self._connection.observer.tls_us = _since_us(started_ns)
        return stream

    async def aclose(self) -> None:
        """Close the socket, keeping what the kernel knew of the connection."""
        if self._sock.fileno() < 0:
            return
        self._last_info = read_tcp_info(self._sock)
        self._stop_listening()
        self._wake_reader()
        self._sock.close()

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # httpcore's interface
        """What httpcore asks of a stream before it is used again."""
        # A connection that broke while it was idle has nothing to read, and is as finished as one that was closed.
        return {"socket": self._sock, "is_readable": bool(self._received) or self._error is not None}.get(info)

    def tcp_info(self) -> TcpInfo:
        """The kernel's figures now, or the last ones of a connection that is closed."""
        return read_tcp_info(self._sock) if self._sock.fileno() >= 0 else self._last_info

    async def take(self) -> tuple[bytes, Stamp]:
        """The next read and its stamp, waiting for it if need be."""
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
        if data:  # the end stays, so that it can be read again
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
        """Wake the task that waits for a read, if one does."""
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        if self._reader is not None:
            _complete(self._reader)


class TlsStream(httpcore.AsyncNetworkStream):
    """TLS over a `StampingStream`, deciphered in memory so that the stamps of the reads are kept."""

    def __init__(
        self, stream: StampingStream, connection: ProbeConnection, context: ssl.SSLContext, server_hostname: str | None
    ) -> None:
        self._stream = stream
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._stamp = NEVER

    async def handshake(self) -> None:
        """Exchange records until the session stands; raises `ssl.SSLError`."""
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
        """Deciphered bytes, empty at the end; raises `httpcore.ReadError`."""
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
                raise httpcore.ReadError(f"TLS: {_tls_reason(error)}") from error
            else:
                break
        self._connection.observer.delivered(data, self._stamp)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # httpcore's interface
        """Encipher and write all of `buffer`; raises `httpcore.WriteError`."""
        if not buffer:  # as above
            return
        self._tls.write(buffer)
        await self._stream.write(self._outgoing.read(), timeout)

    async def aclose(self) -> None:
        """Close without the closing handshake, which would only wait for the peer."""
        await self._stream.aclose()

    async def start_tls(self, *_args: object, **_kwargs: object) -> httpcore.AsyncNetworkStream:
        """TLS within TLS would be a proxy's."""
        raise httpcore.UnsupportedProtocol("proxies are not supported")

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # httpcore's interface
        """As `StampingStream.get_extra_info`, with the TLS session."""
        return self._tls if info == "ssl_object" else self._stream.get_extra_info(info)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._stream.send(self._outgoing.read())

    async def _fill(self) -> None:
        data, self._stamp = await self._stream.take()
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
    """What the system says of an error number, without asyncio's additions; a resolver's own words otherwise."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _tls_reason(error: ssl.SSLError) -> str:
    return getattr(error, "verify_message", "") or error.reason or str(error)
