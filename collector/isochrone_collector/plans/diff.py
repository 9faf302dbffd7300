"""What changes from one plan to the next, and what a plan costs in a day: each vantage, and all of them.

The forecast assumes the maximum cost of each request (`isochrone_wire.request_estimate`). Paused targets send nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from isochrone_collector import durations
from isochrone_wire.model import DAY_US, Budget, Plan, Route, Slo, Target
from isochrone_wire.operations import PlanChange
from isochrone_wire.request_estimate import estimate_request

PER_DAY = "per day: "
"""How the lines of `PlanChange.altered` begin that forecast a day instead of telling what was altered."""

NEW_ROUTE = "new route "
GONE_ROUTE = "no more route "
"""How its lines begin that tell of a route which was added or removed as a whole."""

_LIMITS = ("usd_per_day", "tokens_per_day", "requests_per_day")
# Exhausted from this share on, "all" is truer than a number.
_ALL = 0.995


@dataclass(frozen=True, slots=True, kw_only=True)
class _Day:
    """What one vantage sends to one provider in a day, under the names of the limits; `usd_per_day` is `None` when no
    target has a price.
    """

    provider: str
    requests_per_day: int
    tokens_per_day: int
    usd_per_day: float | None


def same_meaning(one: Plan | None, other: Plan) -> bool:
    """Whether two plans ask for the same measurements; the order of targets and budgets means nothing."""
    return (
        one is not None
        and (one.baseline, one.control) == (other.baseline, other.control)
        and _by_name(one) == _by_name(other)
        and set(one.budgets) == set(other.budgets)
        and _routes(one) == _routes(other)
    )


def compare(old: Plan | None, new: Plan, *, vantages: int = 0) -> PlanChange:
    """What applying `new` over `old` changes, with the daily figures of `new`; `vantages` counts those known."""
    before, after = _by_name(old) if old else {}, _by_name(new)
    altered = [
        f"{name}: {', '.join(_differences(before[name], after[name]))}"
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]
    if old and old.baseline != new.baseline:
        altered.insert(0, f"baseline: {old.baseline} → {new.baseline}")
    altered += _other_changes(old or Plan(version=0, baseline=""), new)
    return PlanChange(
        version=new.version,
        changed=not same_meaning(old, new),
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        altered=(*altered, *_forecast(new, vantages)),
        usd_per_day=usd_per_day(new),
        requests_per_day=requests_per_day(new),
    )


def _other_changes(old: Plan, new: Plan) -> Iterator[str]:
    if old.control != new.control:
        yield f"control: {old.control or 'none'} → {new.control or 'none'}"
    yield from _budget_changes(old.budgets, new.budgets)
    yield from _route_changes(_routes(old), _routes(new))
    yield from _paused_members(new)


def unchanged(plan: Plan) -> PlanChange:
    """The answer to a document that means what the plan in force already says."""
    return replace(compare(plan, plan), changed=False, altered=())


def requests_per_day(plan: Plan) -> int:
    """Requests one vantage sends in 24 hours."""
    return sum(_requests(target) for target in plan.targets)


def usd_per_day(plan: Plan) -> float | None:
    """What one vantage spends in 24 hours at most, in US dollars; `None` when no target has a price."""
    return _usd(plan.targets)


def _requests(target: Target) -> int:
    return 0 if target.paused else DAY_US // target.every_us * target.workload.concurrency


def _usd(targets: Iterable[Target]) -> float | None:
    costs = [_requests(t) * estimate_request(t).cost_usd(t.price) for t in targets if t.price is not None]
    return sum(costs) if costs else None


def _by_name(plan: Plan) -> dict[str, Target]:
    return {target.name: target for target in plan.targets}


def _differences(old: Target, new: Target) -> list[str]:
    changed = (f.name for f in fields(Target) if getattr(old, f.name) != getattr(new, f.name))
    return [_difference(name, getattr(old, name), getattr(new, name)) for name in changed]


def _difference(name: str, old: object, new: object) -> str:
    if name == "id":
        return "new series"
    if name == "paused":
        return "paused" if new else "no longer paused"
    if isinstance(old, int) and isinstance(new, int) and name.endswith("_us"):
        return f"{name.removesuffix('_us')} {durations.write(old)} → {durations.write(new)}"
    return name


def _budget_changes(old: Iterable[Budget], new: Iterable[Budget]) -> list[str]:
    before, after = ({(b.provider, b.vantage or ""): b for b in budgets} for budgets in (old, new))
    lines = []
    for whose in sorted(before.keys() | after.keys()):
        was, becomes = before.get(whose), after.get(whose)
        if was is None and becomes is not None:
            lines.append(f"budget of {_owner(becomes)}: {_limits(becomes)}")
        elif was is not None and becomes is None:
            lines.append(f"budget of {_owner(was)}: none any more, was {_limits(was)}")
        elif was is not None and becomes is not None and was != becomes:
            lines.append(f"budget of {_owner(becomes)}: {_limits(was)} → {_limits(becomes)}")
    return lines


def _routes(plan: Plan) -> dict[str, Route]:
    return {route.name: route for route in plan.routes}


def _route_changes(before: Mapping[str, Route], after: Mapping[str, Route]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        was, becomes = before.get(name), after.get(name)
        if becomes is None:
            yield f"{GONE_ROUTE}{name}"
        elif was is None:
            yield f"{NEW_ROUTE}{name}: {', '.join(becomes.members)}"
        elif was != becomes:
            yield f"route {name}: {', '.join(_route_differences(was, becomes))}"


def _route_differences(was: Route, becomes: Route) -> Iterator[str]:
    yield from (f"with {member}" for member in becomes.members if member not in was.members)
    yield from (f"without {member}" for member in was.members if member not in becomes.members)
    if was.members != becomes.members and set(was.members) == set(becomes.members):
        yield "members in another order"
    if was.slo != becomes.slo:
        yield f"slo {_promise(was.slo)} → {_promise(becomes.slo)}"
    yield from (
        name.replace("_", " ")
        for name in ("objective", "static_order", "residency")
        if getattr(was, name) != getattr(becomes, name)
    )


def _promise(slo: Slo) -> str:
    limit = "" if slo.ttft_p95_us is None else f" {durations.write(slo.ttft_p95_us)}"
    return f"{slo.name}{limit}{f' {slo.min_success:.4g}' if slo.min_success else ''}"


def _paused_members(plan: Plan) -> Iterator[str]:
    """Who is paused is never ranked, which is easily forgotten."""
    paused = {target.name for target in plan.targets if target.paused}
    for route in plan.routes:
        idle = [member for member in route.members if member in paused]
        if idle:
            yield f"route {route.name}: left out while paused: {', '.join(idle)}"


def _owner(budget: Budget) -> str:
    return f"{budget.provider} at {budget.vantage}" if budget.vantage else budget.provider


def _limits(budget: Budget) -> str:
    said = [_amount(name, limit) for name in _LIMITS if (limit := getattr(budget, name)) is not None]
    return f"{', '.join(said)} a day"


def _amount(name: str, amount: float) -> str:
    """An amount with its unit: `4.20 USD`, `5000 tokens`."""
    unit = name.removesuffix("_per_day")
    return f"{amount:.2f} USD" if unit == "usd" else f"{amount:.0f} {unit}"


def _forecast(plan: Plan, vantages: int) -> Iterator[str]:
    days = list(_days(plan))
    for day in days if len(days) > 1 else []:
        yield f"{PER_DAY}{day.provider}: {_whole(day, 1)} per vantage"
    if vantages > 1:
        whole = _Day(
            provider="",
            requests_per_day=sum(day.requests_per_day for day in days),
            tokens_per_day=sum(day.tokens_per_day for day in days),
            usd_per_day=usd_per_day(plan),
        )
        yield f"{PER_DAY}{_whole(whole, vantages)} for {vantages} known vantages"
    for budget in sorted(plan.budgets, key=_owner):
        yield from (
            f"{PER_DAY}{line}" for day in days if day.provider == budget.provider for line in _bound(day, budget)
        )


def _whole(day: _Day, vantages: int) -> str:
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


def _bound(day: _Day, budget: Budget) -> Iterator[str]:
    """The limit that is used up first, if any is before the day ends."""
    planned = {name: getattr(day, name) or 0 for name in _LIMITS}
    limits = {name: limit for name in _LIMITS if (limit := getattr(budget, name)) is not None}
    left_over = {name: 1 - limit / planned[name] for name, limit in limits.items() if planned[name] > limit}
    if left_over:
        name = max(left_over, key=lambda name: left_over[name])
        skipped = "all" if left_over[name] >= _ALL else f"about {max(left_over[name], 0.01):.0%} of"
        yield (
            f"{_owner(budget)}: at most {_amount(name, planned[name])} planned, "
            f"budget {_amount(name, limits[name])}: {skipped} rounds may be skipped_budget"
        )
