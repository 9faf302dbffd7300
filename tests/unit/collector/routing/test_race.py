"""Race sets: the members that give the soonest answer together."""

from dataclasses import replace

import pytest

from isochrone_collector.analysis.histogram import buckets_of
from isochrone_collector.routing.inputs import Evidence
from isochrone_collector.routing.race import race_set
from isochrone_wire.model import Objective, Route
from isochrone_wire.routes import RaceSet
from testdata.routing_inputs import inputs_for, target_named

STEADY = (300.0,) * 100
STALLING = (300.0,) * 90 + (6000.0,) * 10


def member(name: str, *ttft_ms: float) -> Evidence:
    buckets = buckets_of([value * 1e3 for value in ttft_ms]).tolist()
    return Evidence(target=name, n=len(ttft_ms), histogram={one: buckets.count(one) for one in buckets})


def raced(*members: Evidence, usd: tuple[float, ...] = (), weight: float = 0.0) -> RaceSet | None:
    """Return the race set of members in rank order, with these prices and this weight of the price."""
    names = [one.target for one in members]
    targets = {name: target_named(name, usd=price) for name, price in zip(names, usd, strict=False)}
    route = Route(name="r", members=(), objective=Objective(usd=weight))
    return race_set(inputs_for(*members, targets=targets, route=route), names)


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
    both = raced(member("a", *STALLING), member("b", *STALLING), usd=(1.0, 2.0))
    assert both is not None
    assert (both.targets, both.usd_factor, both.reason) == (("a", "b"), 3.0, "")
    assert both.expected_p95_us == pytest.approx(300_000, rel=0.01)
    assert targets_of(raced(member("a", *STEADY), member("b", *STEADY))) == ("a",)


def test_a_request_that_hardly_gains_is_not_sent() -> None:
    """A third member that shortens the p95 by less than the margin is left out."""
    nearly = [300.0] * 94 + [310.0] * 6
    assert targets_of(raced(member("a", *nearly), member("b", *nearly), member("c", *nearly))) == ("a",)


def test_a_price_counts_as_the_objective_says() -> None:
    """An expensive second request is sent unless the objective weighs its price more than the time that it saves."""
    members, usd = (member("a", *STALLING), member("b", *STALLING)), (1.0, 99.0)
    assert targets_of(raced(*members, usd=usd)) == ("a", "b")
    assert targets_of(raced(*members, usd=usd, weight=100.0)) == ("a",)


def test_unknown_prices_count_the_requests() -> None:
    """Without prices the cost is the number of requests, and the reason is stated."""
    found = raced(member("a", *STALLING), member("b", *STALLING), usd=(1.0,))
    assert found is not None
    assert (found.usd_factor, found.reason) == (2.0, "prices are not all known: each request counts the same")


def test_a_failing_member_is_not_raced() -> None:
    """A failing member is not raced, even if its few answers are fast."""
    found = raced(member("a", *STALLING), replace(member("b", *STALLING), fails_here=True))
    assert found is not None
    assert (found.targets, found.reason) == (("a",), "a alone: no other member can answer")
