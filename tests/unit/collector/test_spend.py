"""Spend: what was reported today, and the planned rest of the day at the mean cost so far or at the plan's estimate."""

from dataclasses import asdict, replace

import pytest

from isochrone_collector.fleet_state import Spender, budget_of, reported, spend_lines
from isochrone_wire.model import DAY_US, MINUTE_US, Budget, Plan, Price, Spend, Target, Workload

DAY_AT = 20_000 * DAY_US
NOON_AT = DAY_AT + DAY_US // 2
# 4 prompt tokens and at most 100 of output: 4 * 1 + 100 * 10 = 1004 millionths of a dollar.
ASKED = Workload(prompt="sixteen letters.", max_output_tokens=100)
PRICED = Target(
    id=MINUTE_US,
    name="p/a",
    provider="p",
    model="a",
    base_url="http://h",
    workload=ASKED,
    every_us=MINUTE_US,
    price=Price(usd_per_m_input=1.0, usd_per_m_output=10.0),
)
PLAN = Plan(version=1, baseline="us", targets=(PRICED,))
LEFT = 720


def spent(usd: float = 0.0, tokens: int = 0, requests: int = 0, *, day_at: int = DAY_AT) -> Spend:
    return Spend(provider="p", day_at=day_at, usd=usd, tokens=tokens, requests=requests)


@pytest.mark.parametrize(
    ("today", "target", "usd", "tokens", "requests"),
    [
        (None, PRICED, LEFT * 0.001004, LEFT * 104, LEFT),
        (spent(1.0, 50_000, 500), PRICED, 1.0 + LEFT * 0.002, 50_000 + LEFT * 100, 500 + LEFT),
        (spent(9.0, 9, 9, day_at=DAY_AT - DAY_US), PRICED, LEFT * 0.001004, LEFT * 104, LEFT),
        (spent(0.0, 0, 10), PRICED, LEFT * 0.001004, LEFT * 104, 10 + LEFT),
        (None, replace(PRICED, price=None), None, LEFT * 104, LEFT),
        (spent(0.0, 200, 2), replace(PRICED, price=None), None, 200 + LEFT * 100, 2 + LEFT),
        (spent(2.0, 200, 2), replace(PRICED, price=None), 2.0 + LEFT * 1.0, 200 + LEFT * 100, 2 + LEFT),
        (spent(2.0, 200, 2), replace(PRICED, paused=True), 2.0, 200, 2),
        (None, replace(PRICED, workload=replace(ASKED, concurrency=5)), 5 * LEFT * 0.001004, 5 * LEFT * 104, 5 * LEFT),
    ],
)
def test_the_rest_of_the_day_costs_as_the_day_did(
    today: Spend | None, target: Target, usd: float | None, tokens: int, requests: int
) -> None:
    """Spent plus planned, at the mean of today's requests; yesterday and paused targets count for nothing."""
    spender = Spender(vantage="v", region="us", reported=(today,) if today else ())
    [line] = spend_lines(spender, plan=replace(PLAN, targets=(target,)), now_at=NOON_AT)
    assert line.forecast_usd == (None if usd is None else pytest.approx(usd))
    assert (line.forecast_tokens, line.forecast_requests) == (tokens, requests)
    assert line.day_at == DAY_AT


def test_the_last_instant_of_a_day_plans_nothing_more() -> None:
    """A forecast ends at midnight UTC, where the next day's budget begins."""
    [line] = spend_lines(Spender(vantage="v", region="us"), plan=PLAN, now_at=DAY_AT + DAY_US - 1)
    assert (line.forecast_requests, line.forecast_tokens, line.forecast_usd) == (0, 0, 0.0)


def test_every_provider_has_a_line() -> None:
    """A provider is shown when it is planned or was paid today, and only if it was asked for."""
    plan = replace(PLAN, targets=(PRICED, replace(PRICED, id=7, provider="q")))
    gone = replace(spent(0.5, 10, 1), provider="gone")
    spender = Spender(vantage="v", region="us", reported=(spent(1.0, 10, 1), gone))
    lines = {line.provider: line for line in spend_lines(spender, plan=plan, now_at=NOON_AT)}
    assert list(lines) == ["gone", "p", "q"]
    assert (lines["gone"].forecast_usd, lines["gone"].forecast_requests) == (0.5, 1)
    assert [line.provider for line in spend_lines(spender, plan=plan, now_at=NOON_AT, providers=["q", "x"])] == ["q"]


@pytest.mark.parametrize(("vantage", "usd"), [("v", 1.0), ("w", 9.0)])
def test_the_nearest_budget_binds(vantage: str, usd: float) -> None:
    """A vantage's own budget stands before the one of every vantage, and other providers' are none of its business."""
    budgets = (
        Budget(provider="p", usd_per_day=9.0),
        Budget(provider="p", vantage="v", usd_per_day=1.0),
        Budget(provider="q", usd_per_day=5.0),
    )
    found = budget_of(budgets, provider="p", vantage=vantage)
    assert found is not None
    assert found.usd_per_day == usd
    assert budget_of(budgets, provider="z", vantage=vantage) is None


def test_what_was_kept_comes_back() -> None:
    """What the store keeps of a report is the report, whatever a newer agent says besides."""
    one = spent(0.25, 100, 3)
    assert reported([{**asdict(one), "cached_tokens": 4}]) == (one,)
