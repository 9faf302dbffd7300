"""What the sockets of one probe saw, collected for its sample."""

from collections.abc import Callable
from dataclasses import dataclass

from isochrone_agent.measurement import Connection
from isochrone_agent.stamps import NEVER, Stamp
from isochrone_agent.tcpinfo import NOTHING_KNOWN, TcpInfo


@dataclass(slots=True)
class Tap:
    """What the sockets of one probe saw; instants in monotonic nanoseconds. `on_sent` is called whenever a piece of the
    request has been written.
    """

    dns_us: int | None = None
    tcp_us: int | None = None
    tls_us: int | None = None
    remote_address: str | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    received: Stamp = NEVER
    reads: int = 0
    kernel_reads: int = 0
    max_waited_ns: int = 0
    ended: bool = False
    tcp_info: TcpInfo = NOTHING_KNOWN
    on_sent: Callable[[], None] = lambda: None

    @property
    def reused(self) -> bool:
        """Whether the request went out on a connection that another probe had opened."""
        return self.sent_ns is not None and self.tcp_us is None

    @property
    def connection(self) -> Connection:
        """The connection as the sample tells it. How long bytes waited is known from kernel stamps only."""
        return Connection(
            dns_us=self.dns_us,
            tcp_us=self.tcp_us,
            tls_us=self.tls_us,
            remote_address=self.remote_address,
            reused=self.reused,
            rtt_us=self.tcp_info.rtt_us,
            rtt_min_us=self.tcp_info.rtt_min_us,
            retransmits=self.tcp_info.retransmits,
            loop_lag_us=self.max_waited_ns // 1000 if self.kernel_reads else None,
        )

    def sent(self, at_ns: int, remote_address: str) -> None:
        """A piece of the request went out at `at_ns`, to that address."""
        self.sent_ns = at_ns
        self.remote_address = remote_address
        self.on_sent()

    def delivered(self, data: bytes, stamp: Stamp) -> None:
        """Bytes of the response with this stamp were handed on; none at all are its end."""
        if not data:
            self.ended = True
            return
        self.received = stamp
        self.reads += 1
        self.kernel_reads += stamp.kernel
        self.max_waited_ns = max(self.max_waited_ns, stamp.waited_ns)
        if self.first_byte_ns is None:
            self.first_byte_ns = stamp.at_ns
