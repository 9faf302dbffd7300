"""Cost forecast of a plan: requests, tokens and US dollars per day, for one vantage and for all of them. Pure.

The forecast assumes the maximum cost of each request (`isochrone_wire.workloads`). Paused targets send nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from isochrone_wire.model import DAY_US, Budget, Plan, Target
from isochrone_wire.workloads import estimate_request

PER_DAY = "per day: "
"""The prefix of the lines of `PlanChange.altered` that forecast a day."""

_LIMITS = ("usd_per_day", "tokens_per_day", "requests_per_day")
# From this share of skipped rounds on, the forecast is "all" instead of a percentage.
_ALL = 0.995


@dataclass(frozen=True, slots=True, kw_only=True)
class _Day:
    """The daily consumption of one vantage at one provider, with the names of the limits; `usd_per_day` is `None` if no
    target has a price.
    """

    provider: str
    requests_per_day: int
    tokens_per_day: int
    usd_per_day: float | None


def requests_per_day(plan: Plan) -> int:
    """Return the requests that one vantage sends in 24 hours."""
    return sum(_requests(target) for target in plan.targets)


def usd_per_day(plan: Plan) -> float | None:
    """Return the maximum cost of one vantage in 24 hours, in US dollars; `None` if no target has a price."""
    return _usd(plan.targets)


def forecast(plan: Plan, vantages: int) -> Iterator[str]:
    """Yield the lines of the forecast: per provider, for all known vantages, and the budgets that will be exhausted."""
    days = list(_days(plan))
    for day in days if len(days) > 1 else []:
        yield f"{PER_DAY}{day.provider}: {_total(day, 1)} per vantage"
    if vantages > 1:
        whole = _Day(
            provider="",
            requests_per_day=sum(day.requests_per_day for day in days),
            tokens_per_day=sum(day.tokens_per_day for day in days),
            usd_per_day=usd_per_day(plan),
        )
        yield f"{PER_DAY}{_total(whole, vantages)} for {vantages} known vantages"
    for budget in sorted(plan.budgets, key=budget_owner):
        yield from (
            f"{PER_DAY}{line}" for day in days if day.provider == budget.provider for line in _exhausted(day, budget)
        )


def budget_owner(budget: Budget) -> str:
    """Return the provider of a budget, and its vantage if it has one."""
    return f"{budget.provider} at {budget.vantage}" if budget.vantage else budget.provider


def budget_limits(budget: Budget) -> str:
    """Return the limits of a budget with their units: `4.20 USD, 5000 tokens a day`."""
    amounts = [_amount(name, limit) for name in _LIMITS if (limit := getattr(budget, name)) is not None]
    return f"{', '.join(amounts)} a day"


def _requests(target: Target) -> int:
    return 0 if target.paused else DAY_US // target.every_us * target.workload.concurrency


def _usd(targets: Iterable[Target]) -> float | None:
    costs = [_requests(t) * estimate_request(t).cost_usd(t.price) for t in targets if t.price is not None]
    return sum(costs) if costs else None


def _amount(name: str, amount: float) -> str:
    """Return an amount with its unit: `4.20 USD`, `5000 tokens`."""
    unit = name.removesuffix("_per_day")
    return f"{amount:.2f} USD" if unit == "usd" else f"{amount:.0f} {unit}"


def _total(day: _Day, vantages: int) -> str:
    requests = f"{day.requests_per_day * vantages} requests"
    return requests if day.usd_per_day is None else f"{requests}, at most {day.usd_per_day * vantages:.2f} USD"


def _days(plan: Plan) -> Iterator[_Day]:
    for provider in sorted({target.provider for target in plan.targets}):
        targets = [target for target in plan.targets if target.provider == provider]
        yield _Day(
            provider=provider,
            requests_per_day=sum(_requests(target) for target in targets),
            tokens_per_day=sum(_requests(target) * estimate_request(target).tokens for target in targets),
            usd_per_day=_usd(targets),
        )


def _exhausted(day: _Day, budget: Budget) -> Iterator[str]:
    """Yield the limit that is exhausted first, if any is exhausted within the day."""
    planned = {name: getattr(day, name) or 0 for name in _LIMITS}
    limits = {name: limit for name in _LIMITS if (limit := getattr(budget, name)) is not None}
    skipped = {name: 1 - limit / planned[name] for name, limit in limits.items() if planned[name] > limit}
    if skipped:
        name = max(skipped, key=lambda name: skipped[name])
        share = "all" if skipped[name] >= _ALL else f"about {max(skipped[name], 0.01):.0%} of"
        yield (
            f"{budget_owner(budget)}: at most {_amount(name, planned[name])} planned, "
            f"budget {_amount(name, limits[name])}: {share} rounds may be skipped_budget"
        )
