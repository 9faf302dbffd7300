"""The front of the gRPC server: TLS, and limits of connections and frames that gRPC does not have.

gRPC itself listens on a Unix socket in a private folder. Each client's connection is passed on over a connection of its
own, so that flow control reaches from end to end; that one's name ends with the client's address, and gRPC reports it
as its peer (`auth.limits.host_of`).
"""

import asyncio
import os
import shutil
import socket
import ssl
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from isochrone_collector.acceptor import Acceptor, bound
from isochrone_collector.auth.limits import REFUSALS, network_of
from isochrone_collector.grpc_api.frame_limits import FrameLimits, LimitError
from isochrone_collector.loop_share import LoopShare
from isochrone_collector.process_tuning import max_connections
from isochrone_common.address import UNIX, Address

MAX_CONNECTIONS = 4_000
"""Maximum number of gRPC connections; a quarter of them of one address, where those with a credential do not count."""

_BUFFER_BYTES = 64 << 10
_EVERY_IPV4 = "0.0.0.0"  # noqa: S104  # compared only
# The prefix of an IPv4 address on a socket of both families.
_MAPPED = "::ffff:"
_CLOSED_WITHIN_S = 1.0
# The time of gRPC and its handlers for a refused call, or for a connection.
_CALL_S = 0.0004
# The largest cost of a connection with a credential until its first call: accepting it, and its handshake.
_ADMITTED_S = 0.003
_REQUEST_WITHIN_S = 30.0
_PARENT, _PREFIX = "/tmp", "isochrone-grpc-"  # noqa: S108  # a private folder is made there


def _remove_abandoned() -> None:
    """Remove the folders that killed collectors of this user left behind, on whose sockets no process listens."""
    for folder in Path(_PARENT).glob(f"{_PREFIX}*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            if folder.lstat().st_uid != os.geteuid():
                continue
            client.setblocking(False)
            try:
                client.connect(str(folder / "grpc"))
            except ConnectionRefusedError:
                shutil.rmtree(folder)


class Front:
    """Passes connections to `listen` on to a server at the Unix socket `address`. Raises `OSError` if it cannot listen;
    until `start` connections wait.
    """

    def __init__(self, listen: Address, *, tls: Callable[[], ssl.SSLContext] | None) -> None:
        # Of every address, and so of both families where this machine has IPv6.
        is_dual = listen.host == _EVERY_IPV4 and socket.has_dualstack_ipv6()
        self._listeners = bound(replace(listen, host="::") if is_dual else listen)
        self.listen = Address(listen.host, self._listeners[0].getsockname()[1])
        """The address of clients, with the real port."""
        self._tls = tls
        _remove_abandoned()
        # A short path, which only this user can enter.
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=_PARENT)
        self.address = Address(f"{UNIX}{self._folder.name}/grpc", 0)
        """The address of the server."""
        self._numbers = count()
        self._tunnels: dict[str, _Tunnel] = {}
        self._acceptor: Acceptor | None = None

    def start(self) -> None:
        """Accept connections. The server has started."""
        share = LoopShare()
        self._acceptor = Acceptor(
            self._listeners,
            lambda admit: _Tunnel(self, admit, share),
            name="grpc",
            tls=self._tls,
            most=max_connections(MAX_CONNECTIONS),
            share=share,
        )

    def stop_accepting(self) -> None:
        """Accept no more connections."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            acceptor.close()
        for listener in self._listeners:
            listener.close()

    async def close(self) -> None:
        """Close everything; wait up to a second for answers to be sent. The server has stopped."""
        self.stop_accepting()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSED_WITHIN_S):
                while self._tunnels:
                    await asyncio.sleep(_CLOSED_WITHIN_S / 100)
        for tunnel in self._tunnels.values():
            tunnel.transport.abort()
        self._folder.cleanup()

    def admit(self, peer: str) -> None:
        """Lift the limits of connections without a credential from the one with this gRPC peer."""
        if (tunnel := self._tunnels.get(unquote(peer))) is not None:
            tunnel.admit()

    def connect(self, tunnel: "_Tunnel", host: str) -> tuple[str, socket.socket]:
        """Return a connection to the server for a client at this address, and its gRPC peer. Raises `OSError`."""
        name = f"{self._folder.name}/{next(self._numbers)}@{host}"
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)
            inner.bind(name)
            Path(name).unlink()
            inner.connect(self.address.host.removeprefix(UNIX))
        except OSError:
            inner.close()
            raise
        peer = f"{UNIX}{name}"
        self._tunnels[peer] = tunnel
        return peer, inner

    def forget(self, peer: str) -> None:
        """Forget a connection that is closed."""
        self._tunnels.pop(peer, None)


class _Side(asyncio.Protocol):
    """One side of a connection: what cannot be sent to it is not read from the other one."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.other: _Side | None = None
        self.is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit what waits to be sent."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Pass on what was received."""
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Read nothing from the other side."""
        self.is_full = True
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other side again."""
        self.is_full = False
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # as in asyncio
        """Close the other side once it has everything."""
        if self.other is not None:
            self.other.transport.close()


class _Server(_Side):
    """The server's side."""

    def __init__(self, limits: FrameLimits) -> None:
        super().__init__()
        self._limits = limits

    def data_received(self, data: bytes) -> None:
        """Pass on an answer, and then what has waited for it."""
        super().data_received(data)
        if self._limits.is_admitted:
            return
        if self._limits.note_answer(data) and self.other is not None:
            self.other.data_received(b"")


class _Tunnel(_Side):
    """The client's side."""

    def __init__(self, front: Front, on_admitted: Callable[[], None], share: LoopShare) -> None:
        super().__init__()
        self._share = share
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._front = front
        self._on_admitted = on_admitted
        self._limits = FrameLimits()
        self._parts: deque[bytes] = deque()
        self._host = self._peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn the address of the client."""
        super().connection_made(transport)
        self._host = transport.get_extra_info("peername")[0].removeprefix(_MAPPED)
        self._timer = asyncio.get_running_loop().call_later(_REQUEST_WITHIN_S, self._require_request)

    async def _connect(self) -> None:
        server = _Server(self._limits)
        server.other = self
        try:
            self._peer, connected = self._front.connect(self, self._host)
            await asyncio.get_running_loop().create_unix_connection(lambda: server, sock=connected)
        except OSError as error:
            self._refuse(str(error))
            return
        self.other = server
        if self.closed.done():
            # Closed before there was anything to forget.
            server.transport.abort()
            self._front.forget(self._peer)
        self._pass_on()

    def admit(self) -> None:
        """Lift the limits of connections without a credential."""
        if not self._limits.is_admitted:
            self._limits.is_admitted = True
            self._on_admitted()
            self._share.give_back(_ADMITTED_S)
            self._parts = deque([b"".join([*self._parts, *self._limits.passed(b"", 0)])])
            self._pass_on()

    def data_received(self, data: bytes) -> None:
        """Pass on what is within the limits. The first of it connects to the server; nothing is read until then."""
        has_turn = bool(self._parts)
        try:
            self._parts.extend(self._limits.passed(data, time.monotonic_ns() // 1000))
        except LimitError as error:
            self._refuse(str(error))
            return
        if self._limits.is_held:
            self.transport.pause_reading()
        if self.other is None and self._parts:
            self.transport.pause_reading()
            self._connecting = asyncio.ensure_future(self._connect())
        elif not has_turn:
            self._pass_on()

    def _pass_on(self) -> None:
        """Pass on a part, and the others in their turns; nothing is read until then."""
        if self.other is None or self.transport.is_closing():
            return
        if self._parts:
            self.other.transport.write(self._parts.popleft())
            if not self._limits.is_admitted:
                self._share.spend(_CALL_S)
        if self._parts:
            self.transport.pause_reading()
            self._share.add(self._pass_on)
        elif not (self.other.is_full or self._limits.is_held):
            self.transport.resume_reading()

    def _require_request(self) -> None:
        if not (self._limits.has_request or self._limits.is_admitted):
            self._refuse("no request in time")

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection to the server, too."""
        self._timer.cancel()
        super().connection_lost(exc)
        self._front.forget(self._peer)
        if not self.closed.done():
            self.closed.set_result(None)

    def _refuse(self, reason: str) -> None:
        REFUSALS.write(listener="grpc", reason=reason, client=network_of(self._host))
        self.transport.abort()
