"""Kernel receive timestamps on the monotonic clock, also across steps of the wall clock."""

import socket
import struct
import time

import pytest

from isochrone_agent.clock import ClockPair
from isochrone_common.receive_stamps import read_stamp

SECOND = 1_000_000_000
MONOTONIC_NS = 5_000 * SECOND
WALL_NS = 1_800_000_000 * SECOND


def ancillary(arrival_ns: int) -> list[tuple[int, int, bytes]]:
    """Build the kernel's control message: three timespecs, the first of which is the software timestamp."""
    return [(socket.SOL_SOCKET, 37, struct.pack("@6q", *divmod(arrival_ns, SECOND), 0, 0, 0, 0))]


@pytest.fixture(autouse=True)
def _clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: MONOTONIC_NS)
    monkeypatch.setattr(time, "time_ns", lambda: WALL_NS)


def test_a_late_read_keeps_its_arrival() -> None:
    """Bytes read 30 ms after their arrival have the time of the arrival, and a wait of 30 ms."""
    stamp = read_stamp(ancillary(WALL_NS - 30_000_000))
    assert (stamp.at_ns, stamp.waited_ns, stamp.kernel) == (MONOTONIC_NS - 30_000_000, 30_000_000, True)


@pytest.mark.parametrize(
    "arrival_ns",
    [WALL_NS + 1, WALL_NS + 3600 * SECOND, WALL_NS - 3600 * SECOND],
    ids=["ahead", "set-back", "set-forward"],
)
def test_a_stepped_wall_clock_is_not_believed(arrival_ns: int) -> None:
    """If the wall clock was stepped between arrival and read, the time of the read is used."""
    stamp = read_stamp(ancillary(arrival_ns))
    assert (stamp.at_ns, stamp.waited_ns, stamp.kernel) == (MONOTONIC_NS, 0, False)


@pytest.mark.parametrize("words", [[], [(socket.SOL_SOCKET, 1, b"x" * 16)], [(socket.SOL_SOCKET, 37, b"short")]])
def test_no_stamp_from_the_kernel(words: list[tuple[int, int, bytes]]) -> None:
    """Without a kernel timestamp, or with another message in its place, the time of the read is used."""
    assert read_stamp(words).kernel is False
    assert read_stamp(words).at_ns == MONOTONIC_NS


def test_a_step_between_two_reads_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of one hour between two reads does not change the interval between them."""
    first = read_stamp(ancillary(WALL_NS - 1_000_000))
    monkeypatch.setattr(time, "monotonic_ns", lambda: MONOTONIC_NS + 10_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: WALL_NS + 10_000_000 + 3600 * SECOND)
    second = read_stamp(ancillary(WALL_NS + 10_000_000 + 3600 * SECOND - 1_000_000))
    assert second.at_ns - first.at_ns == 10_000_000


@pytest.mark.parametrize(
    ("moved_ns", "stepped"), [(0, False), (900_000, False), (-900_000, False), (2_000_000, True), (-SECOND, True)]
)
def test_a_step_is_told_from_drift(moved_ns: int, *, stepped: bool) -> None:
    """A move of more than 1 ms against the monotonic clock counts as a step."""
    before = ClockPair(WALL_NS, MONOTONIC_NS)
    after = ClockPair(WALL_NS + 3 * SECOND + moved_ns, MONOTONIC_NS + 3 * SECOND)
    assert after.stepped_since(before) is stepped
