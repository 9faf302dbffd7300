"""The policy file, what a policy refuses and counts, and the limits of every plan."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isochrone_agent.errors import SettingsError
from isochrone_agent.plan.budget import BudgetTracker
from isochrone_agent.plan.policy import Policy, describe_refused, limit_violations, load_policy, parse_policy
from isochrone_agent.settings import Settings
from isochrone_common.address import Address
from isochrone_wire import workloads
from isochrone_wire.model import (
    DAY_US,
    SECOND_US,
    Budget,
    Outcome,
    Plan,
    Price,
    Sample,
    Target,
    Timeouts,
    TlsFiles,
    Vantage,
    Workload,
)

TARGET = Target(
    id=1, name="a/m", provider="a", model="m", base_url="https://a.example/v1", workload=Workload(max_output_tokens=100)
)
TEXT = """
min_every_seconds = 1.0
max_streams = 4
requests_per_day = 3
networks = ["10.0.0.0/24"]
[[allow]]
url = "https://a.example/v1"
usd_per_day = 1.0
usd_per_m_input = 1e-9
usd_per_m_output = 10_000.0
[[allow]]
url = "https://b.example"
"""
A = "[[allow]]\nurl = 'https://a.example'\n"
DEAR_B = "[[allow]]\nurl = 'https://b.example'\nusd_per_m_input = 5\nusd_per_m_output = 50_000\n"
PRICES = "usd_per_day needs usd_per_m_input and usd_per_m_output above 0: a plan could state lower prices"


def policy(text: str = TEXT) -> Policy:
    return parse_policy(text, Path("policy.toml"))


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("client.pem", True),
        ("sub/client.pem", True),
        ("{folder}/client.pem", True),
        ("../secret.pem", False),
        ("{folder}/../secret.pem", False),
        ("link.pem", False),
        ("/etc/passwd", False),
        ("a\0b", False),
        ("circle", False),
    ],
)
@pytest.mark.parametrize("field", ["certificate", "key", "ca"])
def test_only_files_below_the_folder_are_opened(path: str, field: str, tmp_path: Path, *, is_allowed: bool) -> None:
    """A plan comes from the collector, so its paths lead nowhere else, also over links; without a folder, nowhere."""
    folder = tmp_path / "tls"
    folder.mkdir()
    (folder / "link.pem").symlink_to(tmp_path / "secret.pem")
    (folder / "circle").symlink_to(folder / "circle")
    target = replace(TARGET, tls=TlsFiles(**{field: path.format(folder=folder)}))
    refusal = policy(f"tls_files = '{folder}'\n{TEXT}").refusal(target)
    assert (refusal is None) is is_allowed, refusal
    assert policy().refusal(target) == "its plan names files under tls, and the policy has no tls_files"


def settings_of(folder: Path, **more: Any) -> Settings:
    collector = Address("127.0.0.1", 1)
    return Settings(vantage=Vantage(name="v", region="r"), collector=collector, data_dir=folder, **more)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"base_url": "https://b.example"}, None),
        ({"base_url": "https://a.example/v1?api-version=1"}, None),
        ({"base_url": "https://a.example?/v1"}, "https://a.example/chat/completions?/v1 is not below an allowed URL"),
        ({"base_url": "https://a.example/v1#x"}, "the base URL https://a.example/v1#x contains #"),
        (
            {"base_url": "https://user:secret@a.example/v1"},
            "a URL must not contain a user or password; API keys stay with the agent",
        ),
        ({"base_url": "https://a.example"}, "https://a.example/chat/completions is not below an allowed URL"),
        ({"every_us": SECOND_US - 1}, "its interval is 0.999999 s, and min_every_seconds is 1"),
        ({"workload": Workload(concurrency=5)}, "it has 5 concurrent streams, and max_streams is 4"),
        ({"dialect": "gemini", "model": "../x"}, "the path '/v1/models/../x"),
    ],
)
def test_a_target_outside_the_policy_is_refused(changes: dict[str, object], reason: str | None) -> None:
    """The reason names the value and the limit; the URL is that of the requests, which the dialect makes."""
    refusal = policy().refusal(replace(TARGET, **changes))  # type: ignore[arg-type]
    assert refusal is None if reason is None else (refusal or "").startswith(reason)


def test_refusals_name_a_few_targets() -> None:
    """Paused targets are not refused, and of many only the first ones are named."""
    targets = [replace(TARGET, name=f"t{n}", every_us=1) for n in range(5)]
    found = policy().refusals([*targets, replace(TARGET, name="paused", paused=True, every_us=1)])
    assert list(found) == ["t0", "t1", "t2", "t3", "t4"]
    assert describe_refused(found).endswith("(and 2 more)")
    assert describe_refused({}) == ""


def test_a_plan_can_neither_rename_nor_cheapen_its_way_around_a_limit() -> None:
    """Requests count per destination, under any provider name, and dollars at the policy's price or a higher one."""
    noon = 20_000 * DAY_US
    tracker = BudgetTracker("v", accounts=policy().accounts_of)
    free = replace(TARGET, provider="x", price=Price())
    # A response of 100 tokens may cost 1 USD.
    assert tracker.refusal(free, noon) is None
    tracker.begin(free)
    why = "usd_per_day of policy:https://a.example/v1 is 1: 1 used, this round may use 1"
    assert tracker.refusal(replace(free, provider="y"), noon) == why
    answer = Sample(target_id=1, round_at=noon, outcome=Outcome.OK, dispatched_at=noon, prompt_tokens=9)
    answer = replace(answer, output_tokens=10, cost_usd=0)
    [entries] = tracker.settle([answer], target=free, reserved=tracker.reservation(free, noon))
    assert [(one.provider, round(one.usd, 6), one.requests) for one in entries] == [
        ("x", 0.0, 1),
        ("policy:total", 0.1, 1),
        ("policy:total", -1.0, -1),
        ("policy:https://a.example/v1", 0.1, 1),
        ("policy:https://a.example/v1", -1.0, -1),
    ]
    tracker.end(free, [answer])
    elsewhere = replace(TARGET, provider="z", base_url="https://b.example")
    for used in (1, 2):
        assert tracker.refusal(elsewhere, noon) is None, used
        tracker.begin(elsewhere)
    assert tracker.refusal(elsewhere, noon) == "requests_per_day of policy:total is 3: 3 used, this round may use 1"


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("usd_per_day = 1\nusd_per_m_input = 0.1\nusd_per_m_output = 10_000", 10_000),
        (f"usd_per_day = 1\n{A}usd_per_m_input = 0.1\nusd_per_m_output = 10_000\n{DEAR_B}", 10_000),
        (f"usd_per_day = 1\nusd_per_m_input = 0.1\nusd_per_m_output = 1\n{A}usd_per_m_output = 20_000", 20_000),
    ],
    ids=["of-all-destinations", "of-the-url", "the-higher-one"],
)
def test_the_limit_of_all_dollars_has_prices_of_its_own(text: str, price: float) -> None:
    """A plan with a price of 0 does not evade it: it counts at the prices of the file."""
    free = replace(TARGET, price=Price())
    tracker = BudgetTracker("v", accounts=policy(text).accounts_of)
    [_, (charged, _)] = tracker._charged(free)
    assert (charged.provider, charged.price and charged.price.usd_per_m_output) == ("policy:total", price)
    tracker.begin(free)
    assert (tracker.refusal(free, 0) or "").startswith("usd_per_day of policy:total is 1")


def test_a_price_for_all_destinations_is_the_default_of_each() -> None:
    """An `[[allow]]` table with a limit in dollars needs no prices if the file has some for all destinations."""
    text = "usd_per_m_input = 1\nusd_per_m_output = 2\n[[allow]]\nurl = 'https://a.example'\nusd_per_day = 1"
    [account] = policy(text).accounts.values()
    assert account.price == Price(usd_per_m_input=1, usd_per_m_output=2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("min_evry_seconds = 1", "unknown key 'min_evry_seconds' (did you mean 'min_every_seconds'?)"),
        ("max_streams = 1.5", "max_streams is 1.5, which is not a whole number of at least 0"),
        ("requests_per_day = true", "requests_per_day is True, which is not a whole number of at least 0"),
        ("min_every_seconds = nan", "min_every_seconds is nan, which is not a number of at least 0"),
        ("networks = ['10.0.0.0/99']", "networks: '10.0.0.0/99' does not appear to be an IPv4 or IPv6 network"),
        ("networks = '10.0.0.0/8'", "networks is not a list"),
        ("allow = []", "allow is not a list of tables: write [[allow]]"),
        ("allow = ['https://a.example']", "allow is not a list of tables: write [[allow]]"),
        ("usd_per_day = 1.0", PRICES),
        ("usd_per_day = 1.0\nusd_per_m_input = 0\nusd_per_m_output = 1", PRICES),
        ("[[allow]]", "[[allow]] 1: url: the base URL does not begin with http:// or https://"),
        ("[[allow]]\nurl='https://a.example'\nkey='x'", "[[allow]] 1: unknown key 'key'"),
        ("[[allow]]\nurl='https://a.example'\nusd_per_day=1", f"[[allow]] 1: {PRICES}"),
        ("usd_per_day=1\n[[allow]]\nurl='https://a.example'", PRICES),
        (
            "[[allow]]\nurl='https://a.example'\n[[allow]]\nurl='https://a.example/'",
            "https://a.example is allowed twice",
        ),
    ],
)
def test_a_file_that_is_not_valid_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    """A mistake in the file stops the agent with a sentence, instead of allowing more than was meant."""
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        load_policy(settings_of(tmp_path))
    assert str(error.value) == f"{tmp_path / 'policy.toml'}: {problem}"


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """`--policy` with a file that is missing is an error, not the built-in policy."""
    with pytest.raises(SettingsError, match="does not exist"):
        load_policy(settings_of(tmp_path, policy=tmp_path / "x.toml"))


def test_volume_is_limited_if_every_request_counts() -> None:
    """A policy limits the volume with a limit for everything, or one for each allowed URL."""
    assert policy().limits_volume
    assert not Policy().limits_volume
    assert not policy("[[allow]]\nurl='https://a.example'").limits_volume
    assert policy("[[allow]]\nurl='https://a.example'\nrequests_per_day=1").limits_volume


PLANNED = Target(id=7, name="p/m", provider="p", model="m", base_url="https://h", price=Price())


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
    assert limit_violations(plan_of(replace(PLANNED, **change), budgets=(budget,))) == []


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
        ({"provider": "policy:total"}, "p/m has the provider 'policy:total': the prefix policy: is "),
    ],
)
def test_a_limit_that_is_passed_is_named(change: dict[str, Any], sentence: str) -> None:
    """The sentence names the target, the value and the limit."""
    [problem] = limit_violations(plan_of(replace(PLANNED, **change)))
    assert problem.startswith(sentence)


def test_the_whole_plan_has_limits() -> None:
    """The totals of targets, budgets and prompts are limited too, and a NaN budget is refused."""
    long = replace(PLANNED, workload=Workload(prompt="x" * workloads.TARGET_LIMITS["workload.prompt"][1]))
    assert limit_violations(plan_of(*[long] * 61)) == [
        "the plan has bytes of all prompts 6100000, outside 0 to 6000000"
    ]
    assert limit_violations(plan_of(*[PLANNED] * 1001)) == ["the plan has targets 1001, outside 0 to 1000"]
    nan = Budget(provider="p", usd_per_day=math.nan)
    assert limit_violations(plan_of(budgets=(nan,))) == ["the budget of p has usd_per_day nan, outside 0 to 1000000"]
