"""Limits that the agent enforces on plans."""

import math
from dataclasses import replace
from typing import Any

import pytest

from isochrone_agent.plan.policy import limit_violations
from isochrone_wire import workloads
from isochrone_wire.model import SECOND_US, Budget, Plan, Price, Target, Timeouts, Workload

TARGET = Target(id=7, name="p/m", provider="p", model="m", base_url="https://h", price=Price())


def plan_of(*targets: Target, budgets: tuple[Budget, ...] = ()) -> Plan:
    return Plan(version=1, baseline="us", targets=targets, budgets=budgets)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"every_us": 200_000, "spread_us": 3600 * SECOND_US},
        {"price": None, "workload": Workload(concurrency=1000, max_output_tokens=100_000, temperature=2.0)},
        {"workload": Workload(prompt="x" * 100_000, timeouts=Timeouts(connect_us=1000, total_us=3600 * SECOND_US))},
    ],
)
def test_what_a_collector_may_apply_is_run(change: dict[str, Any]) -> None:
    """A value equal to its limit is allowed."""
    budget = Budget(provider="p", usd_per_day=0.0, tokens_per_day=10**15)
    assert limit_violations(plan_of(replace(TARGET, **change), budgets=(budget,))) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"every_us": 0}, "p/m has every_us 0, outside 200000 to "),
        ({"spread_us": -1}, "p/m has spread_us -1, outside 0 to "),
        ({"workload": Workload(concurrency=1001)}, "p/m has concurrency 1001, outside 1 to 1000"),
        ({"workload": Workload(max_output_tokens=0)}, "p/m has max_output_tokens 0, outside 1 to "),
        ({"workload": Workload(temperature=math.nan)}, "p/m has temperature nan, outside 0 to 2"),
        ({"workload": Workload(timeouts=Timeouts(first_token_us=0))}, "p/m has first_token_us 0, outside 1000 to "),
        ({"workload": Workload(prompt="")}, "p/m has bytes of the prompt 0, outside 1 to "),
        ({"price": Price(usd_per_m_output=-1.0)}, "p/m has usd_per_m_output -1, outside 0 to "),
        ({"credential": "x" * 201}, "p/m has characters of the credential 201, outside 0 to 200"),
        ({"dialect": "x" * 201}, "p/m has characters of the dialect 201, outside 1 to 200"),
        ({"region": "x" * 201}, "p/m has characters of the region 201, outside 0 to 200"),
        ({"name": ""}, "target 7 has characters of the name 0, outside 1 to "),
        (
            {"provider": "policy:total"},
            "p/m has the provider 'policy:total': the prefix policy: is ",
        ),
    ],
)
def test_a_limit_that_is_passed_is_named(change: dict[str, Any], sentence: str) -> None:
    """The sentence names the target, the value and the limit."""
    [problem] = limit_violations(plan_of(replace(TARGET, **change)))
    assert problem.startswith(sentence)


def test_the_whole_plan_has_limits() -> None:
    """The totals of targets, budgets and prompts are limited too, and a NaN budget is refused."""
    long = replace(TARGET, workload=Workload(prompt="x" * workloads.MAX_PROMPT_BYTES))
    assert limit_violations(plan_of(*[long] * 61)) == [
        "the plan has bytes of all prompts 6100000, outside 0 to 6000000"
    ]
    assert limit_violations(plan_of(*[TARGET] * 1001)) == ["the plan has targets 1001, outside 0 to 1000"]
    nan = Budget(provider="p", usd_per_day=math.nan)
    assert limit_violations(plan_of(budgets=(nan,))) == ["the budget of p has usd_per_day nan, outside 0 to 1000000"]
