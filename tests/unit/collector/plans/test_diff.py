"""Changes of plans: what is new, what is gone, what is different, and what it costs."""

from dataclasses import replace

import pytest

from isochrone_collector.plans import diff as planchange
from isochrone_wire.model import DAY_US, SECOND_US, Budget, Objective, Plan, Price, Route, Slo, Target, Workload

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
        ({"targets": (A, replace(B, every_us=1))}, ((), (), ("p/b: every 1m → 1us",))),
        ({"targets": (A, replace(B, price=Price(), credential="k"))}, ((), (), ("p/b: credential, price",))),
        ({"targets": (A, replace(B, spread_us=SECOND_US))}, ((), (), ("p/b: spread 0us → 1s",))),
        ({"targets": (A, replace(B, paused=True))}, ((), (), ("p/b: paused",))),
        ({"targets": (A, replace(B, id=9, model="z"))}, ((), (), ("p/b: new series, model",))),
        ({"baseline": "eu"}, ((), (), ("baseline: us → eu",))),
        ({"control": "p/a"}, ((), (), ("control: none → p/a",))),
    ],
)
def test_changes_are_told_apart(new: dict[str, object], expected: tuple[tuple[str, ...], ...]) -> None:
    """Added, removed and altered targets are told by name, altered ones with what is different."""
    change = planchange.compare(PLAN, replace(PLAN, version=2, **new))  # type: ignore[arg-type]  # a table of mixed fields
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
        ((replace(R, objective=Objective(usd=1.0), static_order=("p/b",)),), ("route r: objective, static order",)),
    ],
)
def test_changes_of_routes_are_told(routes: tuple[Route, ...], lines: tuple[str, ...]) -> None:
    """A route that is new, gone or different is told by name with what is different, and makes a plan a new one."""
    old = replace(PLAN, routes=(R,))
    change = planchange.compare(old, replace(old, version=2, routes=routes))
    assert (change.altered, change.changed) == (lines, bool(lines))


def test_a_paused_member_is_pointed_out() -> None:
    """A member that is paused is never ranked: whoever applies such a plan is told."""
    change = planchange.compare(None, replace(PLAN, targets=(A, replace(B, paused=True)), routes=(R,)))
    assert change.altered == ("new route r: p/a, p/b", "route r: left out while paused: p/b")


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


def test_budgets_are_part_of_the_meaning() -> None:
    """A budget that is new, changed or gone is told as such, and in another order it is the same."""
    one, two = Budget(provider="p", usd_per_day=5), Budget(provider="p", vantage="sg-1", requests_per_day=9)
    held = replace(PLAN, budgets=(one, two))
    assert planchange.same_meaning(held, replace(held, budgets=(two, one)))
    assert planchange.compare(PLAN, held).altered == (
        "budget of p: 5.00 USD a day",
        "budget of p at sg-1: 9 requests a day",
        "per day: p at sg-1: at most 2880 requests planned, budget 9 requests: all rounds may be skipped_budget",
    )
    smaller = replace(held, budgets=(replace(one, usd_per_day=2.5, tokens_per_day=10**7),))
    assert planchange.compare(held, smaller).altered == (
        "budget of p: 5.00 USD a day → 2.50 USD, 10000000 tokens a day",
        "budget of p at sg-1: none any more, was 9 requests a day",
    )


PRICED = replace(A, price=Price(usd_per_m_output=50.0))  # 0.01 USD a request, 14.40 USD a day


def test_the_fleet_and_its_providers_have_their_cost() -> None:
    """Where there are several providers each has its line, and where several vantages are known all are added up."""
    plan = Plan(version=1, baseline="us", targets=(PRICED, replace(B, provider="q", name="q/b")))
    assert planchange.compare(None, plan, vantages=3).altered == (
        "per day: p: 1440 requests, at most 14.40 USD per vantage",
        "per day: q: 1440 requests per vantage",
        "per day: 8640 requests, at most 43.20 USD for 3 known vantages",
    )


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"usd_per_day": 5.76}, "14.40 USD planned, budget 5.76 USD: about 60% of rounds"),
        ({"usd_per_day": 14.39}, "14.40 USD planned, budget 14.39 USD: about 1% of rounds"),
        ({"usd_per_day": 0.0}, "14.40 USD planned, budget 0.00 USD: all rounds"),
        ({"usd_per_day": 10.0, "requests_per_day": 144}, "1440 requests planned, budget 144 requests: about 90%"),
        ({"tokens_per_day": 149_760}, "299520 tokens planned, budget 149760 tokens: about 50%"),
    ],
)
def test_a_budget_that_will_bind_is_told(budget: dict[str, float], said: str) -> None:
    """Before a plan is applied it is said how many of its rounds the tightest limit will cost."""
    plan = Plan(version=1, baseline="us", targets=(PRICED,), budgets=(Budget(provider="p", **budget),))  # type: ignore[arg-type]  # a table of limits
    assert said in planchange.compare(None, plan).altered[-1]


def test_a_budget_that_suffices_is_not_mentioned_twice() -> None:
    """What the plan needs at most is within the limit: nothing will be skipped, so nothing is said of it."""
    budget = Budget(provider="p", usd_per_day=14.4, requests_per_day=1440)
    plan = Plan(version=1, baseline="us", targets=(PRICED,), budgets=(budget,))
    assert planchange.compare(None, plan).altered == ("budget of p: 14.40 USD, 1440 requests a day",)


def test_paused_targets_cost_nothing() -> None:
    """A round in which nothing is sent is no request."""
    paused = replace(PRICED, paused=True)
    plan = Plan(version=1, baseline="us", targets=(paused,))
    assert (planchange.requests_per_day(plan), planchange.usd_per_day(plan)) == (0, 0.0)
