"""The schedule: the same rounds on all vantages, none twice, none bunched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.plan.schedule import MAX_GRACE_US, Schedule, stagger_us
from isochrone_wire.model import SECOND_US, Target
from isochrone_wire.rounds import next_round_at, phase_us, round_at, rounds_between

INSTANTS = st.integers(0, 4_000_000_000 * SECOND_US)
INTERVALS = st.integers(1, 86_400 * SECOND_US)
IDS = st.integers(1, 2**63 - 1)


SPREADS = st.integers(0, 9 * SECOND_US)
VANTAGES = st.sampled_from(["sg-1", "us-1", "eu-1", ""])
HOUR_US = 3600 * SECOND_US


def target(number: int = 7, *, every_us: int = 10 * SECOND_US, spread_us: int = 0) -> Target:
    return Target(
        id=number,
        name=str(number),
        provider="p",
        model="m",
        base_url="http://x",
        every_us=every_us,
        spread_us=spread_us,
    )


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
    """A round is returned once."""
    schedule = Schedule([target()], now_at=0)
    at = schedule.next_at() or 0
    assert len(schedule.due(at)) == 1
    assert schedule.due(at + 1) == []
    assert schedule.next_at() == at + 10 * SECOND_US


def test_missed_rounds_are_counted_not_replayed() -> None:
    """After an hour of sleep at most one round is due, and the others count as missed."""
    schedule = Schedule([target()], now_at=0)
    first_at = schedule.next_at() or 0
    assert len(schedule.due(first_at + 360 * 10 * SECOND_US)) == 1
    assert schedule.missed == 360


def test_a_round_much_too_late_is_missed() -> None:
    """A round later than a quarter of its interval could not be paired, and is missed."""
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
    """No tenth of the interval has more than a quarter of a hundred targets."""
    from isochrone_wire.stable_ids import stable_id  # only this law needs real ids

    phases = [phase_us(stable_id("target", str(n)), 60 * SECOND_US) // (6 * SECOND_US) for n in range(100)]
    assert max(phases.count(tenth) for tenth in range(10)) <= 25


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_next_instant_is_the_earliest(count: int) -> None:
    """`next_at` is the earliest start of all targets, and `None` without targets."""
    targets = [target(n + 1, every_us=(n + 1) * SECOND_US) for n in range(count)]
    schedule = Schedule(targets, now_at=0)
    expected = min((next_round_at(0, target_id=t.id, every_us=t.every_us) for t in targets), default=None)
    assert schedule.next_at() == expected


@given(IDS, VANTAGES, st.integers(1, HOUR_US))
def test_a_vantage_has_its_place_in_the_spread(number: int, vantage: str, spread_us: int) -> None:
    """The offset of a vantage depends only on its name and the target, and lies within the spread."""
    of = target(number, every_us=2 * HOUR_US, spread_us=spread_us)
    assert stagger_us(of, vantage) == stagger_us(of, vantage) < spread_us
    assert stagger_us(of, vantage) >= 0


def test_a_spread_staggers_the_fleet() -> None:
    """Twenty vantages do not meet in one tenth of the spread; without a spread all begin together."""
    names = [f"v{n}" for n in range(20)]
    places = [stagger_us(target(spread_us=10 * SECOND_US), name) // SECOND_US for name in names]
    assert max(places.count(tenth) for tenth in range(10)) <= 8
    assert {stagger_us(target(), name) for name in names} == {0}


@given(IDS, VANTAGES, SPREADS, st.lists(st.integers(0, 35 * SECOND_US), max_size=40), INSTANTS)
def test_each_round_lived_through_is_due_or_missed_once(
    number: int, vantage: str, spread_us: int, steps_us: list[int], start: int
) -> None:
    """However irregularly the clock is looked at: every round begins once or is missed once, and none is begun early,
    or later than its grace.
    """
    of = target(number, spread_us=spread_us)
    stagger = stagger_us(of, vantage)
    schedule, now, begun = Schedule([of], now_at=start, vantage=vantage), start, []
    for step in steps_us:
        now += step
        for due in schedule.due(now):
            begun.append(due.round_at)
            assert due.begins_at == due.round_at + stagger
            assert 0 <= now - due.begins_at <= min(of.every_us // 4, MAX_GRACE_US)
    lived = rounds_between(start - stagger + 1, now - stagger + 1, target_id=number, every_us=of.every_us)
    assert len(begun) == len(set(begun))
    assert len(begun) + schedule.missed == lived


@given(IDS, VANTAGES, SPREADS, SPREADS, st.lists(st.integers(0, 10 * SECOND_US), max_size=20))
def test_a_new_plan_begins_no_round_again(
    number: int, vantage: str, before_us: int, after_us: int, steps_us: list[int]
) -> None:
    """A started round is not due again when a new plan with another spread is applied."""
    old = Schedule([target(number, spread_us=before_us)], now_at=0, vantage=vantage)
    now, begun = 0, []
    for step in steps_us:
        now += step
        begun += [due.round_at for due in old.due(now)]
    new = Schedule([target(number, spread_us=after_us)], now_at=now, vantage=vantage, begun=old.begun)
    for step in steps_us:
        now += step
        begun += [due.round_at for due in new.due(now)]
    assert len(begun) == len(set(begun))


@pytest.mark.parametrize("spread_us", [0, 9 * SECOND_US])
@pytest.mark.parametrize(
    ("step_us", "missed"),
    [(HOUR_US, 360), (-HOUR_US, 0), (3 * SECOND_US, 0), (-3 * SECOND_US, 0), (-25 * SECOND_US, 0)],
)
def test_rounds_realign_after_a_step(step_us: int, missed: int, spread_us: int) -> None:
    """After a step of the wall clock the next round is again one of the fleet's, within an interval and what a small
    step back takes; rounds that the step leapt over are missed.
    """
    of = target(spread_us=spread_us)
    schedule = Schedule([of], now_at=0, vantage="sg-1")
    now = (schedule.next_at() or 0) + 2 * HOUR_US
    schedule.due(now)
    missed_before = schedule.missed
    now += SECOND_US + step_us
    schedule.due(now)
    next_at = schedule.next_at() or 0
    assert now < next_at <= now + of.every_us + (3 * SECOND_US if step_us == -3 * SECOND_US else 0)
    assert (next_at - stagger_us(of, "sg-1")) % of.every_us == phase_us(of.id, of.every_us)
    assert schedule.missed - missed_before == pytest.approx(missed, abs=1)
    assert [due.begins_at for due in schedule.due(next_at)] == [next_at]


def test_a_clock_that_came_back_leaves_nobody_waiting() -> None:
    """A plan applied after a step back by an hour does not wait for that hour."""
    of = target(spread_us=9 * SECOND_US)
    old = Schedule([of], now_at=2 * HOUR_US, vantage="sg-1")
    old.due(2 * HOUR_US + 20 * SECOND_US)
    new = Schedule([of], now_at=HOUR_US, vantage="sg-1", begun=old.begun)
    assert (new.next_at() or 0) <= HOUR_US + of.every_us
