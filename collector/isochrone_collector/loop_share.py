"""A bounded share of the event loop for connections without a credential, and TLS that stays within it.

A flood of connections, handshakes or frames then delays a call by a slice in each of the turns of the event loop that
the call needs, however much there is to do. The cost of callers that turn out to have a credential is given back, so
that a fleet that reconnects has all of the time.
"""

import asyncio
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections import deque
from collections.abc import Callable
from typing import Any

HANDSHAKE_S = 5.0
# The work of a turn ends after a slice, or after a quarter of a longer turn; the next one begins when a slice has been
# gained again. A handshake takes a millisecond, and cannot be divided.
_SLICE_S, _LONGEST_SLICE_S = 0.001, 0.05
_SHARE = 0.25
# The limit of the time given back at once, for many callers with a credential; a larger one would serve a flood.
_MOST_GIVEN_BACK_S = 0.1
# One record of TLS, and the limit of a read with a credential.
_RECORD_BYTES, _READ_BYTES = 16 << 10, 256 << 10
# All connections share this buffer: bytes are decrypted before the next read.
_READ = memoryview(bytearray(_READ_BYTES))


class LoopShare:
    """Runs work in a quarter of the time; at once after a pause. Connections that begin take turns with all others, so
    that neither a flood of them nor one of calls keeps out the other; each in the order in which it came.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: tuple[deque[Callable[[], None]], deque[Callable[[], None]]] = (deque(), deque())
        self._is_turn_of_new = self._is_running = False
        self._planned: asyncio.Handle | None = None
        self._gained_s, self._given_back_s, self._seen = _SLICE_S, 0.0, time.perf_counter()

    def add(self, work: Callable[[], None], *, is_new: bool = False) -> None:
        """Run this in its turn; `is_new` until TLS is established."""
        self._waiting[is_new].append(work)
        if self._planned is None and not self._is_running:
            # A pause gains no more than a slice.
            self._gain(_SLICE_S)
            self._plan()

    def give_back(self, seconds: float) -> None:
        """Give back the time of work that was done for a caller with a credential."""
        self._given_back_s = min(self._given_back_s + seconds, _MOST_GIVEN_BACK_S)
        if self._planned is not None:
            self._planned.cancel()
            self._gain()
            self._plan()

    def spend(self, seconds: float) -> None:
        """Count work that is done elsewhere."""
        self._gained_s -= seconds

    def _plan(self) -> None:
        wait_s = 0.0 if self._gained_s > 0 else (_SLICE_S - self._gained_s) / _SHARE
        self._planned = self._loop.call_later(wait_s, self._run) if wait_s else self._loop.call_soon(self._run)

    def _gain(self, most_s: float = _LONGEST_SLICE_S) -> None:
        now = time.perf_counter()
        self._gained_s = min(most_s, self._gained_s + (now - self._seen) * _SHARE)
        self._seen = now
        lent_s = max(0.0, min(self._given_back_s, _SLICE_S - self._gained_s))
        self._gained_s += lent_s
        self._given_back_s -= lent_s

    def _run(self) -> None:
        self._planned, self._is_running = None, True
        self._gain()
        try:
            self._work()
        finally:
            self._is_running = False
            if any(self._waiting):
                self._gain()
                self._plan()

    def _work(self) -> None:
        while any(self._waiting) and self._gained_s > 0:
            begun = time.perf_counter()
            self._is_turn_of_new = not self._is_turn_of_new
            queue = self._waiting[self._is_turn_of_new] or self._waiting[not self._is_turn_of_new]
            queue.popleft()()
            self._gained_s -= time.perf_counter() - begun


class Tls(SSLProtocol):
    """TLS of an accepted connection. Until it is admitted, what it receives waits for its turn."""

    max_size = _RECORD_BYTES

    # Of asyncio, and unknown to its stubs.
    _incoming: ssl.MemoryBIO
    _ssl_reading_paused: bool
    _set_read_buffer_limits: Callable[[int], None]
    _transport: asyncio.Transport | None

    def __init__(self, connection: asyncio.Protocol, context: ssl.SSLContext, share: LoopShare) -> None:
        loop = asyncio.get_running_loop()
        self.established: asyncio.Future[None] = loop.create_future()
        """Done after the handshake."""
        limits: dict[str, Any] = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": HANDSHAKE_S}
        super().__init__(loop, connection, context, self.established, server_side=True, **limits)
        # What waits while the connection reads nothing; asyncio has 256 KiB.
        self._set_read_buffer_limits(_RECORD_BYTES)
        # Of asyncio, which has one for each connection.
        self._ssl_buffer_view = self._ssl_buffer = _READ[:0]
        self._share: LoopShare | None = share

    def admit(self) -> None:
        """Read as much as there is, and at once."""
        self._share = None

    def get_buffer(self, n: int) -> memoryview:  # noqa: ARG002  # as in asyncio
        """Return where to read to."""
        return _READ[:_RECORD_BYTES] if self._share else _READ

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what was read, or wait for that."""
        self._incoming.write(_READ[:nbytes])
        if self._share is None or self._transport is None:
            super().buffer_updated(0)
        else:
            self._transport.pause_reading()
            self._share.add(self._continue, is_new=not self.established.done())

    def _continue(self) -> None:
        if self._transport is not None:
            if not self._ssl_reading_paused:
                self._transport.resume_reading()
            super().buffer_updated(0)
