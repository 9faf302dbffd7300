"""The diff of two plans: added, removed and altered targets, budgets and routes."""

from dataclasses import replace

import pytest

from isochrone_collector.plans.diff import compare, same_meaning, unchanged
from isochrone_wire.model import SECOND_US, Budget, MarginRule, Objective, Plan, Price, Route, Slo, Target

A = Target(id=1, name="p/a", provider="p", model="a", base_url="http://h")
B = replace(A, id=2, name="p/b", model="b")
PLAN = Plan(version=1, baseline="us", targets=(A, B))


def test_the_first_plan_adds_everything() -> None:
    """The first plan adds all of its targets."""
    change = compare(None, PLAN)
    assert (change.added, change.removed, change.altered, change.changed) == (("p/a", "p/b"), (), (), True)


def test_order_means_nothing() -> None:
    """The same targets in another order, under another version, ask for the same measurements."""
    assert same_meaning(PLAN, Plan(version=5, baseline="us", targets=(B, A)))
    assert not same_meaning(None, PLAN)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ({"targets": (A,)}, ((), ("p/b",), ())),
        ({"targets": (A, B, replace(B, id=3, name="p/c"))}, (("p/c",), (), ())),
        ({"targets": (A, replace(B, every_us=1))}, ((), (), ("p/b: every 1m → 1us",))),
        ({"targets": (A, replace(B, price=Price(), credential="k"))}, ((), (), ("p/b: credential, price",))),
        ({"targets": (A, replace(B, spread_us=SECOND_US))}, ((), (), ("p/b: spread 0us → 1s",))),
        ({"targets": (A, replace(B, paused=True))}, ((), (), ("p/b: paused",))),
        ({"targets": (A, replace(B, id=9, model="z"))}, ((), (), ("p/b: new series, model",))),
        ({"baseline": "eu"}, ((), (), ("baseline: us → eu",))),
        ({"control": "p/a"}, ((), (), ("control: none → p/a",))),
        (
            {"margins": (MarginRule(metric="ttft", least=30_000.0), MarginRule(metric="tokens_per_second", least=2.0))},
            (
                (),
                (),
                (
                    "smallest tokens_per_second difference that matters: 5 % → 2 tokens/s or 5 %",
                    "smallest ttft difference that matters: 20ms or 5 % → 30ms or 5 %",
                ),
            ),
        ),
    ],
)
def test_changes_are_told_apart(new: dict[str, object], expected: tuple[tuple[str, ...], ...]) -> None:
    """Added, removed and altered targets are listed by name, altered ones with their differences."""
    change = compare(PLAN, replace(PLAN, version=2, **new))  # type: ignore[arg-type]  # a table of mixed fields
    assert (change.added, change.removed, change.altered) == expected
    assert change.changed
    assert change.version == 2


R = Route(name="r", members=("p/a", "p/b"))


@pytest.mark.parametrize(
    ("routes", "lines"),
    [
        ((R,), ()),
        ((), ("no more route r",)),
        ((R, replace(R, name="s", members=("p/b",))), ("new route s: p/b",)),
        ((replace(R, members=("p/b",)),), ("route r: without p/a",)),
        ((replace(R, members=("p/b", "p/a")),), ("route r: members in another order",)),
        (
            (replace(R, slo=Slo(name="chat", ttft_p95_us=SECOND_US, min_success=0.99), residency=("eu",)),),
            ("route r: slo custom → chat 1s 0.99, residency",),
        ),
        (
            (
                replace(
                    R,
                    slo=Slo(min_goodput=0.9, answer_tokens=500, answer_p95_us=8 * SECOND_US, min_tokens_per_second=30),
                ),
            ),
            ("route r: slo custom → custom 0.9 in time 500 tokens in 8s 30 tokens/s",),
        ),
        ((replace(R, objective=Objective(usd=1.0), static_order=("p/b",)),), ("route r: objective, static order",)),
        ((replace(R, max_share={"p/a": 0.5}),), ("route r: max share",)),
    ],
)
def test_changes_of_routes_are_told(routes: tuple[Route, ...], lines: tuple[str, ...]) -> None:
    """Added, removed and altered routes are listed by name with their differences, and are a change of the plan."""
    old = replace(PLAN, routes=(R,))
    change = compare(old, replace(old, version=2, routes=routes))
    assert (change.altered, change.changed) == (lines, bool(lines))


def test_a_paused_member_is_pointed_out() -> None:
    """The changes of a plan contain its routes with paused members, because these are never ranked."""
    change = compare(None, replace(PLAN, targets=(A, replace(B, paused=True)), routes=(R,)))
    assert change.altered == ("new route r: p/a, p/b", "route r: left out while paused: p/b")


def test_unchanged_says_the_version_in_force() -> None:
    """Applying the plan in force changes nothing and makes no new version."""
    change = unchanged(PLAN)
    assert (change.version, change.changed, change.added, change.altered) == (1, False, (), ())


def test_budgets_are_part_of_the_meaning() -> None:
    """A budget that is added, changed or removed is listed; another order of budgets is no change."""
    one, two = Budget(provider="p", usd_per_day=5), Budget(provider="p", vantage="sg-1", requests_per_day=9)
    held = replace(PLAN, budgets=(one, two))
    assert same_meaning(held, replace(held, budgets=(two, one)))
    assert compare(PLAN, held).altered == (
        "budget of p: 5.00 USD a day",
        "budget of p at sg-1: 9 requests a day",
        "per day: p at sg-1: at most 2880 requests planned, budget 9 requests: all rounds may be skipped_budget",
    )
    smaller = replace(held, budgets=(replace(one, usd_per_day=2.5, tokens_per_day=10**7),))
    assert compare(held, smaller).altered == (
        "budget of p: 5.00 USD a day → 2.50 USD, 10000000 tokens a day",
        "budget of p at sg-1: none any more, was 9 requests a day",
    )
