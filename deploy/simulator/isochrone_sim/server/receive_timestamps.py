"""When bytes really arrived: the kernel's receive timestamps, under asyncio's own transports.

A loop that is busy writing tokens notices a request late; the kernel does not. asyncio reads from
the socket it was given, so a listening socket whose connections keep the stamp of each read is all it takes, and it
works under TLS too. Where the kernel gives no stamps, `arrived_ns` says `None` and the reader's own clock has to do.
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
    """A connection that remembers when what it last received had arrived."""

    arrived_ns: int | None = None

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """See `socket.recv`. `arrived_ns` is then the arrival of its last byte on the monotonic clock."""
        data, ancillary, _, _ = self.recvmsg(bufsize, _ANCILLARY_BYTES, flags)
        self.arrived_ns = _arrival_ns(ancillary)
        return data

    def recv_into(self, buffer: "Buffer", nbytes: int = 0, flags: int = 0) -> int:
        """See `socket.recv_into`, with which asyncio reads under TLS, and `recv` here."""
        room = memoryview(buffer)[: nbytes or None]
        count, ancillary, _, _ = self.recvmsg_into([room], _ANCILLARY_BYTES, flags)
        self.arrived_ns = _arrival_ns(ancillary)
        return count


class StampingListener(socket.socket):
    """A listening socket whose connections are `StampingSocket`s; `connections` are those not claimed yet."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # as socket has them
        super().__init__(*args, **options)
        self.connections: dict[int, StampingSocket] = {}
        _ask_for_stamps(self)

    def accept(self) -> tuple[StampingSocket, Any]:
        """See `socket.accept`."""
        accepted, address = super().accept()
        connection = StampingSocket(fileno=accepted.detach())
        _ask_for_stamps(connection)
        self.connections[connection.fileno()] = connection
        return connection, address

    def claim(self, fileno: int) -> StampingSocket | None:
        """The connection of this number, once."""
        return self.connections.pop(fileno, None)


def _ask_for_stamps(wanting: socket.socket) -> None:
    try:
        wanting.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE)
    except OSError:
        return


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPING) and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            age_ns = time_ns() - (seconds * 1_000_000_000 + nanoseconds)
            # A wall clock that was stepped meanwhile makes nonsense of an age.
            return monotonic_ns() - age_ns if 0 <= age_ns < _OLDEST_NS else None
    return None
