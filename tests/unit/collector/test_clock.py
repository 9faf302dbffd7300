"""The clock guard: which clock is right, when jobs may run, and what the instant is meanwhile."""

from dataclasses import dataclass
from typing import Any

import pytest

from isochrone_collector.clock import AGREE_US, CONFIRM_US, HEARD_US, ClockGuard, Verdict, judge
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

NOW_AT = 1_795_219_200_000_000
FAR_US = 36 * DAY_US


@dataclass(slots=True)
class Machine:
    """A machine whose wall clock can be set."""

    true_at: int = NOW_AT
    ahead_us: int = 0

    def guard(self, **more: Any) -> ClockGuard:
        return ClockGuard(wall=self.wall, elapsed=self.elapsed, **more)

    def wall(self) -> int:
        return self.true_at + self.ahead_us

    def elapsed(self) -> int:
        return self.true_at - NOW_AT + 77

    def hear(self, guard: ClockGuard, *ahead_us: int) -> None:
        """Let vantages push whose clocks are ahead by this much."""
        for vantage_id, one_us in enumerate(ahead_us):
            guard.hear_vantage(vantage_id, self.true_at + one_us)


@pytest.mark.parametrize(
    ("clocks", "correction_us", "reason"),
    [
        ({}, 0, ""),
        ({"step_us": 4 * MINUTE_US, "database_us": -4 * MINUTE_US}, 0, ""),
        ({"step_us": -FAR_US}, -FAR_US, "the clock was set 36 d ahead while running"),
        ({"step_us": FAR_US}, FAR_US, "the clock was set 36 d behind while running"),
        ({"database_us": -FAR_US}, -FAR_US, "the clock is 36 d ahead of the database"),
        ({"vantages_us": [-FAR_US, -FAR_US]}, -FAR_US, "the clock is 36 d ahead of 2 vantages"),
        ({"vantages_us": [-FAR_US, 0]}, 0, ""),
        ({"vantages_us": [-FAR_US, FAR_US, 0]}, 0, ""),
        ({"vantages_us": [-60 * MINUTE_US]}, 0, ""),
        ({"vantages_us": [-2 * DAY_US]}, 0, "the clock is 2 d ahead of the only vantage"),
        (
            {"vantages_us": [-2 * DAY_US], "step_us": -2 * DAY_US},
            -2 * DAY_US,
            "the clock is 2 d ahead of the only vantage",
        ),
        # Confirmed by vantages, whatever else disagrees.
        ({"vantages_us": [SECOND_US], "step_us": -FAR_US, "database_us": DAY_US}, 0, ""),
        # The database is exact where vantages only agree roughly.
        (
            {"vantages_us": [-FAR_US, -FAR_US + MINUTE_US], "database_us": -FAR_US + 9},
            -FAR_US + 9,
            "the clock is 35 d ahead of 2 vantages",
        ),
    ],
)
def test_which_clock_is_right(clocks: dict[str, Any], correction_us: int, reason: str) -> None:
    """Vantages outvote the machine; without them, every contradiction pauses."""
    given: dict[str, Any] = {"step_us": 0, "database_us": None, "vantages_us": []} | clocks
    assert judge(**given) == Verdict(correction_us=correction_us, reason=reason)


def test_the_estimate_never_jumps_with_the_wall_clock() -> None:
    """The very next reading after a step of 36 days continues the clock, and returning to it restores the trust."""
    machine = Machine()
    guard = machine.guard()
    machine.hear(guard, 0, 0)
    machine.ahead_us = FAR_US
    machine.true_at += SECOND_US
    assert guard.now_at() == NOW_AT + SECOND_US
    assert guard.reason == "the clock is 36 d ahead of 2 vantages"
    machine.ahead_us = 0
    assert (guard.now_at(), guard.reason) == (NOW_AT + SECOND_US, "")


def test_a_collector_that_starts_ahead_follows_its_vantages() -> None:
    """Two vantages correct a clock that was wrong from the start, and go on doing so while they are silent."""
    machine = Machine(ahead_us=FAR_US)
    guard = machine.guard()
    machine.hear(guard, 0, 0)
    guard.update()
    assert guard.now_at() == NOW_AT
    machine.true_at += HEARD_US + 1
    guard.update()
    assert (guard.now_at(), bool(guard.reason)) == (machine.true_at, True)
    machine.hear(guard, FAR_US)
    guard.update()
    assert (guard.now_at(), guard.reason) == (machine.wall(), "")


def test_only_vantages_restore_the_trust_in_a_clock_that_was_set() -> None:
    """The database may be on the same machine: that it agrees with a clock that was set proves nothing."""
    machine = Machine()
    guard = machine.guard()
    machine.ahead_us = FAR_US
    for _ in range(100):
        machine.true_at += MINUTE_US
        guard.hear_database(0)
        guard.update()
        assert (guard.now_at(), bool(guard.reason)) == (machine.true_at, True)
    machine.hear(guard, FAR_US)
    guard.update()
    assert (guard.now_at(), guard.reason) == (machine.wall(), "")


def test_a_clock_that_drifts_is_trusted() -> None:
    """Small corrections by NTP add up to hours without a contradiction."""
    machine = Machine()
    guard = machine.guard()
    for _ in range(100):
        machine.true_at += MINUTE_US
        machine.ahead_us += 2 * MINUTE_US
        guard.hear_database(0)
        assert guard.update() == Verdict()


def test_after_a_long_gap_a_vantage_confirms_the_clock() -> None:
    """After a long gap a vantage confirms the clock, for a while; an instant of 0 is no clock."""
    machine = Machine()
    for heard in (True, False):
        guard = machine.guard(newest_receipt_at=machine.true_at - FAR_US)
        assert guard.reason == "no vantage has confirmed the clock, which is 36 d from the newest push"
        assert guard.now_at() == machine.true_at
        if heard:
            machine.hear(guard, 0)
        else:
            machine.true_at += CONFIRM_US
        assert guard.update() == Verdict()
    machine = Machine()
    guard = machine.guard()
    guard.hear_vantage(1, 0)
    assert guard.update() == Verdict()


def test_vantages_do_not_move_the_clock_of_credentials() -> None:
    """Vantages outvote the wall clock for samples, and the database's clock is the one by which credentials expire."""
    machine = Machine(ahead_us=FAR_US)
    guard = machine.guard()
    assert guard.database_at() == machine.wall()
    guard.hear_database(-FAR_US)
    machine.hear(guard, -2 * FAR_US, -2 * FAR_US)
    guard.update()
    machine.true_at += SECOND_US
    assert (guard.now_at(), guard.database_at()) == (machine.true_at - 2 * FAR_US, machine.true_at)


@pytest.mark.parametrize(
    ("ahead_us", "off_us"), [(MINUTE_US, 0), (-4 * MINUTE_US, 0), (10 * MINUTE_US, 10 * MINUTE_US)]
)
def test_collectors_share_the_clock_of_their_database(ahead_us: int, off_us: int) -> None:
    """Whatever their own clocks are, unless vantages confirm a clock that the database contradicts."""
    machine = Machine(ahead_us=ahead_us)
    guard = machine.guard()
    guard.hear_database(-ahead_us)
    machine.hear(guard, ahead_us, ahead_us)
    guard.update()
    machine.true_at += SECOND_US
    assert guard.shared_at() == machine.true_at + off_us


def test_a_clock_that_is_set_while_it_is_read_gives_the_true_instant() -> None:
    """The correction fits the wall clock that was read, even if it was set between the reading and the judgement."""
    machine = Machine()
    ahead_us = iter([0, 0, 2 * AGREE_US, FAR_US])  # two readings by the guard itself
    guard = ClockGuard(wall=lambda: machine.true_at + next(ahead_us), elapsed=machine.elapsed)
    assert guard.now_at() == machine.true_at
