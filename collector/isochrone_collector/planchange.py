"""What changes from one plan to the next, and what a plan costs one vantage in a day."""

from dataclasses import fields, replace

from isochrone_wire.model import DAY_US, Plan, Target
from isochrone_wire.operations import PlanChange

_CHARS_PER_TOKEN = 4


def same_meaning(one: Plan | None, other: Plan) -> bool:
    """Whether two plans ask for the same measurements; the order of targets means nothing."""
    return one is not None and one.baseline == other.baseline and _by_name(one) == _by_name(other)


def compare(old: Plan | None, new: Plan) -> PlanChange:
    """What applying `new` over `old` changes, with the daily figures of `new`."""
    before, after = _by_name(old) if old else {}, _by_name(new)
    altered = [
        f"{name}: {', '.join(_differences(before[name], after[name]))}"
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]
    if old and old.baseline != new.baseline:
        altered.insert(0, f"baseline: {old.baseline} → {new.baseline}")
    return PlanChange(
        version=new.version,
        changed=not same_meaning(old, new),
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        altered=tuple(altered),
        usd_per_day=usd_per_day(new),
        requests_per_day=requests_per_day(new),
    )


def unchanged(plan: Plan) -> PlanChange:
    """The answer to a document that means what the plan in force already says."""
    return replace(compare(plan, plan), changed=False)


def requests_per_day(plan: Plan) -> int:
    """Requests one vantage sends in 24 hours."""
    return sum(_requests(target) for target in plan.targets)


def usd_per_day(plan: Plan) -> float | None:
    """What one vantage spends in 24 hours at most, in US dollars; `None` when no target has a price.

    Every answer is taken to use its whole `max_output_tokens`, and a prompt to have one token in four characters.
    """
    costs = [_requests(t) * t.price.cost_usd(**_tokens(t)) for t in plan.targets if t.price is not None]
    return sum(costs) if costs else None


def _requests(target: Target) -> int:
    return DAY_US // target.every_us * target.workload.concurrency


def _tokens(target: Target) -> dict[str, int]:
    prompt_tokens = -(-len(target.workload.prompt) // _CHARS_PER_TOKEN)
    return {"prompt_tokens": prompt_tokens, "output_tokens": target.workload.max_output_tokens}


def _by_name(plan: Plan) -> dict[str, Target]:
    return {target.name: target for target in plan.targets}


def _differences(old: Target, new: Target) -> list[str]:
    changed = [f.name.removesuffix("_us") for f in fields(Target) if getattr(old, f.name) != getattr(new, f.name)]
    return ["new series" if name == "id" else name for name in changed]
