"""Diff of two plans: added, removed and altered targets, budgets and routes. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace

from isochrone_collector.analysis.differential.decision import margin_of
from isochrone_collector.plans.cost import budget_limits, budget_owner, forecast, requests_per_day, usd_per_day
from isochrone_wire import durations
from isochrone_wire.answers import Metric
from isochrone_wire.model import DEFAULT_GOODPUT, Budget, MarginRule, Plan, Route, Slo, Target
from isochrone_wire.operations import PlanChange

NEW_ROUTE = "new route "
GONE_ROUTE = "no more route "
"""The prefixes of the lines of `PlanChange.altered` for an added or removed route."""


def same_meaning(one: Plan | None, other: Plan) -> bool:
    """Return whether two plans make the same measurements; the order of targets and budgets is irrelevant."""
    return (
        one is not None
        and (one.baseline, one.control) == (other.baseline, other.control)
        and _by_name(one) == _by_name(other)
        and set(one.budgets) == set(other.budgets)
        and _routes(one) == _routes(other)
        and set(one.margins) == set(other.margins)
    )


def compare(old: Plan | None, new: Plan, *, vantages: int = 0) -> PlanChange:
    """Return the changes from `old` to `new`, with the daily figures of `new` for the known `vantages`."""
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
        altered=(*altered, *forecast(new, vantages)),
        usd_per_day=usd_per_day(new),
        requests_per_day=requests_per_day(new),
    )


def _other_changes(old: Plan, new: Plan) -> Iterator[str]:
    if old.control != new.control:
        yield f"control: {old.control or 'none'} → {new.control or 'none'}"
    yield from _margin_changes(old.margins, new.margins)
    yield from _budget_changes(old.budgets, new.budgets)
    yield from _route_changes(_routes(old), _routes(new))
    yield from _paused_members(new)


def unchanged(plan: Plan) -> PlanChange:
    """Return the result for a document with the same meaning as the plan in force."""
    return replace(compare(plan, plan), changed=False, altered=())


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


def _margin_changes(old: Iterable[MarginRule], new: Iterable[MarginRule]) -> Iterator[str]:
    before, after = ({rule.metric: rule for rule in rules} for rules in (old, new))
    for metric in sorted(before.keys() | after.keys()):
        was, becomes = before.get(metric), after.get(metric)
        if was != becomes:
            yield f"smallest {metric} difference that matters: {_margin(metric, was)} → {_margin(metric, becomes)}"


def _margin(metric: str, rule: MarginRule | None) -> str:
    """Return `20ms or 5 %`, with the defaults for what the rule leaves open."""
    margin = margin_of(Metric(metric), () if rule is None else (rule,))
    is_rate = Metric(metric).more_is_better
    least = f"{margin.least:g} {Metric(metric).unit}" if is_rate else durations.write(round(margin.least))
    return " or ".join([least] * bool(margin.least) + [f"{100 * margin.share:g} %"])


def _budget_changes(old: Iterable[Budget], new: Iterable[Budget]) -> list[str]:
    before, after = ({(b.provider, b.vantage or ""): b for b in budgets} for budgets in (old, new))
    lines = []
    for whose in sorted(before.keys() | after.keys()):
        was, becomes = before.get(whose), after.get(whose)
        if was is None and becomes is not None:
            lines.append(f"budget of {budget_owner(becomes)}: {budget_limits(becomes)}")
        elif was is not None and becomes is None:
            lines.append(f"budget of {budget_owner(was)}: none any more, was {budget_limits(was)}")
        elif was is not None and becomes is not None and was != becomes:
            lines.append(f"budget of {budget_owner(becomes)}: {budget_limits(was)} → {budget_limits(becomes)}")
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
