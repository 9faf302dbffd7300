"""Diff of two plans: added, removed and altered targets, budgets and routes. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from isochrone_collector.analysis.differential.decision import margin_of
from isochrone_wire import durations
from isochrone_wire.answers import Metric
from isochrone_wire.model import DAY_US, DEFAULT_GOODPUT, Budget, MarginRule, Plan, Route, Slo, Target
from isochrone_wire.operations import PlanChange
from isochrone_wire.workloads import estimate_request

PER_DAY = "per day: "
"""The prefix of the lines of `PlanChange.altered` that forecast a day."""

Key = TypeVar("Key", str, tuple[str, str])
Named = TypeVar("Named", Target, Route)
Rule = TypeVar("Rule", MarginRule, Budget, Route)
_LIMITS = ("usd_per_day", "tokens_per_day", "requests_per_day")
# From this share of skipped rounds on, the forecast is "all" instead of a percentage.
_ALL = 0.995


@dataclass(frozen=True, slots=True, kw_only=True)
class _Day:
    """The daily consumption of a vantage at a provider; `usd_per_day` is `None` if no target has a price."""

    provider: str
    requests_per_day: int
    tokens_per_day: int
    usd_per_day: float | None


def forecast(plan: Plan, vantages: int) -> Iterator[str]:
    """Yield the lines of the forecast: per provider, for all known vantages, and the budgets that will be exhausted."""
    providers = sorted({target.provider for target in plan.targets})
    days = [_day(name, [target for target in plan.targets if target.provider == name]) for name in providers]
    for day in days if len(days) > 1 else []:
        yield f"{PER_DAY}{day.provider}: {_total(day, 1)} per vantage"
    if vantages > 1:
        yield f"{PER_DAY}{_total(_day('', plan.targets), vantages)} for {vantages} known vantages"
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


def _day(provider: str, targets: Sequence[Target]) -> _Day:
    requests = [0 if one.paused else DAY_US // one.every_us * one.workload.concurrency for one in targets]
    estimates = [(n, one.price, estimate_request(one)) for n, one in zip(requests, targets, strict=True)]
    costs = [n * estimate.cost_usd(price) for n, price, estimate in estimates if price is not None]
    return _Day(
        provider=provider,
        requests_per_day=sum(requests),
        tokens_per_day=sum(n * estimate.tokens for n, _, estimate in estimates),
        usd_per_day=sum(costs) if costs else None,
    )


def _amount(name: str, amount: float) -> str:
    unit = name.removesuffix("_per_day")
    return f"{amount:.2f} USD" if unit == "usd" else f"{amount:.0f} {unit}"


def _total(day: _Day, vantages: int) -> str:
    requests = f"{day.requests_per_day * vantages} requests"
    return requests if day.usd_per_day is None else f"{requests}, at most {day.usd_per_day * vantages:.2f} USD"


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


NEW_ROUTE = "new route "
GONE_ROUTE = "no more route "
"""The prefixes of the lines of `PlanChange.altered` for an added or removed route."""


def same_meaning(one: Plan | None, other: Plan) -> bool:
    """Return whether two plans make the same measurements; the order of targets and budgets is irrelevant."""
    return (
        one is not None
        and (one.baseline, one.control) == (other.baseline, other.control)
        and _by_name(one.targets) == _by_name(other.targets)
        and set(one.budgets) == set(other.budgets)
        and _by_name(one.routes) == _by_name(other.routes)
        and set(one.margins) == set(other.margins)
    )


def compare(old: Plan | None, new: Plan, *, vantages: int = 0) -> PlanChange:
    """Return the changes from `old` to `new`, with the daily figures of `new` for the known `vantages`."""
    before, after = _by_name(old.targets) if old else {}, _by_name(new.targets)
    altered = [
        f"{name}: {', '.join(_differences(before[name], after[name]))}"
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]
    if old and old.baseline != new.baseline:
        altered.insert(0, f"baseline: {old.baseline} → {new.baseline}")
    altered += _other_changes(old or Plan(version=0, baseline=""), new)
    day = _day("", new.targets)
    return PlanChange(
        version=new.version,
        changed=not same_meaning(old, new),
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        altered=(*altered, *forecast(new, vantages)),
        usd_per_day=day.usd_per_day,
        requests_per_day=day.requests_per_day,
    )


def _other_changes(old: Plan, new: Plan) -> Iterator[str]:
    if old.control != new.control:
        yield f"control: {old.control or 'none'} → {new.control or 'none'}"
    yield from _margin_changes(old.margins, new.margins)
    yield from _budget_changes(old.budgets, new.budgets)
    yield from _route_changes(_by_name(old.routes), _by_name(new.routes))
    yield from _paused_members(new)


def unchanged(plan: Plan) -> PlanChange:
    """Return the result for a document with the same meaning as the plan in force."""
    return replace(compare(plan, plan), changed=False, altered=())


def _by_name(listed: Iterable[Named]) -> dict[str, Named]:
    return {one.name: one for one in listed}


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


def _changed(before: Mapping[Key, Rule], after: Mapping[Key, Rule]) -> Iterator[tuple[Key, Rule | None, Rule | None]]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield key, before.get(key), after.get(key)


def _margin_changes(old: Iterable[MarginRule], new: Iterable[MarginRule]) -> Iterator[str]:
    before, after = ({rule.metric: rule for rule in rules} for rules in (old, new))
    for metric, was, becomes in _changed(before, after):
        yield f"smallest {metric} difference that matters: {_margin(metric, was)} → {_margin(metric, becomes)}"


def _margin(metric: str, rule: MarginRule | None) -> str:
    """Return `20ms or 5 %`, with the defaults for what the rule leaves open."""
    margin = margin_of(Metric(metric), () if rule is None else (rule,))
    is_rate = Metric(metric).more_is_better
    least = f"{margin.least:g} {Metric(metric).unit}" if is_rate else durations.write(round(margin.least))
    return " or ".join([least] * bool(margin.least) + [f"{100 * margin.share:g} %"])


def _budget_changes(old: Iterable[Budget], new: Iterable[Budget]) -> Iterator[str]:
    before, after = ({(b.provider, b.vantage or ""): b for b in budgets} for budgets in (old, new))
    for _, was, becomes in _changed(before, after):
        if becomes is not None:
            earlier = f"{budget_limits(was)} → " if was else ""
            yield f"budget of {budget_owner(becomes)}: {earlier}{budget_limits(becomes)}"
        elif was is not None:
            yield f"budget of {budget_owner(was)}: none any more, was {budget_limits(was)}"


def _route_changes(before: Mapping[str, Route], after: Mapping[str, Route]) -> Iterator[str]:
    for name, was, becomes in _changed(before, after):
        if becomes is None:
            yield f"{GONE_ROUTE}{name}"
        elif was is None:
            yield f"{NEW_ROUTE}{name}: {', '.join(becomes.members)}"
        else:
            yield f"route {name}: {', '.join(_route_differences(was, becomes))}"


def _route_differences(was: Route, becomes: Route) -> Iterator[str]:
    yield from (f"with {member}" for member in becomes.members if member not in was.members)
    yield from (f"without {member}" for member in was.members if member not in becomes.members)
    if was.members != becomes.members and set(was.members) == set(becomes.members):
        yield "members in another order"
    if was.slo != becomes.slo:
        yield f"slo {_slo_text(was.slo)} → {_slo_text(becomes.slo)}"
    yield from (
        name.replace("_", " ")
        for name in ("objective", "static_order", "residency", "max_share")
        if getattr(was, name) != getattr(becomes, name)
    )


def _slo_text(slo: Slo) -> str:
    parts = [
        "" if slo.ttft_p95_us is None else durations.write(slo.ttft_p95_us),
        f"{slo.min_success:.4g}" if slo.min_success else "",
        "" if slo.min_goodput == DEFAULT_GOODPUT else f"{slo.min_goodput:.4g} in time",
        "" if slo.answer_p95_us is None else f"{slo.answer_tokens} tokens in {durations.write(slo.answer_p95_us)}",
        "" if slo.min_tokens_per_second is None else f"{slo.min_tokens_per_second:g} tokens/s",
    ]
    return " ".join([slo.name, *filter(None, parts)])


def _paused_members(plan: Plan) -> Iterator[str]:
    """Yield a warning for each route with paused members: they are never ranked, which is easily forgotten."""
    paused = {target.name for target in plan.targets if target.paused}
    for route in plan.routes:
        idle = [member for member in route.members if member in paused]
        if idle:
            yield f"route {route.name}: left out while paused: {', '.join(idle)}"
