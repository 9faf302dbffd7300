"""The request estimate: one function for the agent's budgets and the collector's forecasts."""

from dataclasses import replace

import pytest

from isochrone_agent.plan.budget import max_round_cost
from isochrone_agent.probe.dialects import DIALECTS, NO_QUIRKS
from isochrone_collector.plans import diff
from isochrone_wire.model import DAY_US, Plan, Price, Target, Workload
from isochrone_wire.workloads import estimate_prompt_tokens, estimate_request, supported_efforts

WORKLOAD = Workload(prompt="Hi, you!", max_output_tokens=100)
TARGET = Target(
    id=7, name="p/m", provider="p", model="claude-opus-4-5", base_url="http://h", workload=WORKLOAD, every_us=DAY_US
)
EFFORTS = [
    (dialect, effort) for dialect in DIALECTS for effort in (None, *(supported_efforts(dialect, "m-1") or ("high",)))
]


@pytest.mark.parametrize(("prompt", "tokens"), [("", 0), ("x", 1), ("xxxx", 1), ("xxxxx", 2), ("语" * 4, 3)])
def test_a_token_for_four_bytes(prompt: str, tokens: int) -> None:
    """Bytes are counted, not characters, and a partial token counts as one."""
    assert estimate_prompt_tokens(prompt) == tokens


@pytest.mark.parametrize(
    ("dialect", "effort", "output"),
    [
        ("anthropic", None, 100),
        ("anthropic", "none", 100),
        ("anthropic", "low", 1_124),
        ("anthropic", "high", 16_484),
        ("anthropic", "max", 32_868),
        ("gemini", "high", 100),
        ("openai-chat", "high", 100),
    ],
)
def test_an_effort_adds_what_it_lets_a_request_add(dialect: str, effort: str | None, output: int) -> None:
    """Anthropic's output limit is raised by the thinking tokens; elsewhere the limit covers both."""
    target = replace(TARGET, dialect=dialect, workload=replace(WORKLOAD, reasoning_effort=effort))
    most = estimate_request(target)
    assert (most.prompt_tokens, most.output_tokens, most.tokens) == (2, output, output + 2)


@pytest.mark.parametrize(("dialect", "effort"), EFFORTS)
def test_both_sides_and_the_request_agree(dialect: str, effort: str | None) -> None:
    """The agent's reservation, the collector's forecast and the request's limit are equal."""
    target = replace(
        TARGET,
        dialect=dialect,
        workload=replace(WORKLOAD, reasoning_effort=effort),
        price=Price(usd_per_m_input=1.0, usd_per_m_output=10.0),
    )
    most = max_round_cost(target)
    assert diff.usd_per_day(Plan(version=1, baseline="us", targets=(target,))) == pytest.approx(most.usd)
    body = DIALECTS[dialect].request(target, nonce="0" * 12, key=None, quirks=NO_QUIRKS).body
    limits = [limit for limit in (100, 1_124, 4_196, 16_484, 32_868) if f": {limit}" in body.decode()]
    assert limits == [estimate_request(target).output_tokens]
