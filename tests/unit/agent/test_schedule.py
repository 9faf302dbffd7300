"""Rounds: the same instants everywhere, none twice, none in a burst."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.schedule import Schedule
from isochrone_wire.model import SECOND_US, Target
from isochrone_wire.rounds import next_round_at, phase_us, round_at, rounds_between

INSTANTS = st.integers(0, 4_000_000_000 * SECOND_US)
INTERVALS = st.integers(1, 86_400 * SECOND_US)
IDS = st.integers(1, 2**63 - 1)


def target(number: int = 7, *, every_us: int = 10 * SECOND_US) -> Target:
    return Target(id=number, name=str(number), provider="p", model="m", base_url="http://x", every_us=every_us)


@given(INSTANTS, IDS, INTERVALS)
def test_an_instant_lies_in_its_round(now: int, number: int, every_us: int) -> None:
    """The round of an instant is the last one at or before it, and the next one is an interval later."""
    here = round_at(now, target_id=number, every_us=every_us)
    assert here <= now < here + every_us
    assert here % every_us == phase_us(number, every_us)
    assert next_round_at(now, target_id=number, every_us=every_us) == here + every_us


@given(INSTANTS, st.integers(0, 50), IDS)
def test_rounds_are_counted_without_gaps(start: int, length: int, number: int) -> None:
    """Counting a span equals stepping through it, and adjoining spans add up."""
    every_us = 7
    rounds = [r for r in range(start, start + length) if r % every_us == phase_us(number, every_us)]
    assert rounds_between(start, start + length, target_id=number, every_us=every_us) == len(rounds)


def test_two_vantages_meet_in_the_same_rounds() -> None:
    """Agents started at different times probe a target at the same instants."""
    early, late = Schedule([target()], now_at=0), Schedule([target()], now_at=33 * SECOND_US)
    at = 50 * SECOND_US + 100
    early.due(at - 10 * SECOND_US)
    assert [d.round_at for d in early.due(at)] == [d.round_at for d in late.due(at)] != []


def test_a_round_comes_once() -> None:
    """Asking again within a round gives nothing."""
    schedule = Schedule([target()], now_at=0)
    at = schedule.next_at() or 0
    assert len(schedule.due(at)) == 1
    assert schedule.due(at + 1) == []
    assert schedule.next_at() == at + 10 * SECOND_US


def test_missed_rounds_are_counted_not_replayed() -> None:
    """After an hour asleep there is one round to probe at most, and the others are counted."""
    schedule = Schedule([target()], now_at=0)
    first_at = schedule.next_at() or 0
    assert len(schedule.due(first_at + 360 * 10 * SECOND_US)) == 1
    assert schedule.missed == 360


def test_a_round_much_too_late_is_missed() -> None:
    """A round found later than a quarter of its interval would be no pair to anyone's."""
    schedule = Schedule([target()], now_at=0)
    assert schedule.due((schedule.next_at() or 0) + 3 * SECOND_US) == []
    assert schedule.missed == 1


def test_a_clock_set_back_realigns() -> None:
    """After a step back by an hour the next round is at most an interval away."""
    schedule = Schedule([target()], now_at=7200 * SECOND_US)
    now = 3600 * SECOND_US
    assert schedule.due(now) == []
    assert now < (schedule.next_at() or 0) <= now + 10 * SECOND_US


def test_targets_spread_over_the_interval() -> None:
    """A hundred targets do not arrive together: no tenth of the interval holds more than a quarter of them."""
    from isochrone_wire.identity import stable_id  # only this law needs real ids

    phases = [phase_us(stable_id("target", str(n)), 60 * SECOND_US) // (6 * SECOND_US) for n in range(100)]
    assert max(phases.count(tenth) for tenth in range(10)) <= 25


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_next_instant_is_the_earliest(count: int) -> None:
    """`next_at` is when the first of all targets is due, and nothing without targets."""
    targets = [target(n + 1, every_us=(n + 1) * SECOND_US) for n in range(count)]
    schedule = Schedule(targets, now_at=0)
    expected = min((next_round_at(0, target_id=t.id, every_us=t.every_us) for t in targets), default=None)
    assert schedule.next_at() == expected
