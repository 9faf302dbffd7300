"""The kernel's statistics of a TCP connection: TCP_INFO in the layout of Linux (include/uapi/linux/tcp.h)."""

import socket
import struct
from dataclasses import dataclass, replace

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
