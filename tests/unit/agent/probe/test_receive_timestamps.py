"""Receive timestamps: the kernel's word on the wall clock, told on the monotonic one, whatever the wall clock does."""

import socket
import struct
import time

import pytest

from isochrone_agent.clock import ClockPair
from isochrone_agent.probe.receive_timestamps import read_stamp

SECOND = 1_000_000_000
MONOTONIC_NS = 5_000 * SECOND
WALL_NS = 1_800_000_000 * SECOND


def ancillary(arrival_ns: int) -> list[tuple[int, int, bytes]]:
    """What the kernel sends along for bytes that arrived then: three timespecs, the first one the software's."""
    return [(socket.SOL_SOCKET, 37, struct.pack("@6q", *divmod(arrival_ns, SECOND), 0, 0, 0, 0))]


@pytest.fixture(autouse=True)
def _clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: MONOTONIC_NS)
    monkeypatch.setattr(time, "time_ns", lambda: WALL_NS)


def test_a_late_read_keeps_its_arrival() -> None:
    """Bytes read 30 ms after they arrived are stamped with their arrival, and the wait is known."""
    stamp = read_stamp(ancillary(WALL_NS - 30_000_000))
    assert (stamp.at_ns, stamp.waited_ns, stamp.kernel) == (MONOTONIC_NS - 30_000_000, 30_000_000, True)


@pytest.mark.parametrize(
    "arrival_ns",
    [WALL_NS + 1, WALL_NS + 3600 * SECOND, WALL_NS - 3600 * SECOND],
    ids=["ahead", "set-back", "set-forward"],
)
def test_a_stepped_wall_clock_is_not_believed(arrival_ns: int) -> None:
    """When the wall clock was set between arrival and read, the read's own instant is the stamp."""
    stamp = read_stamp(ancillary(arrival_ns))
    assert (stamp.at_ns, stamp.waited_ns, stamp.kernel) == (MONOTONIC_NS, 0, False)


@pytest.mark.parametrize("words", [[], [(socket.SOL_SOCKET, 1, b"x" * 16)], [(socket.SOL_SOCKET, 37, b"short")]])
def test_no_stamp_from_the_kernel(words: list[tuple[int, int, bytes]]) -> None:
    """Without a timestamp, or with something else in its place, the read's own instant is the stamp."""
    assert read_stamp(words).kernel is False
    assert read_stamp(words).at_ns == MONOTONIC_NS


def test_a_step_between_two_reads_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock set forward by an hour between two reads leaves the interval between them as it was."""
    first = read_stamp(ancillary(WALL_NS - 1_000_000))
    monkeypatch.setattr(time, "monotonic_ns", lambda: MONOTONIC_NS + 10_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: WALL_NS + 10_000_000 + 3600 * SECOND)
    second = read_stamp(ancillary(WALL_NS + 10_000_000 + 3600 * SECOND - 1_000_000))
    assert second.at_ns - first.at_ns == 10_000_000


@pytest.mark.parametrize(
    ("moved_ns", "stepped"), [(0, False), (900_000, False), (-900_000, False), (2_000_000, True), (-SECOND, True)]
)
def test_a_step_is_told_from_drift(moved_ns: int, *, stepped: bool) -> None:
    """The wall clock stepped when it moved by more than a millisecond against the monotonic one."""
    before = ClockPair(WALL_NS, MONOTONIC_NS)
    after = ClockPair(WALL_NS + 3 * SECOND + moved_ns, MONOTONIC_NS + 3 * SECOND)
    assert after.stepped_since(before) is stepped
