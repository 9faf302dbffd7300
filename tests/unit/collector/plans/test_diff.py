"""The difference between two plans, and what a plan costs."""

from dataclasses import replace

import pytest

from isochrone_collector.plans.diff import compare, same_meaning, unchanged
from isochrone_wire.model import (
    DAY_US,
    SECOND_US,
    Budget,
    MarginRule,
    Objective,
    Plan,
    Price,
    Route,
    Slo,
    Target,
    Workload,
)

A = Target(id=1, name="p/a", provider="p", model="a", base_url="http://h")
B = replace(A, id=2, name="p/b", model="b")
PLAN = Plan(version=1, baseline="us", targets=(A, B))


def test_the_first_plan_adds_everything() -> None:
    """The first plan adds all of its targets; another order under another version changes nothing."""
    change = compare(None, PLAN)
    assert (change.added, change.removed, change.altered, change.changed) == (("p/a", "p/b"), (), (), True)
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
    """Paused members of routes are pointed out; the plan in force makes no new version."""
    change = compare(None, replace(PLAN, targets=(A, replace(B, paused=True)), routes=(R,)))
    assert change.altered == ("new route r: p/a, p/b", "route r: left out while paused: p/b")
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


PRICED = replace(A, price=Price(usd_per_m_output=50.0))  # 0.01 USD a request, 14.40 USD a day


def test_requests_and_spend_of_a_day() -> None:
    """One request a minute is 1440 a day; 8 prompt tokens and 200 output tokens are charged by the price list."""
    priced = replace(A, price=Price(usd_per_m_input=1.0, usd_per_m_output=10.0), workload=Workload(prompt="x" * 32))
    hourly = replace(B, every_us=DAY_US // 24, workload=Workload(concurrency=4))
    plan = Plan(version=1, baseline="us", targets=(priced, hourly))
    change = compare(None, plan)
    assert change.requests_per_day == 1440 + 24 * 4
    assert change.usd_per_day == pytest.approx(1440 * (8 * 1.0 + 200 * 10.0) / 1e6)


@pytest.mark.parametrize(
    ("target", "requests", "usd"),
    [
        (A, 1440, None),
        (replace(A, price=Price()), 1440, 0.0),
        (replace(PRICED, paused=True), 0, 0.0),
        (replace(A, every_us=7 * SECOND_US), 12_342, None),
    ],
    ids=["no price list", "a price of zero", "paused", "an interval that does not divide the day"],
)
def test_requests_and_spend_of_odd_targets(target: Target, requests: int, usd: float | None) -> None:
    """Without a price list the spend is unknown, not zero; a paused target sends nothing; only whole rounds count."""
    plan = replace(PLAN, targets=(target,))
    change = compare(None, plan)
    assert (change.requests_per_day, change.usd_per_day) == (requests, usd)


def test_the_fleet_and_its_providers_have_their_cost() -> None:
    """Several providers have a line each, and the total of several known vantages has another."""
    plan = Plan(version=1, baseline="us", targets=(PRICED, replace(B, provider="q", name="q/b")))
    assert compare(None, plan, vantages=3).altered == (
        "per day: p: 1440 requests, at most 14.40 USD per vantage",
        "per day: q: 1440 requests per vantage",
        "per day: 8640 requests, at most 43.20 USD for 3 known vantages",
    )


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"usd_per_day": 5.76}, "14.40 USD planned, budget 5.76 USD: about 60% of rounds"),
        ({"usd_per_day": 14.39}, "14.40 USD planned, budget 14.39 USD: about 1% of rounds"),
        ({"usd_per_day": 0.0}, "14.40 USD planned, budget 0.00 USD: all rounds"),
        ({"usd_per_day": 10.0, "requests_per_day": 144}, "1440 requests planned, budget 144 requests: about 90%"),
        ({"tokens_per_day": 149_760}, "299520 tokens planned, budget 149760 tokens: about 50%"),
    ],
)
def test_a_budget_that_will_be_exhausted(budget: dict[str, float], expected: str) -> None:
    """The forecast of a plan contains the share of rounds that the tightest limit will skip."""
    plan = Plan(version=1, baseline="us", targets=(PRICED,), budgets=(Budget(provider="p", **budget),))  # type: ignore[arg-type]  # a table of limits
    assert expected in compare(None, plan).altered[-1]


def test_a_budget_that_suffices_is_not_mentioned_twice() -> None:
    """A budget whose limits are not below the maximum consumption has no line in the forecast."""
    budget = Budget(provider="p", usd_per_day=14.4, requests_per_day=1440)
    plan = Plan(version=1, baseline="us", targets=(PRICED,), budgets=(budget,))
    assert compare(None, plan).altered == ("budget of p: 14.40 USD, 1440 requests a day",)
