"""Alerts for budgets and for the clocks of vantages."""

import pytest

from isochrone_collector.alerts.conditions import budget_alerts, is_clock_wrong, of_vantage_clock
from isochrone_collector.fleet_state import Spender
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, SECOND_US, Budget, Plan, Price, Spend, Target, day_of
from isochrone_wire.workloads import estimate_request

NOW_AT = 1_795_248_000_000_000
TODAY = day_of(NOW_AT)
TARGET = Target(id=1, name="p/m", provider="p", model="m", base_url="http://h", price=Price(usd_per_m_output=100.0))
TOKENS = estimate_request(TARGET).tokens


def sentences(spend: Spend, *, targets: tuple[Target, ...] = (TARGET,), **limits: float) -> list[str]:
    plan = Plan(version=1, baseline="us", targets=targets, budgets=(Budget(provider="p", **limits),))  # type: ignore[arg-type]  # the cases choose the fields
    spender = Spender(vantage="us-1", region="us", reported=(spend,))
    return [message.sentence for message in budget_alerts([spender], plan, now_at=NOW_AT)]


@pytest.mark.parametrize(
    ("spend", "limits", "reached"),
    [
        ({"requests": 9}, {"requests_per_day": 10}, ""),
        ({"requests": 10}, {"requests_per_day": 10}, "10 of 10 requests sent"),
        ({"tokens": 1000}, {"tokens_per_day": 1000 + TOKENS}, ""),
        ({"tokens": 1001}, {"tokens_per_day": 1000 + TOKENS}, f"1001 of {1000 + TOKENS} tokens used"),
        ({"usd": 0.99}, {"usd_per_day": 1.0}, "0.99 of 1.00 USD spent"),
        ({"usd": 0.97}, {"usd_per_day": 1.0}, ""),
        ({"usd": 5.0, "requests": 3}, {}, ""),
    ],
)
def test_a_budget_is_used_up_when_no_round_fits(
    spend: dict[str, float], limits: dict[str, float], reached: str
) -> None:
    """The alert comes when the cheapest round of the provider would exceed a limit, as the agent decides it."""
    found = sentences(Spend(provider="p", day_at=TODAY, **spend), **limits)  # type: ignore[arg-type]  # as above
    assert found == ([f"the budget of today has no room for another round: {reached}"] if reached else [])


def test_the_budget_of_another_day_does_not_count() -> None:
    """The spend that an agent reported yesterday says nothing about today, and nothing is exhausted without targets."""
    assert sentences(Spend(provider="p", day_at=TODAY - DAY_US, requests=10), requests_per_day=10) == []
    assert sentences(Spend(provider="p", day_at=TODAY, requests=10), targets=(), requests_per_day=10) == []


@pytest.mark.parametrize(
    ("offset_s", "uncertainty_s", "wrong"),
    [(None, None, False), (9, None, False), (11, None, True), (-11, 0, True), (60, 55, False), (60, 45, True)],
)
def test_a_clock_is_wrong_only_certainly(offset_s: int | None, uncertainty_s: int | None, wrong: bool) -> None:  # noqa: FBT001  # a case
    """A clock is wrong if it is more than ten seconds off beyond its uncertainty."""
    offset, uncertainty = (None if one is None else one * SECOND_US for one in (offset_s, uncertainty_s))
    assert is_clock_wrong(offset, uncertainty) is wrong


def test_a_wrong_clock_is_raised_once_a_day() -> None:
    """The alert states the offset and its direction, and has the same id all day."""
    message = of_vantage_clock("us-1", "us", -61 * SECOND_US, raised_at=NOW_AT)
    assert message.kind is AlertKind.CLOCK_WRONG
    assert message.sentence.startswith("the clock of us-1 in us is 61 s behind the collector's")
    later = of_vantage_clock("us-1", "us", -65 * SECOND_US, raised_at=NOW_AT + 3600 * SECOND_US)
    tomorrow = of_vantage_clock("us-1", "us", -65 * SECOND_US, raised_at=NOW_AT + DAY_US)
    assert message.id == later.id != tomorrow.id
