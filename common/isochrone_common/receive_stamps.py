"""Receive timestamps of the kernel.

With SO_TIMESTAMPING set, `recvmsg` on a Linux TCP socket also returns the arrival time of the last segment that it
returns, as a CLOCK_REALTIME timespec. Its age at the time of the read (now minus arrival, both on the wall clock) is
subtracted from the monotonic clock, which is read immediately before the wall clock. A step of the wall clock therefore
matters only if it falls between arrival and read; the age is then usually negative or implausible, and the time of the
read is used instead. The time of the read is also used if the kernel returns no timestamp. Source: Linux
Documentation/networking/timestamping.rst; the first timespec of the control message is the software timestamp.
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
# No event loop is this late; a larger age means that the wall clock was stepped.
MAX_AGE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Stamp:
    """The arrival of bytes in monotonic ns, and their wait to be read; not `kernel`: the read stands for both."""

    at_ns: int
    waited_ns: int
    kernel: bool


NEVER = Stamp(0, 0, kernel=False)


def enable_receive_stamps(sock: socket.socket) -> bool:
    """Enable kernel receive timestamps on `sock`; return false if they are not supported."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)
    except OSError:
        return False
    return True


def read_stamp(ancillary: list[tuple[int, int, bytes]]) -> Stamp:
    """Return the timestamp of a read that has just returned this ancillary data."""
    monotonic_ns, wall_ns = time.monotonic_ns(), time.time_ns()
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPING and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            age_ns = wall_ns - (seconds * 1_000_000_000 + nanoseconds)
            if 0 <= age_ns <= MAX_AGE_NS:
                return Stamp(monotonic_ns - age_ns, age_ns, kernel=True)
    return Stamp(monotonic_ns, 0, kernel=False)
