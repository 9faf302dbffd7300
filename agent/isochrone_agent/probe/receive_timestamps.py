"""Receive timestamps: when the kernel took bytes off the network, not when Python got round to reading them.

Theory of operation: with SO_TIMESTAMPING set, `recvmsg` on a Linux TCP socket returns beside the bytes the arrival of
the last segment it returned, as a CLOCK_REALTIME timespec. Its age at the moment of reading (now minus arrival, both on
the wall clock and microseconds apart) is subtracted from the monotonic clock read in the same breath, so a step of the
wall clock can hurt only if it falls between arrival and read; such an age is negative or absurd and the stamp of the
read itself is used instead. Where the kernel gives no stamp the read's own instant is the stamp.

Source: Linux Documentation/networking/timestamping.rst; the control message's first timespec is the software stamp.
"""

import socket
import struct
import sys
import time
from dataclasses import dataclass

_SO_TIMESTAMPING = 37
_RX_SOFTWARE, _SOFTWARE = 1 << 3, 1 << 4
_TIMESPEC = struct.Struct("@qq")
ANCILLARY_BYTES = 128
# A loop that is later than this has worse troubles; a larger age means the wall clock moved.
MAX_AGE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Stamp:
    """When bytes arrived, in monotonic nanoseconds, and for how many nanoseconds they then waited to be read.
    `kernel` is false when the arrival is only the instant of reading.
    """

    at_ns: int
    waited_ns: int
    kernel: bool


NEVER = Stamp(0, 0, kernel=False)


def enable_receive_stamps(sock: socket.socket) -> bool:
    """Ask the kernel for receive timestamps on `sock`; false where it has none to give."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)
    except OSError:
        return False
    return True


def read_stamp(ancillary: list[tuple[int, int, bytes]]) -> Stamp:
    """The stamp of a read that just returned with this ancillary data."""
    monotonic_ns, wall_ns = time.monotonic_ns(), time.time_ns()
    arrival_ns = _arrival_ns(ancillary)
    age_ns = wall_ns - arrival_ns if arrival_ns else -1
    if 0 <= age_ns <= MAX_AGE_NS:
        return Stamp(monotonic_ns - age_ns, age_ns, kernel=True)
    return Stamp(monotonic_ns, 0, kernel=False)


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPING and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return 0
