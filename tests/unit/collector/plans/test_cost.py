"""The cost forecast of a plan."""

from dataclasses import replace

import pytest

from isochrone_collector.plans.diff import compare, requests_per_day, usd_per_day
from isochrone_wire.model import DAY_US, SECOND_US, Budget, Plan, Price, Target, Workload

A = Target(id=1, name="p/a", provider="p", model="a", base_url="http://h")
B = replace(A, id=2, name="p/b", model="b")
PLAN = Plan(version=1, baseline="us", targets=(A, B))
PRICED = replace(A, price=Price(usd_per_m_output=50.0))  # 0.01 USD a request, 14.40 USD a day


def test_requests_and_spend_of_a_day() -> None:
    """One request a minute is 1440 a day; 8 prompt tokens and 200 output tokens are charged by the price list."""
    priced = replace(A, price=Price(usd_per_m_input=1.0, usd_per_m_output=10.0), workload=Workload(prompt="x" * 32))
    hourly = replace(B, every_us=DAY_US // 24, workload=Workload(concurrency=4))
    plan = Plan(version=1, baseline="us", targets=(priced, hourly))
    assert requests_per_day(plan) == 1440 + 24 * 4
    assert usd_per_day(plan) == pytest.approx(1440 * (8 * 1.0 + 200 * 10.0) / 1e6)


def test_spend_is_unknown_without_a_price() -> None:
    """A missing price list does not mean that requests are free."""
    assert usd_per_day(PLAN) is None
    assert usd_per_day(replace(PLAN, targets=(replace(A, price=Price()),))) == 0.0


def test_intervals_that_do_not_divide_the_day() -> None:
    """Only whole rounds are counted."""
    assert requests_per_day(Plan(version=1, baseline="us", targets=(replace(A, every_us=7 * SECOND_US),))) == 12_342


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


def test_paused_targets_cost_nothing() -> None:
    """A paused target sends no requests."""
    paused = replace(PRICED, paused=True)
    plan = Plan(version=1, baseline="us", targets=(paused,))
    assert (requests_per_day(plan), usd_per_day(plan)) == (0, 0.0)
