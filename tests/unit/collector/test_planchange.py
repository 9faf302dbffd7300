"""Changes of plans: what is new, what is gone, what is different, and what it costs."""

from dataclasses import replace

import pytest

from isochrone_collector import planchange
from isochrone_wire.model import DAY_US, SECOND_US, Plan, Price, Target, Workload

A = Target(id=1, name="p/a", provider="p", model="a", base_url="http://h")
B = replace(A, id=2, name="p/b", model="b")
PLAN = Plan(version=1, baseline="us", targets=(A, B))


def test_the_first_plan_adds_everything() -> None:
    """Before the first plan there was nothing."""
    change = planchange.compare(None, PLAN)
    assert (change.added, change.removed, change.altered, change.changed) == (("p/a", "p/b"), (), (), True)


def test_order_means_nothing() -> None:
    """The same targets in another order, under another version, ask for the same measurements."""
    assert planchange.same_meaning(PLAN, Plan(version=5, baseline="us", targets=(B, A)))
    assert not planchange.same_meaning(None, PLAN)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ({"targets": (A,)}, ((), ("p/b",), ())),
        ({"targets": (A, B, replace(B, id=3, name="p/c"))}, (("p/c",), (), ())),
        ({"targets": (A, replace(B, every_us=1))}, ((), (), ("p/b: every",))),
        ({"targets": (A, replace(B, price=Price(), credential="k"))}, ((), (), ("p/b: credential, price",))),
        ({"targets": (A, replace(B, id=9, model="z"))}, ((), (), ("p/b: new series, model",))),
        ({"baseline": "eu"}, ((), (), ("baseline: us → eu",))),
    ],
)
def test_changes_are_told_apart(new: dict[str, object], expected: tuple[tuple[str, ...], ...]) -> None:
    """Added, removed and altered targets are told by name, altered ones with what is different."""
    change = planchange.compare(PLAN, replace(PLAN, version=2, **new))  # type: ignore[arg-type]  # a table of mixed fields
    assert (change.added, change.removed, change.altered) == expected
    assert change.changed
    assert change.version == 2


def test_unchanged_says_the_version_in_force() -> None:
    """Applying what is already in force changes nothing and counts nothing up."""
    change = planchange.unchanged(PLAN)
    assert (change.version, change.changed, change.added, change.altered) == (1, False, (), ())


def test_requests_and_spend_of_a_day() -> None:
    """A request a minute is 1440 a day; 8 prompt tokens and 200 answer tokens cost what the price list says."""
    priced = replace(A, price=Price(usd_per_m_input=1.0, usd_per_m_output=10.0), workload=Workload(prompt="x" * 32))
    hourly = replace(B, every_us=DAY_US // 24, workload=Workload(concurrency=4))
    plan = Plan(version=1, baseline="us", targets=(priced, hourly))
    assert planchange.requests_per_day(plan) == 1440 + 24 * 4
    assert planchange.usd_per_day(plan) == pytest.approx(1440 * (8 * 1.0 + 200 * 10.0) / 1e6)


def test_spend_is_unknown_without_a_price() -> None:
    """No price list is not the same as free."""
    assert planchange.usd_per_day(PLAN) is None
    assert planchange.usd_per_day(replace(PLAN, targets=(replace(A, price=Price()),))) == 0.0


def test_intervals_that_do_not_divide_the_day() -> None:
    """Only whole rounds are counted."""
    assert (
        planchange.requests_per_day(Plan(version=1, baseline="us", targets=(replace(A, every_us=7 * SECOND_US),)))
        == 12_342
    )
