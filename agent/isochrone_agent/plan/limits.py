"""Limits that the agent enforces on every plan: a broken or compromised collector must not take it down. Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from isochrone_wire import workloads
from isochrone_wire.model import Budget, Plan, Target

# The name of the value, the function that reads it, and its lowest and highest allowed value.
_Bound = tuple[str, Callable[[Any], float | None], float, float]

_TARGET: tuple[_Bound, ...] = (
    ("every_us", lambda t: t.every_us, workloads.MIN_EVERY_US, workloads.MAX_EVERY_US),
    ("spread_us", lambda t: t.spread_us, 0, workloads.MAX_SPREAD_US),
    ("concurrency", lambda t: t.workload.concurrency, 1, workloads.MAX_CONCURRENCY),
    ("max_output_tokens", lambda t: t.workload.max_output_tokens, 1, workloads.MAX_OUTPUT_TOKENS),
    ("temperature", lambda t: t.workload.temperature, 0, workloads.MAX_TEMPERATURE),
    ("connect_us", lambda t: t.workload.timeouts.connect_us, workloads.MIN_TIMEOUT_US, workloads.MAX_TIMEOUT_US),
    (
        "first_token_us",
        lambda t: t.workload.timeouts.first_token_us,
        workloads.MIN_TIMEOUT_US,
        workloads.MAX_TIMEOUT_US,
    ),
    ("gap_us", lambda t: t.workload.timeouts.gap_us, workloads.MIN_TIMEOUT_US, workloads.MAX_TIMEOUT_US),
    ("total_us", lambda t: t.workload.timeouts.total_us, workloads.MIN_TIMEOUT_US, workloads.MAX_TIMEOUT_US),
    ("bytes of the prompt", lambda t: len(t.workload.prompt.encode()), 1, workloads.MAX_PROMPT_BYTES),
    ("characters of the effort", lambda t: len(t.workload.reasoning_effort or ""), 0, workloads.MAX_EFFORT_CHARS),
    ("characters of the name", lambda t: len(t.name), 1, 2 * workloads.MAX_NAME_CHARS + 1),
    ("characters of the provider", lambda t: len(t.provider), 1, workloads.MAX_NAME_CHARS),
    ("characters of the model", lambda t: len(t.model), 1, workloads.MAX_NAME_CHARS),
    ("characters of the dialect", lambda t: len(t.dialect), 1, workloads.MAX_NAME_CHARS),
    ("characters of the credential", lambda t: len(t.credential or ""), 0, workloads.MAX_NAME_CHARS),
    ("characters of the region", lambda t: len(t.region or ""), 0, workloads.MAX_NAME_CHARS),
    ("characters of the base URL", lambda t: len(t.base_url), 1, workloads.MAX_URL_CHARS),
    ("usd_per_m_input", lambda t: t.price and t.price.usd_per_m_input, 0, workloads.MAX_USD),
    ("usd_per_m_output", lambda t: t.price and t.price.usd_per_m_output, 0, workloads.MAX_USD),
)
_BUDGET: tuple[_Bound, ...] = (
    ("usd_per_day", lambda b: b.usd_per_day, 0, workloads.MAX_USD),
    ("tokens_per_day", lambda b: b.tokens_per_day, 0, workloads.MAX_AMOUNT),
    ("requests_per_day", lambda b: b.requests_per_day, 0, workloads.MAX_AMOUNT),
)
_PLAN: tuple[_Bound, ...] = (
    ("targets", lambda p: len(p.targets), 0, workloads.MAX_TARGETS),
    ("budgets", lambda p: len(p.budgets), 0, workloads.MAX_BUDGETS),
    ("bytes of all prompts", lambda p: _bytes_of_prompts(p.targets), 0, workloads.MAX_PROMPTS_BYTES),
)
_SHOWN_CHARS = 60
_RESERVED = f"the prefix {workloads.POLICY_PREFIX} is that of the agent's own policy"


def limit_violations(plan: Plan) -> list[str]:
    """Return one sentence for each limit that `plan` violates, naming the target, the value and the limit."""
    problems = list(_outside(plan, _PLAN, "the plan"))
    for target in plan.targets:
        name = target.name[:_SHOWN_CHARS] or f"target {target.id}"
        problems += _outside(target, _TARGET, name)
        if target.provider.startswith(workloads.POLICY_PREFIX):
            problems.append(f"{name} has the provider {target.provider[:_SHOWN_CHARS]!r}: {_RESERVED}")
    for budget in plan.budgets:
        problems += _outside(budget, _BUDGET, _whose(budget))
    return problems


def _outside(asked: object, bounds: Iterable[_Bound], whose: str) -> Iterator[str]:
    for what, read, low, high in bounds:
        value = read(asked)
        # Written this way round so that NaN is outside too.
        if value is not None and not low <= value <= high:
            yield f"{whose} has {what} {value:.10g}, outside {low:.10g} to {high:.10g}"


def _bytes_of_prompts(targets: Iterable[Target]) -> int:
    return sum(len(target.workload.prompt.encode()) for target in targets)


def _whose(budget: Budget) -> str:
    return f"the budget of {budget.provider[:_SHOWN_CHARS]}"
