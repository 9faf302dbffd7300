"""The delay line on sockets that keep packets apart, as devices do, and the program where there can be none."""

import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from isochrone_sim.network import __main__ as program
from isochrone_sim.network.delay_line import DelayLine, Link

DELAY_S = 0.05
PATIENCE_S = 60


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket, int]]:
    """The two hosts of a link that a running delay line connects, and the descriptor of its commands."""
    (left, near), (right, far) = (socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    commands, written = os.pipe()
    with left, near, right, far, open(commands) as stdin:  # noqa: PTH123  # a descriptor has no path
        monkeypatch.setattr("sys.stdin", stdin)
        for end in (near, far):
            end.setblocking(False)
        for host in (left, right):
            host.settimeout(PATIENCE_S)
        link = Link(ends=(near.fileno(), far.fileno()), delay_ns=round(DELAY_S * 1e9))
        line = threading.Thread(target=DelayLine({"only": link}).run)
        line.start()
        try:
            yield left, right, written
        finally:
            os.close(written)
            line.join(10)
            assert not line.is_alive()


def test_packets_arrive_in_order_after_the_delay(ends: tuple[socket.socket, socket.socket, int]) -> None:
    """In each direction every packet arrives once, in order, and never earlier than the delay."""
    for sender, receiver in (ends[:2], ends[1::-1]):
        sent = [f"packet {number}".encode() for number in range(20)]
        started = time.monotonic()
        for packet in sent:
            sender.send(packet)
        received = [receiver.recv(100)]
        assert time.monotonic() - started >= DELAY_S
        received += [receiver.recv(100) for _ in sent[1:]]
        assert received == sent


def test_a_cut_link_drops_all(ends: tuple[socket.socket, socket.socket, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Between `cut` and `mend` packets are lost; a command is answered with its own line."""
    left, right, commands = ends
    read, written = os.pipe()
    with open(read) as answers, open(written, "w") as stdout:  # noqa: PTH123  # a descriptor has no path
        monkeypatch.setattr("sys.stdout", stdout)
        os.write(commands, b"cut only\n")
        assert answers.readline() == "cut only\n"
        left.send(b"lost")
        right.settimeout(10 * DELAY_S)
        with pytest.raises(TimeoutError):
            right.recv(100)
        right.settimeout(PATIENCE_S)
        os.write(commands, b"mend only\n")
        assert answers.readline() == "mend only\n"
        left.send(b"found")
        assert right.recv(100) == b"found"


@pytest.mark.parametrize(
    ("file", "reason"),
    [("/dev/net/tun", "/dev/net/tun: permission denied"), (None, "network namespaces: permission denied")],
)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_the_reason_is_the_last_line(monkeypatch: pytest.MonkeyPatch, *, file: str | None, reason: str) -> None:
    """The reason names what was refused, if the kernel tells."""

    def refuse(_round_trips_us: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), file)

    monkeypatch.setattr(program, "create_wide_area", refuse)
    monkeypatch.setattr(sys, "argv", ["network", "eu-central-1=85"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert str(ended.value).endswith(reason)
