"""The schedule: the same rounds on all vantages, none twice, none bunched."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.plan.schedule import (
    MAX_GRACE_US,
    MAX_JITTER_US,
    Schedule,
    ScheduledRound,
    Timing,
    next_rounds,
    timings,
)
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Route, Target, Workload
from isochrone_wire.rounds import next_round_at, phase_ids, phase_us, round_at, rounds_between
from isochrone_wire.stable_ids import stable_id

INSTANTS = st.integers(0, 4_000_000_000 * SECOND_US)
INTERVALS = st.integers(1, 86_400 * SECOND_US)
IDS = st.integers(1, 2**63 - 1)


SPREADS = st.integers(0, 9 * SECOND_US)
VANTAGES = st.sampled_from(["sg-1", "us-1", "eu-1", ""])


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


def timing(of: Target, vantage: str = "") -> Timing:
    [only] = timings([of], vantage=vantage, routes=())
    return only


def due(schedule: Schedule, now: int, *, stepped_us: int = 0) -> list[ScheduledRound]:
    """Return what is due; the wall clock has been set by `stepped_us` so far."""
    return schedule.due(now, uptime_us=now - stepped_us)


def route(*members: Target) -> Route:
    return Route(name="r", members=tuple(one.name for one in members))


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
    """Agents started at any time probe at the same instants, once; after a sleep one is due, others are missed."""
    early, late = Schedule([target()], now_at=0), Schedule([target()], now_at=33 * SECOND_US)
    at = timing(target()).latest(50 * SECOND_US).begins_at + 100
    due(early, at - 10 * SECOND_US)
    assert [d.round_at for d in due(early, at)] == [d.round_at for d in due(late, at)] != []
    schedule = Schedule([target()], now_at=0)
    at = schedule.next_at() or 0
    [first] = due(schedule, at)
    assert due(schedule, at + 1) == []
    assert schedule.next_at() == timing(target()).after(first.round_at).begins_at
    first = next(timing(target()).coming(0))
    last = timing(target()).round(first.round_at + 360 * 10 * SECOND_US)
    schedule = Schedule([target()], now_at=0)
    assert due(schedule, last.begins_at) == [last]
    assert schedule.missed == 360


def test_a_round_much_too_late_is_missed() -> None:
    """A round later than a quarter of its interval is missed; after a step back the next one is an interval away."""
    schedule = Schedule([target()], now_at=0)
    assert due(schedule, (schedule.next_at() or 0) + 3 * SECOND_US) == []
    assert schedule.missed == 1
    schedule = Schedule([target()], now_at=7200 * SECOND_US)
    now = 3600 * SECOND_US
    assert due(schedule, now) == []
    assert now < (schedule.next_at() or 0) <= now + 11 * SECOND_US


def test_targets_spread_over_the_interval() -> None:
    """No tenth of the interval has more than a quarter of a hundred targets."""
    phases = [phase_us(stable_id("target", str(n)), 60 * SECOND_US) // (6 * SECOND_US) for n in range(100)]
    assert max(phases.count(tenth) for tenth in range(10)) <= 25


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_next_instant_is_the_earliest(count: int) -> None:
    """`next_at` is the earliest start of all targets, and `None` without targets."""
    targets = [target(n + 1, every_us=(n + 1) * SECOND_US) for n in range(count)]
    schedule = Schedule(targets, now_at=0)
    expected = min((next(timing(one).coming(0)).begins_at for one in targets), default=None)
    assert schedule.next_at() == expected


@given(INSTANTS, IDS, VANTAGES, st.integers(200_000, HOUR_US), st.integers(0, HOUR_US))
def test_a_round_starts_within_itself(at: int, number: int, vantage: str, every_us: int, spread_us: int) -> None:
    """The start lies in the round, and without a spread nine tenths of an interval after the previous one."""
    of = timing(target(number, every_us=every_us, spread_us=min(spread_us, every_us - 1)), vantage)
    here = of.latest(at)
    assert here == of.round(here.round_at)
    assert here.round_at <= here.begins_at < here.round_at + every_us
    assert of.after(here.round_at).begins_at - here.begins_at >= (every_us - of.spread_us) * 9 // 10 - 1
    assert here.begins_at <= at < of.after(here.round_at).begins_at


def test_nothing_aliases_with_the_minute() -> None:
    """Rounds of a minute spread over it irregularly, longer ones over five minutes, and by turns without a spread."""
    of = timing(target(stable_id("target", "x"), every_us=MINUTE_US))
    starts = [of.round(of.phase_id % MINUTE_US + nth * MINUTE_US).begins_at for nth in range(600)]
    tenths = [start % MINUTE_US * 10 // MINUTE_US for start in starts]
    assert all(45 <= tenths.count(tenth) <= 75 for tenth in range(10))
    assert len({b - a for a, b in pairwise(starts)}) > 500
    of = timing(target(every_us=HOUR_US))
    assert max(of.offset_us(nth * HOUR_US) for nth in range(100)) < of.jitter_us == MAX_JITTER_US
    names = [f"v{n}" for n in range(20)]
    fleet = [timing(target(spread_us=9 * SECOND_US), name) for name in names]
    orders = [sorted(fleet, key=lambda one: one.offset_us(at)) for at in range(0, 400 * SECOND_US, 10 * SECOND_US)]
    assert {order[0].vantage for order in orders} > {order[0].vantage for order in orders[:1]}
    assert all(sum(a is not b for a, b in zip(*two, strict=True)) >= 10 for two in pairwise(orders))
    assert len({timing(target(), name).offset_us(0) for name in names}) == 1


def test_each_of_two_vantages_is_first_equally_often() -> None:
    """With a spread no vantage is always the one that meets the cold cache."""
    one, other = (timing(target(spread_us=5 * SECOND_US), name) for name in ("sg-1", "us-1"))
    rounds = range(0, 20_000 * SECOND_US, 10 * SECOND_US)
    assert 0.45 < sum(one.offset_us(at) < other.offset_us(at) for at in rounds) / len(rounds) < 0.55


@given(IDS, IDS, VANTAGES, SPREADS, INSTANTS)
def test_members_of_a_route_start_together(number: int, another: int, vantage: str, spread_us: int, now: int) -> None:
    """Two members of a route have the same rounds, which start at the same instant, whatever their own spreads."""
    members = [target(number), target(another, spread_us=spread_us)]
    one, other = timings(members, vantage=vantage, routes=[route(*members)])
    mine, theirs = one.latest(now), other.latest(now)
    assert (mine.round_at, mine.begins_at) == (theirs.round_at, theirs.begins_at)


def test_intervals_that_are_multiples_coincide() -> None:
    """A member that is probed every 30 s meets the one of every 10 s in each of its rounds."""
    members = [target(7), target(11, every_us=30 * SECOND_US)]
    often, seldom = timings(members, vantage="sg-1", routes=[route(*members)])
    for due in (seldom.latest(nth * 30 * SECOND_US) for nth in range(100)):
        assert often.round(due.round_at).begins_at == due.begins_at == often.latest(due.begins_at).begins_at


def test_simultaneous_members_take_turns() -> None:
    """The order of the members of a round is another one in each, and the same on every start."""
    members = [target(n + 1) for n in range(4)]
    schedule, orders = Schedule(members, now_at=0, routes=[route(*members)]), []
    for _ in range(50):
        begun = due(schedule, schedule.next_at() or 0)
        assert len(begun) == len(members)
        orders.append(tuple(one.target.id for one in begun))
    assert len(set(orders)) > 12
    coming = next_rounds(members, now_at=0, vantage="", count=200, routes=[route(*members)])
    assert [due.target.id for due in coming] == [one for order in orders for one in order]


def test_a_plan_without_routes_keeps_its_rounds() -> None:
    """A target of no route keeps the phase of its id, and so does the member of a route with the smallest."""
    members = [target(n) for n in (30, 20, 40, 50, 60)]
    first, second, third = route(*members[:2]), route(*members[1:3]), route(members[3], target(99))
    assert phase_ids(members, ()) == {n: n for n in (20, 30, 40, 50, 60)}
    assert phase_ids(members, [third, first, second]) == {30: 20, 20: 20, 40: 20, 50: 50, 60: 60}


def test_a_burst_is_not_probed_with_others() -> None:
    """A burst takes all slots of the agent, so that a member with one keeps its own rounds."""
    burst = replace(target(20), workload=Workload(concurrency=4))
    members = [target(30), burst, target(40)]
    assert phase_ids(members, [route(*members)]) == {30: 30, 20: 20, 40: 30}
    assert phase_ids([burst], [route(burst)]) == {20: 20}


@given(IDS, VANTAGES, SPREADS, st.lists(st.integers(0, 35 * SECOND_US), max_size=40), INSTANTS)
def test_each_round_lived_through_is_due_or_missed_once(
    number: int, vantage: str, spread_us: int, steps_us: list[int], start: int
) -> None:
    """However irregularly the clock is read, every round begins once, within its grace, or is missed once."""
    of = target(number, spread_us=spread_us)
    schedule, now, begun = Schedule([of], now_at=start, vantage=vantage), start, []
    for step in steps_us:
        now += step
        for one in due(schedule, now):
            begun.append(one.round_at)
            assert one == timing(of, vantage).round(one.round_at)
            assert 0 <= now - one.begins_at <= min(of.every_us // 4, MAX_GRACE_US)
    first_at, last_at = (timing(of, vantage).latest(at).round_at for at in (start, now))
    assert len(begun) == len(set(begun))
    assert len(begun) + schedule.missed == (last_at - first_at) // of.every_us


@given(IDS, VANTAGES, SPREADS, SPREADS, st.lists(st.integers(0, 10 * SECOND_US), max_size=20))
def test_a_new_plan_begins_no_round_again(
    number: int, vantage: str, before_us: int, after_us: int, steps_us: list[int]
) -> None:
    """A started round is not due again when a new plan with another spread, or with a route, is applied."""
    old = Schedule([target(number, spread_us=before_us)], now_at=0, vantage=vantage)
    now, begun = 0, []
    for step in steps_us:
        now += step
        begun += [one.round_at for one in due(old, now)]
    of = target(number, spread_us=after_us)
    new = Schedule([of], now_at=now, vantage=vantage, begun=old.begun, routes=[route(of)] if after_us % 2 else [])
    for step in steps_us:
        now += step
        begun += [one.round_at for one in due(new, now)]
    assert len(begun) == len(set(begun))


@pytest.mark.parametrize("spread_us", [0, 9 * SECOND_US])
@pytest.mark.parametrize("slept_us", [0, HOUR_US])
@pytest.mark.parametrize("step_us", [HOUR_US, -HOUR_US, 3 * SECOND_US, -3 * SECOND_US, -25 * SECOND_US, 567 * DAY_US])
def test_rounds_realign_after_a_step(step_us: int, slept_us: int, spread_us: int) -> None:
    """After a step the next round is the fleet's; rounds passed by a step are not missed, those of a suspension are."""
    of = target(spread_us=spread_us)
    schedule = Schedule([of], now_at=0, vantage="sg-1")
    now = (schedule.next_at() or 0) + 2 * HOUR_US
    due(schedule, now)
    missed_before = schedule.missed
    now += SECOND_US + slept_us + step_us
    due(schedule, now, stepped_us=step_us)
    next_at = schedule.next_at() or 0
    assert now < next_at <= now + of.every_us * 1.1 + (3 * SECOND_US if step_us == -3 * SECOND_US else 0)
    assert timing(of, "sg-1").latest(next_at).begins_at == next_at
    assert schedule.missed - missed_before == pytest.approx(slept_us // of.every_us, abs=1)
    assert [one.begins_at for one in due(schedule, next_at, stepped_us=step_us)] == [next_at]


def test_a_clock_that_came_back_leaves_nobody_waiting() -> None:
    """A plan applied after a step back by an hour does not wait for that hour."""
    of = target(spread_us=9 * SECOND_US)
    old = Schedule([of], now_at=2 * HOUR_US, vantage="sg-1")
    due(old, 2 * HOUR_US + 20 * SECOND_US)
    new = Schedule([of], now_at=HOUR_US, vantage="sg-1", begun=old.begun)
    assert (new.next_at() or 0) <= HOUR_US + of.every_us * 1.1
