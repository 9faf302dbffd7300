"""Weights: they add up, move by steps, and keep within the shares of the plan and the capacity of the members."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.routing.decision import decide
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.switch import State, epoch_of
from isochrone_collector.routing.table import build_table
from isochrone_collector.routing.weights import UNASSIGNED, caps, ramp, transfer, wanted_weights, within_plan
from isochrone_wire.model import Route
from isochrone_wire.routes import ChangeKind
from testdata.routing_worlds import AT, RULES, evidence, inputs_for

NAMES = ("a", "b", "c")
EPOCH = RULES.epoch_us


def inputs(shares: dict[str, float] | None = None, throttled: dict[str, float] | None = None) -> Inputs:
    """Three members with these largest shares, of which some throttle."""
    known = [
        replace(evidence(name, 350 + place), throttled=(throttled or {}).get(name, 0.0))
        for place, name in enumerate(NAMES)
    ]
    return inputs_for(*known, route=Route(name="r", members=NAMES, max_share=shares or {}))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_parts_add_up(count: int) -> None:
    """Thirds too add up to one, in whole millionths."""
    parts = wanted_weights(inputs(), NAMES[:count], NAMES[count:])
    assert len(parts) == count
    assert sum(round(part * 1e6) for part in parts.values()) == 1_000_000


def test_weights_ramp_and_are_handed_over() -> None:
    """No weight moves by more than a step; the weight of a removed member is transferred."""
    assert ramp({"a": 1.0}, {"b": 0.5, "c": 0.5}, step=0.25) == {"a": 0.75, "b": 0.125, "c": 0.125}
    assert ramp({}, {"b": 1.0}, step=0.25) == {"b": 1.0}
    assert transfer({"a": 0.5, "b": 0.25, "c": 0.25}, ["a"], "b") == {"b": 0.75, "c": 0.25}


@pytest.mark.parametrize(
    ("shares", "throttled", "sharing", "others", "weights"),
    [
        ({"a": 0.6}, {}, "a", "bc", {"a": 0.6, "b": 0.4}),
        ({"a": 0.6, "b": 0.3}, {}, "a", "bc", {"a": 0.6, "b": 0.3, "c": 0.1}),
        ({"a": 0.6, "b": 0.3}, {}, "a", "b", {"a": 0.6, "b": 0.3, UNASSIGNED: 0.1}),
        ({"a": 0.2}, {}, "ab", "c", {"a": 0.2, "b": 0.8}),
        ({}, {"a": 0.25}, "a", "b", {"a": 0.75, "b": 0.25}),
        ({"a": 0.8}, {"a": 0.25}, "a", "b", {"a": 0.6, "b": 0.4}),
        ({}, {"a": 0.25}, "a", "", {"a": 1.0}),  # no other member has room
        ({}, {"a": 0.5, "b": 0.75}, "a", "b", {"a": 0.75, "b": 0.25}),
    ],
)
def test_what_is_beyond_a_share_goes_to_the_next(
    shares: dict[str, float], throttled: dict[str, float], sharing: str, others: str, weights: dict[str, float]
) -> None:
    """Members fill up in rank order, to what the plan and their throttling allow, then to what the plan allows."""
    assert wanted_weights(inputs(shares, throttled), [*sharing], [*others]) == weights


share = st.floats(0.05, 1.0)


@given(
    st.dictionaries(st.sampled_from(NAMES), share),
    st.dictionaries(st.sampled_from([*NAMES, UNASSIGNED]), share, min_size=1),
    st.permutations(NAMES),
)
def test_no_member_exceeds_its_share_of_the_plan(
    shares: dict[str, float], weights: dict[str, float], order: list[str]
) -> None:
    """Whatever moved, the weights add up to 1 with what is unassigned, and none is above the plan's share."""
    total = sum(weights.values())
    found = within_plan(inputs(shares), {name: weight / total for name, weight in weights.items()}, order)
    assert sum(round(weight * 1e6) for weight in found.values()) == 1_000_000
    assert all(found.get(name, 0.0) <= limit + 3e-6 for name, limit in shares.items())


def test_a_hard_switch_keeps_the_shares_of_the_plan() -> None:
    """When the first choice fails, its traffic goes to the next members up to their shares; the rest is unassigned."""
    dead = replace(evidence("a", 350), failing_vantages=2, failing_here=2, fails_here=True)
    route = Route(name="r", members=NAMES, max_share={"b": 0.5, "c": 0.3})
    found = inputs_for(dead, evidence("b", 360), evidence("c", 370), route=route)
    state = State(
        incumbent="a",
        since_at=AT - EPOCH,
        epoch=epoch_of(AT, RULES) - 1,
        order=NAMES,
        weights={"a": 1.0},
        epoch_weights={"a": 1.0},
        newest_at=AT - 1,
        plan_version=1,
    )
    decision = decide(found, state)
    assert decision.change is ChangeKind.HARD
    assert decision.state.weights == {"b": 0.5, "c": 0.3, UNASSIGNED: 0.2}
    table = build_table(found, decision, generation=1, code_version="test")
    assert table.unassigned == 0.2
    assert sum(entry.weight for entry in table.entries) + table.unassigned == pytest.approx(1.0)
    assert table.move_within_us == EPOCH // 10
    # In the next epochs nothing returns to a member that fails, and no share is exceeded.
    later = decide(replace(found, at=AT + EPOCH), decision.state)
    assert later.state.weights == decision.state.weights


def test_a_throttled_member_gives_up_traffic_by_steps() -> None:
    """Throttling is a lack of capacity, not a failure: the member stays first, and gives up its share in epochs."""
    found = inputs(throttled={"a": 0.6})
    assert caps(found)["a"] == pytest.approx(0.4)
    state = State()
    shares = []
    for epoch in range(5):
        at = AT + epoch * EPOCH
        fresh = tuple(replace(one, newest_at=at) for one in found.evidence)
        decision = decide(replace(found, at=at, evidence=fresh), state)
        state = decision.state if epoch else replace(decision.state, weights={"a": 1.0}, epoch_weights={"a": 1.0})
        shares.append(decision.entries[0].weight)
        assert decision.entries[0].target == "a"
    assert shares[1:] == pytest.approx([0.75, 0.5, 0.4, 0.4])
