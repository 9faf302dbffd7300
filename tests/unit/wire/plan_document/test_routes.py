"""Routes of a plan: the meaning of each key, and every problem at once with its line."""

import pytest

from isochrone_collector.analysis import latency_targets
from isochrone_wire.answers import Metric
from isochrone_wire.model import Objective, Route, Slo
from isochrone_wire.plan_document.document import load
from isochrone_wire.plan_document.schema import CLASSES

PLAN = """\
baseline: us
targets:
  - {provider: a, model: m, base_url: "http://a", region: eu-central, price: {usd_per_m_output: 1}}
  - {provider: b, model: m, base_url: "http://b", region: us-east}
  - {provider: c, model: m, base_url: "http://c", dialect: anthropic}
routes:
"""


def routes_of(lines: str) -> tuple[Route, ...]:
    reading = load(PLAN + lines, version=1)
    assert reading.problems == ()
    assert reading.plan is not None
    return reading.plan.routes


def problems_of(lines: str) -> list[str]:
    reading = load(PLAN + lines, version=1)
    assert reading.plan is None
    return list(reading.problems)


def test_a_full_route() -> None:
    """Every key has its effect; limits are stored in microseconds."""
    (route,) = routes_of("""\
  - name: fast
    members: [a/m, b/m]
    slo:
      class: chat
      ttft_p95_ms: 800
      min_success: 0.99
      min_goodput: 0.9
      answer_tokens: 500
      answer_p95_ms: 8000
      min_tokens_per_second: 30
    objective: {ttft: 2.0, tail: 1.0, usd: 0.0, failure: 10, answer: 0.1}
    static_order: [b/m]
    residency: [eu]
    max_share: {b/m: 0.5}
""")
    assert route == Route(
        name="fast",
        members=("a/m", "b/m"),
        slo=Slo(
            name="chat",
            ttft_p95_us=800_000,
            min_success=0.99,
            min_goodput=0.9,
            answer_tokens=500,
            answer_p95_us=8_000_000,
            min_tokens_per_second=30.0,
        ),
        objective=Objective(ttft=2.0, tail=1.0, usd=0.0, failure=10.0, answer=0.1),
        static_order=("b/m",),
        residency=("eu",),
        max_share={"b/m": 0.5},
    )


@pytest.mark.parametrize(
    ("slo", "limit_us"),
    [
        ("", None),
        (", slo: {class: voice}", 300_000),
        (", slo: {class: agent}", 2_500_000),
        (", slo: {class: batch}", None),
        (", slo: {class: chat, ttft_p95_ms: 700}", 700_000),
        (", slo: {ttft_p95_ms: 0.5}", 500),
    ],
)
def test_a_class_gives_the_limit_that_is_not_said(slo: str, limit_us: int | None) -> None:
    """A class sets a limit, an explicit limit overrides it, and without a class there is none."""
    (route,) = routes_of(f"  - {{name: r, members: [a/m]{slo}}}")
    assert route.slo.ttft_p95_us == limit_us


def test_classes_are_the_uses_of_latency_budgets() -> None:
    """A class of a route and a latency target of the same name have the same limit."""
    uses = {use.name: use.limit_us // 1000 for use in latency_targets.USES if use.metric is Metric.TTFT}
    shared = uses.keys() & CLASSES.keys()
    assert shared >= {"voice", "code", "chat", "web"}
    assert {name: CLASSES[name] for name in shared} == {name: uses[name] for name in shared}


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("members: [a/m, b/n]", "unknown target 'b/n'; known: a/m, b/m, c/m; did you mean 'b/m'?"),
        ("members: []", "members: a route needs at least one member"),
        ("members: [a/m, a/m]", "members: 'a/m' is listed twice"),
        (
            "members: [a/m, c/m]",
            "c/m speaks anthropic and a/m speaks openai-chat; members of a route need the same dialect",
        ),
        (
            "members: [a/m], slo: {class: voise}",
            "class: unknown class 'voise'; known: agent, batch, chat, code, custom, voice, web; did you mean 'voice'?",
        ),
        (
            "members: [a/m], slo: {min_succes: 0.9}",
            (
                "unknown key 'min_succes'; known: answer_p95_ms, answer_tokens, class, min_goodput, min_success, "
                "min_tokens_per_second, ttft_p95_ms; did you mean 'min_success'?"
            ),
        ),
        (
            "members: [a/m], slo: 5",
            (
                "expected a mapping with class, ttft_p95_ms, min_success, min_goodput, answer_tokens, answer_p95_ms, "
                "min_tokens_per_second"
            ),
        ),
        (
            "members: [a/m], slo: {min_goodput: 95}",
            "min_goodput: 95 is not a share above 0 and below 1; 0.95 means 95 %",
        ),
        (
            "members: [a/m], slo: {answer_tokens: 500}",
            "a limit on the whole answer needs both answer_tokens and answer_p95_ms: answer_p95_ms is missing",
        ),
        (
            "members: [a/m], slo: {answer_p95_ms: 500}",
            "a limit on the whole answer needs both answer_tokens and answer_p95_ms: answer_tokens is missing",
        ),
        (
            "members: [a/m], objective: {answer: 1}",
            "answer is the weight of an answer of answer_tokens of `slo`, and there is no such length",
        ),
        (
            "members: [a/m], slo: {min_success: 99}",
            "min_success: 99 is not a share of at least 0 and below 1; 0.99 means 99 %",
        ),
        ("members: [a/m], slo: {ttft_p95_ms: 0}", "ttft_p95_ms: 0 is not above 0 and at most 600000"),
        ("members: [a/m], slo: {ttft_p95_ms: .nan}", "ttft_p95_ms: nan is not above 0 and at most 600000"),
        (
            "members: [a/m], slo: {class: voice, ttft_p95_ms: 900}",
            "900 ms is too much for class voice: class code already promises 500 ms",
        ),
        (
            "members: [a/m], slo: {class: batch, ttft_p95_ms: 900}",
            "class batch has no limit on first tokens: remove one of the two",
        ),
        (
            "members: [a/m], objective: {ttft: 0, tail: 0, usd: 0, failure: 0}",
            "an objective needs at least one weight above 0",
        ),
        (
            "members: [a/m], objective: {tail: 1}",
            "tail is the weight of p95 above ttft_p95_ms of `slo`, and there is no such limit",
        ),
        ("members: [a/m, b/m], objective: {usd: 1}", "usd cannot be ranked: b/m has no price"),
        ("members: [a/m], objective: {ttft: .inf}", "ttft: should be a finite number"),
        ("members: [a/m], static_order: [b/m]", "static_order: unknown member 'b/m'; known: a/m; did you mean 'a/m'?"),
        ("members: [a/m, b/m], residency: [cn]", "no member resides in cn; their regions: eu-central, us-east"),
        ("member: [a/m]", "'members' is missing"),
        ("members: [a/m], max_share: {b/m: 0.5}", "max_share: unknown member 'b/m'; known: a/m; did you mean 'a/m'?"),
        (
            "members: [a/m, b/m], max_share: {a/m: 50}",
            "a/m: 50 is not a share above 0 and at most 1; 0.5 means half of the traffic",
        ),
        (
            "members: [a/m, b/m], max_share: {a/m: 0.5, b/m: 0.4}",
            "the shares of all members add up to 0.9: at least 1 is needed to place all traffic",
        ),
    ],
)
def test_a_route_that_cannot_be_meant_is_refused(route: str, problem: str) -> None:
    """Each mistake is reported with its line, the valid values and the most similar one."""
    assert f"line 7: {problem}" in problems_of(f"  - {{name: r, {route}}}")


def test_all_problems_of_all_routes_come_at_once() -> None:
    """One wrong route hides no problem of another, and a name can be used once."""
    lines = """\
  - {name: r, members: [x/m]}
  - {name: r, members: [a/m], slo: {class: voice, ttft_p95_ms: 900}}
"""
    assert problems_of(lines) == [
        "line 7: unknown target 'x/m'; known: a/m, b/m, c/m; did you mean 'c/m'?",
        "line 8: 900 ms is too much for class voice: class code already promises 500 ms",
        "line 8: name 'r' is already used by the route in line 7",
    ]


def test_a_wrong_target_is_not_told_twice() -> None:
    """While a target is invalid, a reference to it is not reported as unknown."""
    text = PLAN.replace('model: m, base_url: "http://a"', 'modl: m, base_url: "http://a"')
    reading = load(text + "  - {name: r, members: [a/m]}", version=1)
    assert all(problem.startswith("line 3:") for problem in reading.problems)
