"""Plan documents: the meaning of each key, and every problem at once with its line; no text is harmful."""

import re
from typing import Any

import pytest

from isochrone_collector.analysis import latency_targets
from isochrone_wire.answers import Metric
from isochrone_wire.model import (
    DEFAULT_PROMPT,
    Budget,
    MarginRule,
    Objective,
    Overlap,
    Plan,
    Price,
    Route,
    Slo,
    Target,
    Timeouts,
    TlsFiles,
    Workload,
    target_id,
)
from isochrone_wire.plan_document import document, schema
from isochrone_wire.plan_document.document import load
from isochrone_wire.plan_document.schema import CLASSES

FULL = """\
baseline: us-east-2
every: 60s
overlap: skip
workloads:
  short: {prompt: "Hi", max_output_tokens: 40, temperature: 0, reasoning_effort: null, timeouts: {connect: 5s}}
providers:
  deepseek: {base_url: https://api.deepseek.com/v1, dialect: openai-chat, credential: deepseek}
targets:
  - model: deepseek-v4-flash
    provider: deepseek
    workload: short
    every: 30s
    region: cn-hangzhou
    price: {usd_per_m_input: 0.1, usd_per_m_output: 0.25}
  - model: local
    provider: sim
    name: the local one
    base_url: http://127.0.0.1:8080/v1/
    overlap: allow
    workload: {max_output_tokens: 7, temperature: null}
"""

DIALECTS = "anthropic, cohere, gemini, openai-chat, openai-responses"
KEYS = {
    "document": "baseline, budgets, control, every, margins, overlap, paused, providers, routes, spread, targets, "
    "workloads",
    "workload": "concurrency, connection, max_output_tokens, prompt, reasoning_effort, temperature, timeouts",
    "target": "base_url, credential, dialect, every, happy_eyeballs, model, name, omit, overlap, paused, price, "
    "provider, region, spread, tls, workload",
    "limits": "requests_per_day, tokens_per_day, usd_per_day, vantage",
}


def plan_of(text: str) -> Plan:
    reading = load(text, version=3)
    assert reading.problems == ()
    assert reading.plan is not None
    return reading.plan


def problems_of(text: str) -> list[str]:
    reading = load(text, version=1)
    assert reading.plan is None
    return list(reading.problems)


def test_a_full_document() -> None:
    """Every key has its effect, and missing keys of a target are taken from its provider, then from the document."""
    short = Workload(prompt="Hi", max_output_tokens=40, temperature=0.0, timeouts=Timeouts(connect_us=5_000_000))
    own = Workload(prompt=DEFAULT_PROMPT, max_output_tokens=7, temperature=None)
    first, second = plan_of(FULL).targets
    assert first == Target(
        id=target_id(
            provider="deepseek",
            model="deepseek-v4-flash",
            base_url="https://api.deepseek.com/v1",
            dialect="openai-chat",
            workload=short,
        ),
        name="deepseek/deepseek-v4-flash",
        provider="deepseek",
        model="deepseek-v4-flash",
        base_url="https://api.deepseek.com/v1",
        workload=short,
        every_us=30_000_000,
        credential="deepseek",
        price=Price(usd_per_m_input=0.1, usd_per_m_output=0.25),
        region="cn-hangzhou",
    )
    assert second == Target(
        id=second.id,
        name="the local one",
        provider="sim",
        model="local",
        base_url="http://127.0.0.1:8080/v1",
        workload=own,
        overlap=Overlap.ALLOW,
    )
    assert (plan_of(FULL).version, plan_of(FULL).baseline) == (3, "us-east-2")


def test_omitted_fields_are_those_of_the_target_or_its_provider() -> None:
    """A target's `omit` replaces its provider's; only with it the id is another, in any order of the names."""
    text = """
baseline: us
providers:
  p: {base_url: "https://p.example/v1", omit: [stream_options]}
targets:
  - {provider: p, model: m, name: a}
  - {provider: p, model: m, name: b, omit: []}
  - {provider: p, model: m, name: c, omit: [temperature, max_tokens]}
"""
    found = plan_of(text).targets
    assert [target.omit for target in found] == [("stream_options",), (), ("temperature", "max_tokens")]
    place: Any = {"provider": "p", "model": "m", "base_url": "https://p.example/v1", "dialect": "openai-chat"}
    ids = [
        target_id(**place, workload=Workload(), omit=o) for o in (["stream_options"], [], ["max_tokens", "temperature"])
    ]
    assert [target.id for target in found] == ids
    assert len(set(ids)) == len(ids)
    assert ids[1] == target_id(**place, workload=Workload())


def test_files_of_tls_are_those_of_the_target_or_its_provider() -> None:
    """A target's `tls` replaces its provider's."""
    text = """
baseline: b
providers: {p: {base_url: "https://p.example/v1", tls: {ca: ca.pem}}}
targets:
  - {provider: p, model: a}
  - {provider: p, model: b, tls: {certificate: b.pem, key: b.key}}
"""
    assert [target.tls for target in plan_of(text).targets] == [
        TlsFiles(ca="ca.pem"),
        TlsFiles(certificate="b.pem", key="b.key"),
    ]


def test_spelling_is_not_meaning() -> None:
    """Order, quotes, comments, spelled-out defaults and a trailing slash change nothing; no targets are a plan."""
    plain = "baseline: us\ntargets:\n  - {model: a, provider: p, base_url: http://h/v1}\n"
    fancy = """\
targets:
  - base_url: "http://h/v1/"   # with a slash
    provider: p
    name: p/a
    model: 'a'
    every: 1m
    workload: {max_output_tokens: 200}
baseline: "us"
overlap: skip
"""
    assert plan_of(plain) == plan_of(fancy)
    assert plan_of("baseline: us\ntargets: []") == Plan(version=3, baseline="us")


def test_timeouts_do_not_start_a_new_series() -> None:
    """The id follows what is measured; limits and prices may change under it."""
    changed = FULL.replace("connect: 5s", "connect: 6s").replace("0.25", "0.3")
    assert [t.id for t in plan_of(changed).targets] == [t.id for t in plan_of(FULL).targets]
    assert plan_of(FULL.replace('"Hi"', '"Ho"')).targets[0].id != plan_of(FULL).targets[0].id


def test_all_problems_come_at_once() -> None:
    """One wrong key hides no other problem, not even one that involves several parts."""
    text = """\
baselin: us
every: 60
workloads:
  short: {promt: Hi}
providers:
  p: {base_url: "ftp://x", dialect: openai-chatt}
targets:
  - {model: a, provider: p, workload: shrt}
  - {provider: q, modle: b}
  - {model: c, provider: pp}
"""
    assert problems_of(text) == [
        "line 1: 'baseline' is missing",
        f"line 1: unknown key 'baselin'; did you mean 'baseline'? known: {KEYS['document']}",
        "line 2: every: 60 has no unit: write 60s or 60ms",
        f"line 4: unknown key 'promt'; did you mean 'prompt'? known: {KEYS['workload']}",
        "line 6: base_url: 'ftp://x' is not an http or https URL",
        f"line 6: dialect: unknown dialect 'openai-chatt'; did you mean 'openai-chat'? known: {DIALECTS}",
        "line 8: unknown workload 'shrt'; did you mean 'short'? known: short",
        "line 9: 'model' is missing",
        f"line 9: unknown key 'modle'; did you mean 'model'? known: {KEYS['target']}",
        "line 10: no base_url: set one here, or for provider 'pp' under `providers`; did you mean 'p'?",
    ]


TARGET = "baseline: us\ntargets:\n  - {model: a, provider: p, base_url: http://h, %s}\n"


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("base_url: https://user:key@h", "line 3: base_url: a URL must not contain a user"),
        ("base_url: 'https://h/?key=1'", "line 3: base_url: a URL must not contain a key"),
        ("base_url: https://h/v1/responses", "line 3: base_url: a base URL does not end with /responses"),
        ("base_url: 'http://h:99999'", "line 3: base_url: 'http://h:99999' is not an http"),
        ("base_url: 'http://'", "line 3: base_url: 'http://' is not an http"),
        ("every: 199ms", "line 3: every: 199ms is outside 200ms to 7d"),
        ("every: 8d", "line 3: every: 8d is outside 200ms to 7d"),
        ("overlap: jump", "line 3: overlap: 'jump' is not an overlap policy: use skip or allow"),
        ("overlap: [skip]", "line 3: overlap: ['skip'] is not an overlap policy"),
        ("name: ''", "line 3: name: "),
        ('name: "a\\tb"', "line 3: name: 'a\\tb' contains control characters"),
        ("name: 5", "line 3: name: should be a valid string"),
        ("region: [x]", "line 3: region: should be a valid string"),
        ("workload: 5", "line 3: expected a mapping with prompt, max_output_tokens"),
        ("workload: {max_output_tokens: 0}", "line 3: max_output_tokens: "),
        ("workload: {max_output_tokens: 1.5}", "line 3: max_output_tokens: "),
        ("workload: {temperature: .nan}", "line 3: temperature: "),
        ("workload: {timeouts: {total: 2h}}", "line 3: total: 2h is outside 1ms to 1h"),
        (
            "workload: {timeouts: {totl: 2s}}",
            "line 3: unknown key 'totl'; did you mean 'total'? known: connect, first_token, gap",
        ),
        ("price: {usd_per_m_output: -1}", "line 3: usd_per_m_output: "),
        ("price: {usd_per_m_output: .inf}", "line 3: usd_per_m_output: "),
        (
            "omit: [model]",
            "line 3: omit: unknown optional field of dialect openai-chat 'model'; known: max_completion_",
        ),
        ("omit: [max_tokens, max_completion_tokens]", "line 3: omit: max_tokens or max_completion_tokens must be sent"),
        ("dialect: anthropic, omit: [stream_options]", "line 3: omit: unknown optional field of dialect anthropic"),
        ("omit: [store, store]", "line 3: omit: 'store' is listed twice"),
        ("tls: {key: a.key}", "line 3: tls: a key needs a certificate"),
        ("tls: a.pem", "line 3: expected a mapping with certificate, key, ca"),
        ("price: 3", "line 3: expected a mapping with usd_per_m_input, usd_per_m_output"),
        ("paused: 1", "line 3: paused: should be a valid boolean"),
        ("pause: true", "line 3: unknown key 'pause'"),
        ("spread: 10", "line 3: spread: 10 has no unit: write 10s or 10ms"),
        ("spread: 2h, every: 3h", "line 3: spread: 2h is outside 0us to 1h"),
        ("spread: 60s", "line 3: spread: 1m is not shorter than the interval, 1m"),
        ("provider: 'policy:x'", "line 3: provider: 'policy:x' begins with policy:, which is reserved"),
    ],
)
def test_bounds(key: str, problem: str) -> None:
    """The values of a target have limits, and the message names the key."""
    name = key.partition(":")[0]
    found = problems_of(re.sub(rf"(?<=[ {{]){name}: [^,]+, ", "", TARGET, count=1) % key)
    assert any(p.startswith(problem) for p in found), found


def test_a_plan_has_limits() -> None:
    """A prompt has at most 100 000 bytes, all of them together 6 000 000, and a plan at most a thousand targets."""
    assert plan_of(TARGET % f"workload: {{prompt: {'x' * 100_000}}}").targets
    [problem] = problems_of(TARGET % f"workload: {{prompt: {'ü' * 50_001}}}")
    assert "100000 bytes" in problem
    text = f"baseline: us\nworkloads: {{long: {{prompt: {'x' * 90_000}}}, short: {{}}}}\ntargets:\n"
    line = "  - {{model: m{}, provider: p, base_url: http://h, workload: {}}}\n"
    for most, prompt, problem in (
        (66, "long", "line 3: the prompts of all targets have 6030000 bytes together; the maximum is 6000000"),
        (1_000, "short", "line 3: targets: "),
    ):
        assert len(plan_of(text + "".join(line.format(n, prompt) for n in range(most))).targets) == most
        [found] = problems_of(text + "".join(line.format(n, prompt) for n in range(most + 1)))
        assert found.startswith(problem)


def test_twins_are_refused() -> None:
    """Two targets with the same name or the same id are refused."""
    text = """\
baseline: us
targets:
  - {model: a, provider: p, base_url: http://h}
  - {model: b, provider: p, base_url: http://h, name: p/a}
  - {model: a, provider: p, base_url: http://h/, name: other}
"""
    assert problems_of(text) == [
        "line 4: name 'p/a' is already used by the target in line 3",
        "line 5: measures the same as the target in line 3",
    ]


@pytest.mark.parametrize("text", ["", "7", "- a", "baseline: us", "targets: {}", "baseline: us\ntargets: [1, null, x]"])
def test_whatever_comes_is_answered(text: str) -> None:
    """A document that is not a plan results in problems, not in an exception."""
    assert problems_of(text)


def test_a_workload_says_how_it_connects_and_how_many_at_once() -> None:
    """`connection` and `concurrency` reach the plan, make another target, and only their known words are taken."""
    text = "baseline: a\ntargets:\n  - {provider: p, model: m, base_url: 'http://x', workload: {%s}}\n"
    plans = [load(text % more, version=1).plan for more in ("", "connection: warm", "concurrency: 8")]
    workloads = [plan.targets[0].workload for plan in plans if plan]
    assert [(w.connection.value, w.concurrency) for w in workloads] == [("cold", 1), ("warm", 1), ("cold", 8)]
    assert len({plan.targets[0].id for plan in plans if plan}) == 3
    assert "use cold or warm" in load(text % "connection: tepid", version=1).problems[0]


NEAREST = """\
baseline: us
spread: 2s
paused: true
providers:
  p: {base_url: http://h, spread: 3s, paused: false}
targets:
  - {model: a, provider: p}
  - {model: b, provider: p, spread: 4s, paused: true}
  - {model: c, provider: p, spread: 0s}
  - {model: d, provider: q, base_url: http://h}
"""


def test_the_nearest_word_on_spread_and_pause_holds() -> None:
    """A target's setting overrides its provider's, and that the document's, also if it is `false` or 0."""
    told = [(target.spread_us // 1_000_000, target.paused) for target in plan_of(NEAREST).targets]
    assert told == [(3, False), (4, True), (0, False), (2, True)]


BUDGETED = """\
baseline: us
targets:
  - {model: a, provider: p, base_url: http://h, price: {usd_per_m_output: 1}}
  - {model: b, provider: q, base_url: http://h}
budgets:
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  p: {usd_per_day: 5}", (Budget(provider="p", usd_per_day=5.0),)),
        (
            "  p: {usd_per_day: 0, requests_per_day: 7}\n  q: {vantage: sg-1, tokens_per_day: 9}",
            (
                Budget(provider="p", usd_per_day=0.0, requests_per_day=7),
                Budget(provider="q", vantage="sg-1", tokens_per_day=9),
            ),
        ),
        (
            "  - {provider: p, usd_per_day: 5}\n  - {provider: p, vantage: sg-1, usd_per_day: 1}",
            (Budget(provider="p", usd_per_day=5.0), Budget(provider="p", vantage="sg-1", usd_per_day=1.0)),
        ),
        ("  []", ()),
    ],
)
def test_budgets_come_as_a_list_or_by_provider(text: str, expected: tuple[Budget, ...]) -> None:
    """A mapping has one budget per provider; a list can also have budgets per vantage."""
    assert plan_of(BUDGETED + text).budgets == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "  p: {usd_per_dy: 5}",
            f"line 6: unknown key 'usd_per_dy'; did you mean 'usd_per_day'? known: {KEYS['limits']}",
        ),
        ("  p: {}", "line 6: a budget needs usd_per_day, tokens_per_day or requests_per_day"),
        ("  p: {usd_per_day: -1}", "line 6: usd_per_day: "),
        ("  p: {usd_per_day: .nan}", "line 6: usd_per_day: "),
        ("  p: {tokens_per_day: 1.5}", "line 6: tokens_per_day: "),
        ("  p: {requests_per_day: true}", "line 6: requests_per_day: "),
        ("  p: 5", "line 6: expected a mapping with vantage, usd_per_day"),
        ("  pp: {requests_per_day: 5}", "line 6: unknown provider of any target 'pp'; did you mean 'p'? known: p, q"),
        ("  q: {usd_per_day: 5}", "line 6: usd_per_day cannot be enforced: q/b has no price"),
        ("  - {requests_per_day: 5}", "line 6: 'provider' is missing"),
        (
            "  - {provider: q, tokens_per_day: 5}\n  - {provider: q, requests_per_day: 5}",
            "line 7: the budget of 'q' is already in line 6",
        ),
        ("  5", "line 5: budgets: expected a list of budgets, or a mapping"),
    ],
)
def test_problems_of_budgets(text: str, problem: str) -> None:
    """A budget without limits, or one that cannot be enforced, is a problem of its line."""
    found = problems_of(BUDGETED + text)
    assert [p for p in found if p.startswith(problem)], found


EFFORT = """\
baseline: us
workloads:
  hard: {{reasoning_effort: {effort}}}
targets:
  - {{provider: p, base_url: "http://h", dialect: {dialect}, model: {model}, workload: hard}}
"""


@pytest.mark.parametrize(
    ("dialect", "model", "effort", "words"),
    [
        ("anthropic", "claude-opus-4-5", "hgih", "did you mean 'high'? known: high, low, medium, none"),
        ("anthropic", "claude-opus-4-5", "max", "known: high, low, medium, none"),
        ("gemini", "gemini-3.5-flash", "none", "known: high, low, medium, minimal"),
        ("cohere", "command-a", "minimal", "known: high, low, medium, none"),
        ("openai-chat", "m", "hgih", "did you mean 'high'?"),
        ("openai-responses", "m", "meduim", "did you mean 'medium'?"),
        ("anthropic", "claude-opus-4-7", "max", None),
        ("gemini", "gemini-2.5-flash", "none", None),
        ("openai-chat", "m", "xhigh", None),
        ("openai-chat", "m", "highest", None),
        ("openai-chat", "m", "turbo", None),
    ],
)
def test_efforts(dialect: str, model: str, effort: str, words: str | None) -> None:
    """An effort that the API does not support, or a misspelt one, is a problem; any other is accepted."""
    text = EFFORT.format(dialect=dialect, model=model, effort=effort)
    if words is None:
        assert plan_of(text).targets[0].workload.reasoning_effort == effort
        return
    [problem] = problems_of(text)
    assert problem.startswith("line 5: ")
    assert f"'{effort}'" in problem
    assert words in problem


def test_a_stored_plan_is_not_judged_again() -> None:
    """A stored plan is not judged again; a control target is one of the plan, or refused with the nearest."""
    text = EFFORT.format(dialect="anthropic", model="claude-opus-4-5", effort="hgih")
    assert load(text, version=1, stored=True).problems == ()
    text = "baseline: us\ntargets:\n  - {model: a, provider: p, base_url: 'http://h'}\n"
    assert [plan_of(text + more).control for more in ("", "control: p/a")] == ["", "p/a"]
    assert problems_of(text + "control: pa") == ["line 4: control: unknown target 'pa'; did you mean 'p/a'? known: p/a"]


def test_margins_are_set_by_metric() -> None:
    """A margin has a duration, or tokens per second for a rate, a percentage, or both; what is left out is open."""
    text = FULL + (
        "margins:\n  tokens_per_second: {least: 2.5}\n  ttft: {least: 30ms, percent: 10}\n  rtt: {percent: 2}\n"
    )
    assert plan_of(text).margins == (
        MarginRule(metric="ttft", least=30_000.0, percent=10.0),
        MarginRule(metric="tokens_per_second", least=2.5),
        MarginRule(metric="rtt", percent=2.0),
    )
    assert plan_of(FULL).margins == ()


@pytest.mark.parametrize(
    ("margins", "problem"),
    [
        (
            "ttfb: {least: 30ms}",
            "unknown metric 'ttfb'; did you mean 'ttft'? known: connect, e2e, rtt, tokens_per_second, ttfat",
        ),
        ("ttft: {least: 30}", "least: 30 has no unit: write 30s or 30ms"),
        ("ttft: {least: 2h}", "least: 2h is outside 0us to 1h"),
        ("tokens_per_second: {least: 30ms}", "least: should be a valid number"),
        ("rtt: {percent: 200}", "percent: should be less than or equal to 100"),
        ("rtt: {lest: 2ms}", "unknown key 'lest'; did you mean 'least'? known: least, percent"),
        ("e2e: 20ms", "expected a mapping with least, percent"),
    ],
)
def test_problems_of_margins(margins: str, problem: str) -> None:
    """An unknown metric, a size of another kind and an unknown key are named with their line."""
    [found] = problems_of(f"{FULL}margins:\n  {margins}\n")
    assert found.startswith("line 22: ")
    assert problem in found


def test_a_document_full_of_mistakes_is_read_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most a hundred problems are listed, and similar names are looked for only for these."""
    sought: list[str] = []

    def guess(name: str, _known: object) -> str:
        sought.append(name)
        return ""

    monkeypatch.setattr("isochrone_wire.text.did_you_mean", guess)
    keys = "".join(f"ky{number}: 1\n" for number in range(500))
    assert problems_of(FULL + keys)[-1] == "at most 100 problems are listed"
    assert len(sought) <= 101
    workloads = "".join(f"  w{number}: {{}}\n" for number in range(500))
    targets = "".join(f"  - {{model: m{n}, provider: p, base_url: 'http://h', workload: v{n}}}\n" for n in range(500))
    found = problems_of(f"baseline: us\nworkloads:\n{workloads}targets:\n{targets}")
    assert len(found) == 101
    assert found[0].startswith("line 504: unknown workload 'v0'; known: w0, w1")


SLO_KEYS = (
    *("class", "ttft_p95_ms", "min_success", "min_goodput", "answer_tokens", "answer_p95_ms"),
    "min_tokens_per_second",
)
SORTED_KEYS = ", ".join(sorted(SLO_KEYS))
USES = "agent, batch, chat, code, custom, voice, web"
ROUTED = """\
baseline: us
targets:
  - {provider: a, model: m, base_url: "http://a", region: eu-central, price: {usd_per_m_output: 1}}
  - {provider: b, model: m, base_url: "http://b", region: us-east}
  - {provider: c, model: m, base_url: "http://c", dialect: anthropic}
routes:
"""


def test_a_full_route() -> None:
    """Every key has its effect; limits are stored in microseconds."""
    (route,) = plan_of(
        ROUTED
        + """\
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
"""
    ).routes
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
        ("{}", None),
        ("{class: voice}", 300_000),
        ("{class: agent}", 2_500_000),
        ("{class: batch}", None),
        ("{class: chat, ttft_p95_ms: 700}", 700_000),
        ("{ttft_p95_ms: 0.5}", 500),
    ],
)
def test_a_class_gives_the_limit_that_is_not_said(slo: str, limit_us: int | None) -> None:
    """A class sets a limit, an explicit limit overrides it, and without a class there is none."""
    (route,) = plan_of(ROUTED + f"  - {{name: r, members: [a/m], slo: {slo}}}").routes
    assert route.slo.ttft_p95_us == limit_us


def test_classes_are_the_uses_of_latency_budgets() -> None:
    """A class of a route and a latency target of the same name have the same limit."""
    uses = {use.name: use.limit_us // 1000 for use in latency_targets.USES if use.metric is Metric.TTFT}
    shared = uses.keys() & CLASSES.keys()
    assert shared >= {"voice", "code", "chat", "web"}
    assert {name: CLASSES[name] for name in shared} == {name: uses[name] for name in shared}


NEEDS_BOTH = "a limit on the whole answer needs both answer_tokens and answer_p95_ms"


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("members: [a/m, b/n]", "unknown target 'b/n'; did you mean 'b/m'? known: a/m, b/m, c/m"),
        ("members: []", "members: [] is empty: a route needs at least one member"),
        ("members: [a/m, a/m]", "members: 'a/m' is listed twice"),
        (
            "members: [a/m, c/m]",
            "c/m speaks anthropic and a/m speaks openai-chat; members of a route need the same dialect",
        ),
        ("slo: {class: voise}", f"class: unknown class 'voise'; did you mean 'voice'? known: {USES}"),
        ("slo: {min_succes: 0.9}", f"unknown key 'min_succes'; did you mean 'min_success'? known: {SORTED_KEYS}"),
        ("slo: 5", f"expected a mapping with {', '.join(SLO_KEYS)}"),
        ("slo: {min_goodput: 95}", "min_goodput: 95 is not a share above 0 and below 1; 0.95 means 95 %"),
        ("slo: {answer_tokens: 500}", f"{NEEDS_BOTH}: answer_p95_ms is missing"),
        ("slo: {answer_p95_ms: 500}", f"{NEEDS_BOTH}: answer_tokens is missing"),
        (
            "objective: {answer: 1}",
            "answer is the weight of an answer of answer_tokens of `slo`, and there is no such length",
        ),
        ("slo: {min_success: 99}", "min_success: 99 is not a share of at least 0 and below 1; 0.99 means 99 %"),
        ("slo: {ttft_p95_ms: 0}", "ttft_p95_ms: 0 is not above 0 and at most 600000"),
        ("slo: {ttft_p95_ms: .nan}", "ttft_p95_ms: nan is not above 0 and at most 600000"),
        (
            "slo: {class: voice, ttft_p95_ms: 900}",
            "900 ms is too much for class voice: class code already promises 500 ms",
        ),
        ("slo: {class: batch, ttft_p95_ms: 900}", "class batch has no limit on first tokens: remove one of the two"),
        ("objective: {ttft: 0, tail: 0, usd: 0, failure: 0}", "an objective needs at least one weight above 0"),
        (
            "objective: {tail: 1}",
            "tail is the weight of p95 above ttft_p95_ms of `slo`, and there is no such limit",
        ),
        ("members: [a/m, b/m], objective: {usd: 1}", "usd cannot be ranked: b/m has no price"),
        ("objective: {ttft: .inf}", "ttft: should be a finite number"),
        ("static_order: [b/m]", "static_order: unknown member 'b/m'; did you mean 'a/m'? known: a/m"),
        ("members: [a/m, b/m], residency: [cn]", "no member resides in cn; their regions: eu-central, us-east"),
        ("member: [a/m]", "'members' is missing"),
        ("max_share: {b/m: 0.5}", "max_share: unknown member 'b/m'; did you mean 'a/m'? known: a/m"),
        ("max_share: {a/m: 50}", "a/m: 50 is not a share above 0 and at most 1; 0.5 means half of the traffic"),
        (
            "members: [a/m, b/m], max_share: {a/m: 0.5, b/m: 0.4}",
            "the shares of all members add up to 0.9: at least 1 is needed to place all traffic",
        ),
    ],
)
def test_a_route_that_cannot_be_meant_is_refused(route: str, problem: str) -> None:
    """Each mistake is reported with its line, the valid values and the most similar one."""
    members = "" if route.startswith("member") else "members: [a/m], "
    assert f"line 7: {problem}" in problems_of(ROUTED + f"  - {{name: r, {members}{route}}}")


def test_all_problems_of_all_routes_come_at_once() -> None:
    """A wrong route hides no problem of another, a name is used once, and an invalid target is not unknown, too."""
    lines = """\
  - {name: r, members: [x/m]}
  - {name: r, members: [a/m], slo: {class: voice, ttft_p95_ms: 900}}
"""
    assert problems_of(ROUTED + lines) == [
        "line 7: unknown target 'x/m'; did you mean 'c/m'? known: a/m, b/m, c/m",
        "line 8: 900 ms is too much for class voice: class code already promises 500 ms",
        "line 8: name 'r' is already used by the route in line 7",
    ]

    text = ROUTED.replace('model: m, base_url: "http://a"', 'modl: m, base_url: "http://a"')
    assert all(problem.startswith("line 3:") for problem in problems_of(text + "  - {name: r, members: [a/m]}"))


TEXT = """\
# a comment
a: 1
list:
  - x: 1
    y: 2
  -
    x: 3
inline: {p: 1,
  q: 2}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 2),
        (("a",), 2),
        (("list",), 3),
        (("list", 0), 4),
        (("list", 0, "y"), 5),
        (("list", 1), 7),
        (("inline", "p"), 8),
        (("inline", "q"), 9),
        (("inline", "r"), 8),
        (("nowhere", 7), 2),
    ],
)
def test_lines(path: schema.Path, line: int) -> None:
    """A part has its own line, and a missing part has the line of its parent; the data are plain."""
    read = document.read_yaml(TEXT)
    assert read.line_of(path) == line
    assert read.data == {"a": 1, "list": [{"x": 1, "y": 2}, {"x": 3}], "inline": {"p": 1, "q": 2}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: the document is empty"),
        ("# only a comment", "line 1: the document is empty"),
        ("a: 1\nb: [", "line 2: not YAML: "),
        ("a: 1\n b: 2", "line 2: not YAML: "),
        ("a: &x 1\nb: *x", "line 2: aliases"),
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' is already in line 1"),
        ("a: 1\n7: 2", "line 2: a key must be text: write '7' in quotes"),
        ("a: 1\nyes: 2", "line 2: a key must be text: write 'yes' in quotes"),
        ("[" * 50_000, "line 1: nested more than 12 levels deep"),
        ("a: !!python/object/apply:os.getcwd []", "line 1: not YAML: could not determine a constructor"),
        ("a: 2026-02-30", "line 1: not YAML: day is out of range"),
        ("a: \x07", "line 1: not YAML: unacceptable character"),
        ("a: " + "x" * 4_000_001, "line 1: the document is larger"),
        ("a: [" + "0," * 200_001 + "]", "line 1: the document has more than 200000 keys and values"),
        ("a: 1\n---\nb: 2", "line 2: not YAML: but found another document"),
        ("%TAG !a! b\n" * 1_001 + "---\na: 1", "line 1: more than 1000 lines begin with %"),
        ('a: !!int ""', "line 1: not YAML: a value does not fit its tag"),
        ("a: !!bool maybe", "line 1: not YAML: a value does not fit its tag"),
        ("a: !!timestamp soon", "line 1: not YAML: a value does not fit its tag"),
        ("? [a, b]\n: 1", "line 1: not YAML: found unhashable key"),
        ("a: 1\n" + "b" * 500 + ": 1\n" + "b" * 500 + ": 2", f"line 3: key '{'b' * 99}…' is already in line 2"),
    ],
)
def test_whatever_is_wrong_becomes_a_problem(text: str, problem: str) -> None:
    """Parsing never raises, and each problem has a line."""
    found = [str(p) for p in document.read_yaml(text).problems]
    assert [p for p in found if p.startswith(problem)], found


@pytest.mark.parametrize("text", ["a: !{} 1", "a: !!bool {}"])
def test_a_reason_repeats_little_of_the_text(text: str) -> None:
    """A tag or a value of any length is cut."""
    [problem] = document.read_yaml(text.format("x" * 100_000)).problems
    assert problem.message.startswith("not YAML: ")
    assert len(problem.message) < 3_000


@pytest.mark.parametrize("text", ["1" * 5_000, "0x" + "f" * 5_000, "1:" * 2_000 + "1", "1:" * 2_000 + "1.5"])
def test_long_numbers_are_text(text: str) -> None:
    """A number of thousands of digits is never computed: that takes quadratic time, and no message could show it."""
    assert document.read_yaml(f"a: {text}").data == {"a": text}
    assert document.read_yaml(f"? {text}\n: 1").data == {text: 1}


def test_not_every_problem_is_listed() -> None:
    """Of thousands of problems the first are listed, and all lines are known."""
    source = document.read_yaml("\n".join(f"{number}: 1" for number in range(5_000)))
    assert [problem.line for problem in source.problems] == list(range(1, document.MAX_PROBLEMS + 1))
    assert source.line_of(("4999",)) == 5_000
