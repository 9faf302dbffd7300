"""Receive timestamps of the kernel, below asyncio's own transports.

An event loop that is busy writing tokens reads a request late; the kernel's timestamp is still exact. asyncio reads
from the socket that it is given, so it is enough that a listening socket creates connections which store the timestamp
of each read; this works under TLS too. If the kernel provides no timestamps, `arrived_ns` is `None` and the caller uses
its own clock.
"""

import socket
import struct
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_SO_TIMESTAMPING = 37
_RX_SOFTWARE = (1 << 3) | (1 << 4)
_TIMESPEC = struct.Struct("qq")
_ANCILLARY_BYTES = 128
_OLDEST_NS = 10_000_000_000


class StampingSocket(socket.socket):
    """A connection that stores the arrival time of the last received bytes."""

    arrived_ns: int | None = None

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """See `socket.recv`. Sets `arrived_ns` to the arrival of the last byte, on the monotonic clock."""
        data, ancillary, _, _ = self.recvmsg(bufsize, _ANCILLARY_BYTES, flags)
        self.arrived_ns = _arrival_ns(ancillary)
        return data

    def recv_into(self, buffer: "Buffer", nbytes: int = 0, flags: int = 0) -> int:
        """See `socket.recv_into`, which asyncio uses under TLS; otherwise as `recv`."""
        room = memoryview(buffer)[: nbytes or None]
        count, ancillary, _, _ = self.recvmsg_into([room], _ANCILLARY_BYTES, flags)
        self.arrived_ns = _arrival_ns(ancillary)
        return count


class StampingListener(socket.socket):
    """A listening socket that accepts `StampingSocket`s; `connections` are those not claimed yet."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # the signature of socket.socket
        super().__init__(*args, **options)
        self.connections: dict[int, StampingSocket] = {}
        _enable_timestamps(self)

    def accept(self) -> tuple[StampingSocket, Any]:
        """See `socket.accept`."""
        accepted, address = super().accept()
        connection = StampingSocket(fileno=accepted.detach())
        _enable_timestamps(connection)
        self.connections[connection.fileno()] = connection
        return connection, address

    def claim(self, fileno: int) -> StampingSocket | None:
        """Return the connection with this file descriptor, once."""
        return self.connections.pop(fileno, None)


def _enable_timestamps(receiver: socket.socket) -> None:
    try:
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE)
    except OSError:
        return


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPING) and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            age_ns = time_ns() - (seconds * 1_000_000_000 + nanoseconds)
            # A step of the wall clock makes the age meaningless.
            return monotonic_ns() - age_ns if 0 <= age_ns < _OLDEST_NS else None
    return None
