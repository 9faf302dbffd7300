"""Race sets: the members that give the soonest answer together."""

from math import nan

import pytest

from isochrone_collector.routing.inputs import Evidence
from isochrone_collector.routing.parallel_requests import race_set
from isochrone_wire.model import Objective, Route
from isochrone_wire.routes import RaceSet
from testdata.routing_inputs import inputs_for, joint_rounds, target_named

STEADY = (300.0,) * 100
STALLING = (300.0,) * 90 + (6000.0,) * 10
Member = tuple[str, tuple[float, ...]]


def member(name: str, *ttft_ms: float) -> Member:
    return name, ttft_ms


def raced(
    *members: Member, usd: tuple[float, ...] = (), weight: float = 0.0, failing: tuple[str, ...] = ()
) -> RaceSet | None:
    """Return the race set of members in rank order, whose values are those of the same rounds, with these prices and
    this weight of the price.
    """
    names = [name for name, _ in members]
    length = max(len(ttft_ms) for _, ttft_ms in members)
    joint = joint_rounds(**{name: [*ttft_ms, *[nan] * (length - len(ttft_ms))] for name, ttft_ms in members})
    known = [Evidence(target=name, fails_here=name in failing) for name in names]
    targets = {name: target_named(name, usd=price) for name, price in zip(names, usd, strict=False)}
    route = Route(name="r", members=(), objective=Objective(usd=weight))
    return race_set(inputs_for(*known, targets=targets, route=route, joint=joint), names)


def targets_of(found: RaceSet | None) -> tuple[str, ...]:
    assert found is not None
    return found.targets


def test_the_soonest_member_is_named_whatever_the_others_cost() -> None:
    """A member that is cheaper but slower than the others is never the race set: it promises the soonest answer."""
    fast, slow = member("a", *STEADY), member("b", *[625.0] * 100)
    assert targets_of(raced(fast, slow, usd=(10.0, 0.1))) == ("a",)
    assert targets_of(raced(slow, fast, usd=(0.1, 10.0))) == ("a",)


def test_the_only_member_with_enough_samples_is_not_the_soonest() -> None:
    """While the first choice has fewer than 59 samples there is no race set; later members may be unknown."""
    slow = member("c", *[625.0] * 100)
    assert raced(member("a", *STEADY[:58]), slow) is None
    found = raced(member("a", *STEADY[:59]), member("b", *STEADY[:58]), slow)
    assert found is not None
    assert found.targets == ("a",)
    assert found.reason == "a alone: no request beside it would be answered sooner; fewer than 59 samples of b"


def test_members_that_stall_are_raced() -> None:
    """Two members that stall in one of ten requests are raced, two steady ones are not."""
    both = raced(member("a", *STALLING), member("b", *STALLING[::-1]), usd=(1.0, 2.0))
    assert both is not None
    assert (both.targets, both.usd_factor, both.reason) == (("a", "b"), 3.0, "")
    assert both.expected_p95_us == pytest.approx(300_000, rel=0.01)
    assert targets_of(raced(member("a", *STEADY), member("b", *STEADY))) == ("a",)


def test_members_that_stall_together_are_not_raced() -> None:
    """A race is as slow as its members where these stall in the same rounds, however rare the stalls of each are."""
    both = raced(member("a", *STALLING), member("b", *STALLING), usd=(1.0, 2.0))
    assert both is not None
    assert (both.targets, both.reason) == (("a",), "a alone: no request beside it would be answered sooner")
    assert both.expected_p95_us == pytest.approx(6_000_000, rel=0.01)


def test_members_that_are_not_probed_together_are_not_raced() -> None:
    """Rounds of one member only, as from agents of earlier versions, tell nothing of a race, and the reason says so."""
    both = raced(member("a", *STALLING, *[nan] * 100), member("b", *[nan] * 100, *STALLING))
    assert both is not None
    assert (both.targets, both.reason) == (("a",), "a alone: fewer than 59 joint rounds with b")


def test_a_request_that_hardly_gains_is_not_sent() -> None:
    """A third member that shortens the p95 by less than the margin is left out."""
    nearly = [300.0] * 94 + [310.0] * 6
    assert targets_of(raced(member("a", *nearly), member("b", *nearly), member("c", *nearly))) == ("a",)


def test_a_price_counts_as_the_objective_says() -> None:
    """An expensive second request is sent unless the objective weighs its price more than the time that it saves."""
    members, usd = (member("a", *STALLING), member("b", *STALLING[::-1])), (1.0, 99.0)
    assert targets_of(raced(*members, usd=usd)) == ("a", "b")
    assert targets_of(raced(*members, usd=usd, weight=100.0)) == ("a",)


def test_unknown_prices_count_the_requests() -> None:
    """Without prices the cost is the number of requests, and the reason is stated."""
    found = raced(member("a", *STALLING), member("b", *STALLING[::-1]), usd=(1.0,))
    assert found is not None
    assert (found.usd_factor, found.reason) == (2.0, "prices are not all known: each request counts the same")


def test_a_failing_member_is_not_raced() -> None:
    """A failing member is not raced, even if its few answers are fast."""
    found = raced(member("a", *STALLING), member("b", *STALLING[::-1]), failing=("b",))
    assert found is not None
    assert (found.targets, found.reason) == (("a",), "a alone: no other member can answer")
