"""Laws of decisions on any inputs, and over simulated days."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import combinations
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.routing import serialization
from isochrone_collector.routing.decision import Decision, decide
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs, JointRounds
from isochrone_collector.routing.objective import lead
from isochrone_collector.routing.present_levels import followed
from isochrone_collector.routing.switch import State
from isochrone_collector.routing.table import build_table, explain_steps, replay
from isochrone_wire.model import SECOND_US, Route, Slo
from isochrone_wire.routes import ChangeKind, RouteState, RouteTable
from testdata.routing_worlds import (
    AT,
    RULES,
    SWITCHES,
    DecisionRecord,
    RoutingSimulation,
    comparison,
    evidence,
    inputs_for,
    joint_rounds,
    plan_of,
    target,
    target_named,
)

NAMES = ("a", "b", "c")
ROUNDING = 1e-5


class Course(list[Inputs]):
    """Moments in order, with a short representation."""

    def __repr__(self) -> str:
        """Return the members of each epoch, and the suspect vantages."""
        return "; ".join(f"{(one.at - AT) / RULES.epoch_us:.1f}: {one.route.members}, {one.suspects}" for one in self)


@st.composite
def members(draw: st.DrawFn, name: str, at: int) -> Evidence:
    n = draw(st.sampled_from([0, 3, 40, 100]))
    found = evidence(
        name,
        draw(st.integers(50, 2000)),
        ok=n - draw(st.integers(0, n // 3)),
        n=n,
        newest_at=at - draw(st.sampled_from([0, 0, 0, 4])) * RULES.epoch_us,
    )
    dead = draw(st.integers(0, 9)) == 0
    return replace(found, failing_vantages=2, failing_here=2, fails_here=True) if dead else found


@st.composite
def pairs(draw: st.DrawFn, left: str, right: str) -> Comparison:
    low = draw(st.integers(-300, 300))
    return comparison(left, right, low, low + draw(st.integers(0, 200)))


@st.composite
def rounds(draw: st.DrawFn, names: Sequence[str], at: int) -> JointRounds:
    """Six to twelve rounds before `at`, in which a member may jump to another level."""
    count = draw(st.integers(6, 12))
    levels = [[draw(st.sampled_from([200.0, 350.0, 700.0])) for _ in range(2)] for _ in names]
    found = joint_rounds(
        **{
            name: [one] * (count // 2) + [two] * (count - count // 2)
            for name, (one, two) in zip(names, levels, strict=True)
        }
    )
    return replace(found, round_at=tuple(instant + at - AT for instant in found.round_at))


@st.composite
def moments(draw: st.DrawFn, at: int, version: int) -> Inputs:
    names = draw(st.sampled_from([NAMES, NAMES, NAMES[:2], NAMES[1:], NAMES[:1]]))
    found = inputs_for(
        *[draw(members(name, at)) for name in names],
        compared=tuple(draw(pairs(*two)) for two in combinations(names, 2)),
        joint=draw(rounds(names, at)),
        route=Route(name="r", members=names, slo=Slo(ttft_p95_us=1_500_000, min_success=0.5)),
        targets={name: target_named(name, paused=draw(st.integers(0, 19)) == 0) for name in names},
        at=at,
    )
    return replace(found, plan_version=version, suspects=draw(st.sampled_from([0, 0, 0, 0, 3])))


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """A dozen moments, some in one epoch and some far apart; the plan may change."""
    at, version, found = AT, 1, Course()
    for _ in range(12):
        at += draw(st.sampled_from([1, RULES.epoch_us // 3, RULES.epoch_us, RULES.epoch_us, 4 * RULES.epoch_us]))
        version += draw(st.integers(0, 5)) == 0
        found.append(draw(moments(at, version)))
    return found


def played(course: Course) -> list[tuple[Inputs, State, Decision]]:
    state, found = State(), []
    for inputs in course:
        decision = decide(inputs, state)
        found.append((inputs, state, decision))
        state = decision.state
    return found


@settings(max_examples=25, deadline=None)
@given(courses())
def test_weights_add_up_and_entries_stand_in_rank_order(course: Course) -> None:
    """Weights of a ranking add up to 1; ranks ascend from 1; no member is both ranked and excluded, or missing."""
    for inputs, _, decision in played(course):
        ranks = [entry.rank for entry in decision.entries]
        assert ranks == sorted(ranks)
        assert ranks[:1] in ([], [1])
        known = {entry.target for entry in decision.entries}
        left_out = {one.target for one in decision.excluded}
        assert not known & left_out
        if decision.route_state is RouteState.INSUFFICIENT_DATA:
            assert (known, decision.state.weights) == (set(), {})
        else:
            assert abs(sum(entry.weight for entry in decision.entries) - 1) < 1e-9
            assert decision.entries[0].rank == 1
        assert known | left_out == {one.name for one in inputs.targets}


def leads(inputs: Inputs, before: State, decision: Decision) -> bool:
    """Return whether the first choice leads another member by enough."""
    _, present = followed(before.levels, inputs)
    first, *others = [entry.target for entry in decision.entries]
    found = [lead(inputs, present, first, target) for target in others]
    return any(one is not None and one.is_enough for one in found)


@settings(max_examples=25, deadline=None)
@given(courses())
def test_weights_move_a_step_an_epoch(course: Course) -> None:
    """Within an epoch no weight moves by more than 25 points unless members fail, left, or are clearly slower."""
    begun: dict[str, float] = {}
    epoch = 0
    for inputs, before, decision in played(course):
        now = inputs.at // RULES.epoch_us
        if now != epoch:
            begun, epoch = dict(before.weights), now
        after = decision.state.weights
        unclear = decision.route_state in (RouteState.INSUFFICIENT_DATA, RouteState.FROZEN)
        if unclear or not begun or leads(inputs, before, decision):
            begun = dict(after)
            continue
        sound = [entry.target for entry in decision.entries if inputs.of(entry.target).failing_here == 0]
        lost = sum(weight for name, weight in begun.items() if name not in sound)
        for name in sound:
            moved = after.get(name, 0.0) - begun.get(name, 0.0)
            assert -RULES.ramp - ROUNDING <= moved <= RULES.ramp + lost + ROUNDING
        if lost:
            begun = dict(after)


@settings(max_examples=20, deadline=None)
@given(courses())
def test_a_decision_can_be_made_again_from_what_is_stored(course: Course) -> None:
    """Inputs, state and table survive serialization; a replay gives the same bytes and can be explained."""
    for generation, (inputs, before, decision) in enumerate(played(course), 1):
        stored_inputs, stored_before = serialization.dump(inputs), serialization.dump(before)
        assert serialization.load(Inputs, stored_inputs) == inputs
        assert serialization.load(State, stored_before) == before
        table = build_table(inputs, decision, generation=generation, code_version="1")
        document = serialization.dump(table)
        assert serialization.load(RouteTable, document) == table
        assert replay(document, stored_inputs, stored_before) == (document, decision)
        assert explain_steps(inputs, before, decision)[-1]


@settings(max_examples=20, deadline=None)
@given(courses(), st.permutations(NAMES))
def test_the_order_of_members_means_nothing(course: Course, order: list[str]) -> None:
    """The order of the members does not affect their ranks and weights."""

    def reordered(inputs: Inputs) -> Inputs:
        ordered = [name for name in order if name in inputs.route.members]
        return replace(
            inputs,
            route=replace(inputs.route, members=tuple(ordered)),
            targets=tuple(inputs.described(name) for name in ordered),
            evidence=tuple(inputs.of(name) for name in ordered),
            comparisons=tuple(inputs.against(*two) for two in combinations(ordered, 2)),
        )

    one, other = played(course), played(Course(reordered(inputs) for inputs in course))
    for (_, _, decision), (_, _, again) in zip(one, other, strict=True):
        assert [(e.target, e.rank, e.weight) for e in again.entries] == [
            (e.target, e.rank, e.weight) for e in decision.entries
        ]
        assert again.state == decision.state


@settings(max_examples=25, deadline=None)
@given(courses())
def test_nobody_is_switched_to_who_fails_and_nothing_gets_fresher_by_itself(course: Course) -> None:
    """The first choice fails only if all do or it was kept; the newest sample never goes back nor is ahead."""
    newest = 0
    for inputs, before, decision in played(course):
        seen = max((one.newest_at or 0 for one in inputs.evidence), default=0)
        assert decision.newest_at == max(newest, seen)
        newest = decision.newest_at
        if decision.route_state in (RouteState.INSUFFICIENT_DATA, RouteState.FROZEN):
            continue
        failing = {entry.target for entry in decision.entries if inputs.of(entry.target).fails_here}
        if decision.entries[0].target in failing and before.incumbent != decision.state.incumbent:
            assert failing == {entry.target for entry in decision.entries}


DAY = 288
WARM = 14
FOR_EVER = 99


def switches(moments: Sequence[DecisionRecord]) -> int:
    return sum(moment.switched for moment in moments)


def changes(moments: Sequence[DecisionRecord]) -> list[ChangeKind]:
    return [moment.decision.change for moment in moments if moment.decision.change is not ChangeKind.EVIDENCE]


@cache
def kept_warm(seed: int, autocorrelation: float) -> tuple[RoutingSimulation, str | None]:
    world = RoutingSimulation(seed=seed, regions=1, autocorrelation=autocorrelation)
    return world, world.run(WARM, 350, 350)[-1].first


def warm(seed: int, autocorrelation: float) -> tuple[RoutingSimulation, str | None]:
    """Return a world of two equal members that has settled, and its first choice."""
    return deepcopy(kept_warm(seed, autocorrelation))


def left_after(seed: int, slower_ms: float, *, autocorrelation: float = 0.0, patience: int) -> int:
    """Return the epochs until a first choice that became slower is replaced, `FOR_EVER` after `patience` epochs."""
    world, first = warm(seed, autocorrelation)
    medians = [350 + slower_ms * (f"p{place}/m" == first) for place in range(2)]
    for epoch in range(1, patience + 1):
        if world.run(1, *medians)[0].first != first:
            return epoch
    return FOR_EVER


@pytest.mark.parametrize(("autocorrelation", "days", "a_day", "share"), [(0.0, 1, 1.0, 0.4), (0.5, 2, 3.5, 0.0)])
def test_equal_members_are_rarely_switched(autocorrelation: float, days: int, a_day: float, share: float) -> None:
    """Of two equal members either will do: at most one switch a day; they come to share the traffic."""
    decided = [
        RoutingSimulation(seed=seed, regions=1, autocorrelation=autocorrelation).run(DAY, 350, 350)
        for seed in range(40, 40 + days)
    ]
    assert fmean(switches(day) for day in decided) <= a_day
    assert fmean(len(moment.decision.state.weights) == 2 for day in decided for moment in day) > share


@pytest.mark.parametrize(("slower_ms", "epochs", "share"), [(100, 24, 0.5), (150, 6, 0.5), (400, 2, 0.9)])
def test_a_member_that_became_slower_is_left(slower_ms: float, epochs: int, share: float) -> None:
    """A first choice slower by 100, 150 or 400 ms is left within 24, 6 or 2 epochs in most of the worlds."""
    worlds = 40
    left = 0
    for seed in range(worlds):
        left += left_after(seed, slower_ms, patience=epochs) <= epochs
        # The other worlds, each of which takes a while, do not change the answer.
        if left > worlds / 2 and left >= share * worlds:
            return
    pytest.fail(f"only {left} of {worlds} worlds left a member that is {slower_ms} ms slower within {epochs} epochs")


def test_likeness_of_rounds_does_not_hide_a_large_shift() -> None:
    """With autocorrelated rounds, a step of 400 ms is still a switch within two epochs."""
    assert median(left_after(seed, 400, autocorrelation=0.3, patience=2) for seed in range(15)) <= 2


def test_a_dead_member_is_left_within_one_epoch() -> None:
    """Three failures in a row from two vantages take half an epoch; all weight goes at once, and none comes back."""
    world = RoutingSimulation(seed=3)
    first = world.run(WARM, 300, 400)[-1].first
    assert first == "p0/m"
    dead = world.run(1, 300, 400, fails=lambda member, _: member == 0, decisions_per_epoch=6)
    hard = next(moment for moment in dead if moment.switched)
    assert hard.decision.change is ChangeKind.HARD
    assert hard.weights == {"p1/m": 1.0, "p0/m": 0.0}
    assert hard.inputs.at - world.at <= 0
    later = world.run(3, 300, 400, fails=lambda member, _: member == 0)
    assert {moment.weights["p0/m"] for moment in later} == {0.0}


def test_a_member_dead_elsewhere_is_kept_where_it_is_well() -> None:
    """A failure in one region changes only that region's table."""
    there, here = RoutingSimulation(seed=3), RoutingSimulation(seed=3)
    for world in (there, here):
        world.run(WARM, 300, 400)
    regional = [
        world.run(3, 300, 400, fails=lambda member, vantage: member == 0 and vantage < 2, here=place)
        for place, world in enumerate((there, here))
    ]
    assert [moments[-1].first for moments in regional] == ["p1/m", "p0/m"]


def test_when_all_vantages_fail_everything_stays_as_it_was() -> None:
    """If most vantages fail, ranking and weights are frozen, and thaw when the vantages recover."""
    world = RoutingSimulation(seed=3)
    before = world.run(WARM, 300, 400)[-1]
    frozen = world.run(4, 300, 400, fails=lambda *_: True)
    assert changes(frozen) == [ChangeKind.FREEZE]
    assert {moment.decision.route_state for moment in frozen} == {RouteState.FROZEN}
    assert all(moment.weights == before.weights for moment in frozen)
    assert {moment.decision.newest_at for moment in frozen} == {before.decision.newest_at}
    thawed = world.run(3, 300, 400)
    assert changes(thawed)[0] is ChangeKind.THAW
    assert thawed[-1].first == before.first


def test_one_bad_vantage_is_ignored() -> None:
    """The probes of a vantage that fails everywhere are left out, in other regions and in its own."""
    for here in (0, 1):
        world = RoutingSimulation(seed=3)
        world.run(WARM, 300, 400, here=here)
        after = world.run(6, 300, 400, fails=lambda _, vantage: vantage == 0, here=here)
        assert {moment.first for moment in after} == {"p0/m"}
        assert {moment.decision.route_state for moment in after} == {RouteState.OK}


def test_a_region_whose_only_vantage_is_bad_is_frozen() -> None:
    """A reader of one broken window has no evidence, and must not act on it."""
    world = RoutingSimulation(seed=3, per_region=1)
    world.run(WARM, 300, 400)
    after = world.run(3, 300, 400, fails=lambda _, vantage: vantage == 0)
    assert [moment.decision.route_state for moment in after] == [RouteState.FROZEN] * 3
    assert {moment.weights["p0/m"] for moment in after} == {1.0}


def test_the_control_target_clears_a_vantage() -> None:
    """While the control target answers, the members fail and not the vantage: nothing is frozen."""
    world = RoutingSimulation(seed=3, per_region=1, plan=plan_of(target(0), target(1), target(2), control="p2/m"))
    world.run(WARM, 300, 350, 400)
    after = world.run(2, 300, 350, 400, fails=lambda member, _: member != 2)
    assert {moment.decision.route_state for moment in after} == {RouteState.OK}
    assert after[-1].first == "p2/m"


def test_a_flapping_member_waits_longer_and_is_never_left_out() -> None:
    """A faster member that flaps returns quickly once, then later each time, and stays in the ranking."""
    world = RoutingSimulation(seed=5, regions=1)
    world.run(WARM, 200, 400)
    waits: list[int] = []
    for _ in range(4):
        world.run(1, 200, 400, fails=lambda member, _: member == 0)
        back: list[DecisionRecord] = []
        while not back or back[-1].first != "p0/m":
            back += world.run(1, 200, 400)
            assert {entry.target for entry in back[-1].decision.entries} == {"p0/m", "p1/m"}
        waits.append(len(back))
    assert min(waits[1:]) > 2 * waits[0]


def test_nothing_is_decided_from_stale_samples() -> None:
    """Without new samples there is no switch, and the table does not become fresher than its samples."""
    world = RoutingSimulation(seed=4, regions=1)
    before = world.run(WARM, 300, 300, decisions_per_epoch=2)[-1]
    world.run(1, *[1200 if before.first == f"p{place}/m" else 300 for place in range(2)], decisions_per_epoch=3)
    world.state = replace(world.state, incumbent=before.first, since_at=before.inputs.at, switches=())
    world.run(2, silent=True)
    world.state = replace(world.state, incumbent=before.first, switches=())
    silent = world.run(6, silent=True)
    assert switches(silent) == 0
    assert {moment.first for moment in silent[:4]} == {before.first}
    assert len({moment.decision.newest_at for moment in silent}) == 1
    assert silent[0].decision.newest_at < silent[0].inputs.at - silent[0].inputs.rules.fresh_us


def test_a_cold_start_uses_the_static_order() -> None:
    """While there are too few samples of all members, none is ranked; then the best one is chosen at once."""
    world = RoutingSimulation(seed=4, regions=1, per_region=1)
    cold = world.run(2, 300, 400, decisions_per_epoch=6)
    states = [moment.decision.route_state for moment in cold]
    known = states.index(RouteState.OK)
    assert 3 <= known <= 7
    assert set(states[:known]) == {RouteState.INSUFFICIENT_DATA}
    assert cold[0].decision.entries == ()
    assert cold[known].decision.change is ChangeKind.FIRST
    assert sum(cold[known].weights.values()) == pytest.approx(1)


def test_a_wrong_first_choice_of_a_cold_start_is_put_right_without_dwell() -> None:
    """The first of all choices is made from six samples; it was no switch, and delays no later one."""
    world = RoutingSimulation(seed=4, regions=1)
    world.run(1, 300, 600)
    world.state = type(world.state)(
        incumbent="p1/m", since_at=world.at, epoch=world.state.epoch, plan_version=1, newest_at=world.at
    )
    assert world.run(4, 300, 600)[-1].first == "p0/m"


def test_an_objective_that_is_broken_for_certain_is_left_fast() -> None:
    """A member that certainly misses the objective is replaced by one that certainly meets it, without a dwell."""
    slo = Slo(name="chat", ttft_p95_us=SECOND_US)
    world = RoutingSimulation(seed=6, regions=1, plan=plan_of(target(0), target(1), slo=slo))
    first = world.run(WARM, 300, 330)[-1].first
    assert first == "p0/m"
    world.sigma = 0.1
    after = world.run(12, 900, 330)
    assert SWITCHES[1] in changes(after)


def test_different_intervals_do_not_look_like_a_shift() -> None:
    """Of two equal members one is probed six times as often, whose median must not pass for being faster."""
    every_us = 60 * SECOND_US
    shifts = []
    for seed in range(12):
        plan = plan_of(target(0, every_us=every_us), target(1, every_us=every_us // 6))
        moment = RoutingSimulation(seed=seed, regions=1, plan=plan, sigma=0.9).run(12, 350, 350)[-1]
        shift = moment.inputs.comparisons[0].window
        assert shift is not None
        shifts.append(shift.estimate / 1000)
    assert abs(fmean(shifts)) < 20
