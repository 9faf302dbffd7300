"""Observations of one probe at its socket: phases of the connection, times of its reads and writes, loop lag, and the
kernel's statistics (TCP_INFO in the layout of Linux, include/uapi/linux/tcp.h).
"""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from isochrone_common.receive_stamps import NEVER, Stamp

_TCP_INFO_BYTES = 192
_COUNT = struct.Struct("@I")
_RTT_OFFSET, _RETRANSMITS_OFFSET, _MIN_RTT_OFFSET = 68, 100, 148
_NO_RTT = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpInfo:
    """Statistics of one connection, which ends at the provider's edge; round trips in microseconds."""

    rtt_us: int | None = None
    rtt_min_us: int | None = None
    retransmits: int | None = None

    def since(self, earlier: "TcpInfo") -> "TcpInfo":
        """Return these figures with the retransmits since `earlier`; the kernel counts all of the connection."""
        if self.retransmits is None or earlier.retransmits is None:
            return self
        return replace(self, retransmits=max(0, self.retransmits - earlier.retransmits))


NO_TCP_INFO = TcpInfo()


def read_tcp_info(sock: socket.socket) -> TcpInfo:
    """Read the kernel's statistics of `sock` (Linux `struct tcp_info`); empty where not available."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except (OSError, AttributeError):
        return TcpInfo()
    if len(info) < _RETRANSMITS_OFFSET + _COUNT.size:
        return TcpInfo()
    rtt_us, retransmits = (_COUNT.unpack_from(info, at)[0] for at in (_RTT_OFFSET, _RETRANSMITS_OFFSET))
    rtt_min_us = _COUNT.unpack_from(info, _MIN_RTT_OFFSET)[0] if len(info) >= _MIN_RTT_OFFSET + _COUNT.size else _NO_RTT
    return TcpInfo(
        rtt_us=rtt_us or None, rtt_min_us=None if rtt_min_us == _NO_RTT else rtt_min_us, retransmits=retransmits
    )


_TICK_NS = 10_000_000
# Enough to distinguish protocols, and to show what the peer speaks.
FIRST_BYTES = 24
# A connection that the server had closed while it was idle answers a request by a reset, within a round trip.
_MAX_RESET_NS = 1_000_000_000


class LoopLagMonitor:
    """Measures the lag of the event loop by periodic callbacks; `worst_ns` is the longest delay of one."""

    def __init__(self, every_ns: int = _TICK_NS) -> None:
        self.worst_ns = 0
        self._every_ns = every_ns
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def stop(self) -> None:
        """Stop measuring; a callback that is overdue by now still counts."""
        self.worst_ns = max(self.worst_ns, time.monotonic_ns() - self._due_ns)
        self._timer.cancel()

    def take_us(self) -> int:
        """Return the longest delay since the last call in microseconds, and begin again."""
        worst_ns, self.worst_ns = self.worst_ns, 0
        return worst_ns // 1000

    def _schedule(self) -> None:
        self._due_ns = time.monotonic_ns() + self._every_ns
        self._timer = self._loop.call_later(self._every_ns / 1e9, self._tick)

    def _tick(self) -> None:
        self.worst_ns = max(self.worst_ns, time.monotonic_ns() - self._due_ns)
        self._schedule()


@dataclass(slots=True)
class SocketObserver:
    """The observations of one probe; times in monotonic nanoseconds. `on_sent` is called after each write."""

    dns_us: int | None = None
    tcp_us: int | None = None
    tls_us: int | None = None
    remote_address: str | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    first_bytes: bytes = b""
    received: Stamp = NEVER
    reads: int = 0
    kernel_reads: int = 0
    max_waited_ns: int = 0
    lag_monitor: LoopLagMonitor | None = None
    ended: bool = False
    reconnected: bool = False
    tcp_info: TcpInfo = NO_TCP_INFO
    on_sent: Callable[[], None] = lambda: None

    @property
    def reused(self) -> bool:
        """True if the request was sent on a connection that another probe had opened."""
        return self.sent_ns is not None and self.tcp_us is None

    @property
    def closed_while_idle(self) -> bool:
        """True if a reused connection, now lost, was closed before the request arrived, which so had no effect."""
        waited_ns = 0 if self.sent_ns is None else time.monotonic_ns() - self.sent_ns
        return self.tcp_us is None and self.first_byte_ns is None and waited_ns <= _MAX_RESET_NS

    @property
    def connection(self) -> dict[str, Any]:
        """The fields of `Sample` on the connection; `None` for a phase that did not take place."""
        phases = {name: getattr(self, name) for name in ("dns_us", "tcp_us", "tls_us", "remote_address")}
        lag_us = self.loop_lag_ns // 1000 if self.kernel_reads or self.lag_monitor else None
        return {**phases, "loop_lag_us": lag_us, **asdict(self.tcp_info)}

    @property
    def loop_lag_ns(self) -> int:
        """The longest time that received bytes waited for the event loop; without kernel stamps, its lag."""
        return max(self.max_waited_ns, self.lag_monitor.worst_ns if self.lag_monitor else 0)

    def sent(self, at_ns: int, remote_address: str) -> None:
        """Record that a part of the request was written at `at_ns`, to this address."""
        self.sent_ns = at_ns
        self.remote_address = remote_address
        self.on_sent()

    def monitor_loop_lag(self) -> None:
        """Measure the lag of the event loop until `end`, as there are no kernel timestamps."""
        if self.lag_monitor is None:
            self.lag_monitor = LoopLagMonitor()

    def end(self, tcp_info: TcpInfo) -> None:
        """End the observation, with the kernel's figures for the connection."""
        self.tcp_info = tcp_info
        if self.lag_monitor is not None:
            self.lag_monitor.stop()

    def delivered(self, data: bytes, stamp: Stamp) -> None:
        """Record that bytes of the response were delivered with this timestamp; no bytes mean the end."""
        if not data:
            self.ended = True
            return
        if self.sent_ns is not None and stamp.at_ns < self.sent_ns:
            # The clock was stepped, or this is no answer to the request: the time of the read is used, and flagged.
            stamp = Stamp(max(stamp.at_ns + stamp.waited_ns, self.sent_ns), 0, kernel=False)
        self.received = stamp
        self.reads += 1
        self.kernel_reads += stamp.kernel
        self.max_waited_ns = max(self.max_waited_ns, stamp.waited_ns)
        if not stamp.kernel:
            self.monitor_loop_lag()
        if self.first_byte_ns is None:
            self.first_byte_ns, self.first_bytes = stamp.at_ns, data[:FIRST_BYTES]
