"""Socket-level observations of one probe: phases of the connection, times of its reads and writes, loop lag."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from isochrone_agent.probe.measurement import Connection
from isochrone_agent.probe.receive_timestamps import NEVER, Stamp
from isochrone_agent.probe.tcp_info import NO_TCP_INFO, TcpInfo

_TICK_NS = 10_000_000
# Enough to distinguish protocols.
FIRST_BYTES = 8


class LoopLagMonitor:
    """Measures the lag of the event loop where there are no kernel timestamps: a callback is scheduled every 10 ms, and
    `worst_ns` is the longest delay of one, in nanoseconds.
    """

    def __init__(self) -> None:
        self.worst_ns = 0
        self._loop = asyncio.get_running_loop()
        self._due_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def stop(self) -> None:
        """Stop measuring; a callback that is overdue by now still counts."""
        self._record()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._due_ns = time.monotonic_ns() + _TICK_NS
        self._timer = self._loop.call_later(_TICK_NS / 1e9, self._tick)

    def _tick(self) -> None:
        self._record()
        self._schedule()

    def _record(self) -> None:
        self.worst_ns = max(self.worst_ns, time.monotonic_ns() - self._due_ns)


@dataclass(slots=True)
class SocketObserver:
    """The observations of one probe; times in monotonic nanoseconds. `on_sent` is called after each write of a part of
    the request.
    """

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
    tcp_info: TcpInfo = NO_TCP_INFO
    on_sent: Callable[[], None] = lambda: None

    @property
    def reused(self) -> bool:
        """True if the request was sent on a connection that another probe had opened."""
        return self.sent_ns is not None and self.tcp_us is None

    @property
    def connection(self) -> Connection:
        """The connection as recorded in the sample."""
        return Connection(
            dns_us=self.dns_us,
            tcp_us=self.tcp_us,
            tls_us=self.tls_us,
            remote_address=self.remote_address,
            reused=self.reused,
            rtt_us=self.tcp_info.rtt_us,
            rtt_min_us=self.tcp_info.rtt_min_us,
            retransmits=self.tcp_info.retransmits,
            loop_lag_us=self.loop_lag_ns // 1000 if self.kernel_reads or self.lag_monitor else None,
        )

    @property
    def loop_lag_ns(self) -> int:
        """The longest time that received bytes waited for the event loop, by kernel timestamps; without them, the
        maximum lag of the loop.
        """
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
        self.received = stamp
        self.reads += 1
        self.kernel_reads += stamp.kernel
        self.max_waited_ns = max(self.max_waited_ns, stamp.waited_ns)
        if not stamp.kernel:
            self.monitor_loop_lag()
        if self.first_byte_ns is None:
            self.first_byte_ns, self.first_bytes = stamp.at_ns, data[:FIRST_BYTES]
