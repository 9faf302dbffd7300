"""Stamps: the instant of arrival is the kernel's, not that of the read."""

import socket
import time
from collections.abc import Callable

import pytest

from isochrone_sim.server.connection import StampingListener

PAUSE_SECONDS = 0.05


def read_into(connection: socket.socket) -> bytes:
    buffer = bytearray(100)
    return bytes(buffer[: connection.recv_into(buffer)])


@pytest.mark.parametrize("read", [lambda connection: connection.recv(100), read_into])
def test_a_late_read_knows_when_the_bytes_came(read: Callable[[socket.socket], bytes]) -> None:
    """Bytes that waited 50 ms for their reader are stamped with their arrival, whichever way they are read."""
    with StampingListener() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        # The kernel begins to stamp a moment after the first socket on the machine has parameters for it.
        time.sleep(PAUSE_SECONDS)
        client.connect(listener.getsockname())
        before_ns = time.monotonic_ns()
        client.sendall(b"hello")
        sent_ns = time.monotonic_ns()
        time.sleep(PAUSE_SECONDS)
        connection, _ = listener.accept()
        with connection:
            assert read(connection) == b"hello"
            if connection.arrived_ns is None:
                pytest.skip("this kernel gives no receive timestamps")
            # The clocks are read one after the other, so the conversion may be off by a scheduling of this process.
            assert before_ns - 10_000_000 < connection.arrived_ns < sent_ns + 10_000_000


def test_connections_are_claimed_once() -> None:
    """A listener hands each accepted connection out by its number, one time."""
    with StampingListener() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            assert listener.claim(connection.fileno()) is connection
            assert listener.claim(connection.fileno()) is None
