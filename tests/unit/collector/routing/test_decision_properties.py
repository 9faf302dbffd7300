"""Properties of every routing decision, for any inputs."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.routing import serialization
from isochrone_collector.routing.decision import Decision, decide
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs
from isochrone_collector.routing.switch import State
from isochrone_collector.routing.table import build_table, explain_steps, replay
from isochrone_wire.model import Route, Slo
from isochrone_wire.routes import RouteState, RouteTable
from testdata.routing_worlds import AT, RULES, comparison, evidence, inputs_for, target_named

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
    low, short = draw(st.integers(-300, 300)), draw(st.integers(-400, 400))
    return comparison(left, right, low, low + draw(st.integers(0, 200)), short=(short, short + 50))


@st.composite
def moments(draw: st.DrawFn, at: int, version: int) -> Inputs:
    names = draw(st.sampled_from([NAMES, NAMES, NAMES[:2], NAMES[1:], NAMES[:1]]))
    found = inputs_for(
        *[draw(members(name, at)) for name in names],
        compared=tuple(draw(pairs(*two)) for two in combinations(names, 2)),
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


@settings(max_examples=25, deadline=None)
@given(courses())
def test_weights_move_a_step_an_epoch(course: Course) -> None:
    """Within an epoch no weight moves by more than 25 points, but for what was carried by a member that fails, is left
    out or is gone, and what somebody gets of that.
    """
    begun: dict[str, float] = {}
    epoch = 0
    for inputs, before, decision in played(course):
        now = inputs.at // RULES.epoch_us
        if now != epoch:
            begun, epoch = dict(before.weights), now
        after = decision.state.weights
        if decision.route_state in (RouteState.INSUFFICIENT_DATA, RouteState.FROZEN) or not begun:
            begun = dict(after)
            continue
        sound = [entry.target for entry in decision.entries if inputs.of(entry.target).failing_here == 0]
        lost = sum(weight for target, weight in begun.items() if target not in sound)
        for target in sound:
            moved = after.get(target, 0.0) - begun.get(target, 0.0)
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
    """The first choice fails only when everybody does, or when it was kept; the newest sample never goes back, and is
    never newer than what was seen.
    """
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
