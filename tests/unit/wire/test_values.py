"""Values of the wire: durations, names, texts, accounts, absences, and the estimate of a request."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_agent.plan.budget import max_round_cost
from isochrone_collector.plans import diff
from isochrone_common.dialects import DIALECTS, NO_QUIRKS
from isochrone_wire import durations
from isochrone_wire.answers import Absence, Metric, Order, Window
from isochrone_wire.fleet import Liveness, VantageStatus, absences, absences_besides
from isochrone_wire.model import DAY_US, MINUTE_US, Account, Heartbeat, Outcome, Plan, Price, Target, Workload
from isochrone_wire.text import (
    aligned,
    did_you_mean,
    endpoint_url,
    first_of,
    is_http_url,
    nearest,
    printable,
    same_name,
    unknown,
)
from isochrone_wire.workloads import estimate_request, supported_efforts

AGENT_PAGE = Path(__file__).parents[3] / "docs" / "agent.md"


def test_the_page_of_outcomes_says_which_are_failures() -> None:
    """Every outcome has a row; it is a failure for goodput, and for routes and alerts, as code counts it."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.+) \| (.+) \| (.+) \|$", AGENT_PAGE.read_text(), re.MULTILINE)
    told = {name: counts for name, *counts in rows if name in set(Outcome)}
    assert set(told) == set(Outcome)
    assert {name for name, counts in told.items() if counts[0] == counts[2] == "failure"} == {
        one for one in Outcome if one.failed
    }
    assert {name for name, counts in told.items() if counts[1] == "failure"} == {
        one for one in Outcome if one.failed or one is Outcome.THROTTLED
    }


@pytest.mark.parametrize(
    ("text", "us", "written"),
    [
        ("1us", 1, "1us"),
        ("500ms", 500_000, "500ms"),
        ("30s", 30_000_000, "30s"),
        ("60s", 60_000_000, "1m"),
        ("90s", 90_000_000, "90s"),
        ("1.5s", 1_500_000, "1500ms"),
        ("0.1s", 100_000, "100ms"),
        ("5m", 300_000_000, "5m"),
        ("1h", 3_600_000_000, "1h"),
        ("1d", 86_400_000_000, "1d"),
    ],
)
def test_written_durations(text: str, us: int, written: str) -> None:
    """Each unit is parsed exactly, without rounding, and written with the largest exact unit."""
    assert (durations.parse_us(text), durations.write(us), durations.parse_us(written)) == (us, written, us)


@pytest.mark.parametrize("bad", [60, 1.5, "60", "", "s", "-1s", "1 s", "1S", "1h30m", "1e3s", "٣s", None, True, ["1s"]])
def test_text_that_is_not_a_duration(bad: object) -> None:
    """A number without a unit, or any other value, is a ValueError with a message for the user."""
    with pytest.raises(ValueError, match=r"no unit|not a duration"):
        durations.parse_us(bad)


def test_each_spelling_is_the_same_member() -> None:
    """A metric and an order may be written with `-` or `_`, as in the answer to the other question."""
    assert Metric("tokens-per-second") is Metric.TOKENS_PER_SECOND
    assert Order("ttft_cold") is Order.TTFT_COLD
    for member in (*Metric, *Order):
        assert type(member)(member.upper().replace("-", "_")) is member


@pytest.mark.parametrize("name", ["", "speed", "ttft cold"])
def test_other_names_are_none(name: str) -> None:
    """An unknown name is an error, not the nearest member."""
    with pytest.raises(ValueError, match="is not a valid Metric"):
        Metric(name)


@pytest.mark.parametrize(
    ("account", "missing"),
    [
        (Account(finished=0, stored=0, spooled=0), 0),
        (Account(finished=10, stored=4, spooled=3, dropped={"spool_full": 2, "unknown_target": 1}), 0),
        (Account(finished=10, stored=4, spooled=3, dropped={"spool_full": 2}), 1),
        (Account(finished=10, stored=9, spooled=3), -2),
        # A sample in quarantine is on disk.
        (Heartbeat(finished=9, stored=3, spool_depth=2, quarantined=3, dropped={"spool_full": 1}).account, 0),
    ],
)
def test_what_is_nowhere_is_counted(account: Account, missing: int) -> None:
    """Lost samples give a positive number, samples counted twice a negative one."""
    assert account.missing == missing
    assert account.holds == (missing == 0)


NOW_AT = 1_763_800_000_000_000
WINDOW = Window(from_at=NOW_AT - 60 * MINUTE_US, until_at=NOW_AT)
LATE = VantageStatus(
    name="us-1", region="us-east-2", liveness=Liveness.LATE, reason="last heartbeat 2 h ago", last_seen_at=NOW_AT
)
ONLINE = replace(LATE, name="sg-1", region="ap-southeast-1", newest_sample_at=NOW_AT - MINUTE_US)


@pytest.mark.parametrize(
    ("region", "sentence"),
    [
        ("eu-west-1", "no samples from eu-west-1: start an agent there"),
        ("us-east-2", "no samples from us-east-2 (vantage us-1: last heartbeat 2 h ago)"),
        ("ap-southeast-1", "no samples from ap-southeast-1 in this selection, but sg-1 there has delivered others"),
    ],
)
def test_each_region_has_its_reason(region: str, sentence: str) -> None:
    """A region without a vantage needs an agent; a vantage that delivers nothing, or something else, is named."""
    assert absences([region], [LATE, ONLINE], WINDOW) == (Absence(region=region, sentence=sentence),)


def test_the_newest_vantage_of_a_region_is_named() -> None:
    """Of several vantages the one with the newest sample is named: the others are worse."""
    fresh = replace(LATE, name="us-2", newest_sample_at=NOW_AT - 180 * MINUTE_US)
    [found] = absences(["us-east-2"], [LATE, fresh], WINDOW)
    assert found.sentence.startswith("no samples from us-east-2 (vantage us-2: ")


def test_a_second_region_is_missing() -> None:
    """With a single region in the fleet any other one is missing; otherwise the baseline and the others are named."""
    assert absences_besides("us-east-2", [LATE], WINDOW, baseline="us-east-2") == (
        Absence(region="", sentence="no samples from a second region: start an agent there"),
    )
    found = absences_besides("us-east-2", [LATE, ONLINE], WINDOW, baseline="eu-west-1")
    assert [one.region for one in found] == ["eu-west-1", "ap-southeast-1"]


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
    assert estimate_request(replace(TARGET, workload=replace(WORKLOAD, prompt=prompt))).prompt_tokens == tokens


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
    assert diff.compare(None, Plan(version=1, baseline="us", targets=(target,))).usd_per_day == pytest.approx(most.usd)
    body = DIALECTS[dialect].request(target, nonce="0" * 12, key=None, quirks=NO_QUIRKS).body
    limits = [limit for limit in (100, 1_124, 4_196, 16_484, 32_868) if f": {limit}" in body.decode()]
    assert limits == [estimate_request(target).output_tokens]


TARGETS = ["moonshot/kimi-k2.5", "openai/gpt-5-mini", "deepseek/deepseek-v4-flash"]


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("kimi-k25", TARGETS, "moonshot/kimi-k2.5"),
        ("gpt5-mini", TARGETS, "openai/gpt-5-mini"),
        ("OpenAI/GPT-5", TARGETS, "openai/gpt-5-mini"),
        ("us-eat-2", ["us-east-2", "us-west-2"], "us-east-2"),
        ("abc", ["xyz"], None),
        ("us-eat-2", ["us-east-2", *map(str, range(2_000))], None),
    ],
)
def test_the_nearest_name_is_offered(name: str, known: list[str], meant: str | None) -> None:
    """A short name is compared with last parts; nothing that is not alike is guessed, nor sought among thousands."""
    assert nearest(name, known) == meant
    assert did_you_mean(name, known) == (f"; did you mean {meant!r}?" if meant else "")


@pytest.mark.parametrize(
    ("name", "found"),
    [("tokens-per-second", "tokens_per_second"), ("TTFT", "ttft"), ("ttft_", None), ("tokens per second", None)],
)
def test_spellings_of_one_name(name: str, found: str | None) -> None:
    """Case, and `-` in place of `_`, make no other name; anything else does."""
    assert same_name(name, ["ttft", "tokens_per_second"]) == found


@pytest.mark.parametrize(
    ("most", "shown"), [(1, "a and 2 more"), (2, "a, b and 1 more"), (3, "a, b, c"), (9, "a, b, c")]
)
def test_the_first_names_and_the_number_of_the_others(most: int, shown: str) -> None:
    """A long list is shortened to its beginning, and states how many names were left out."""
    assert first_of(["a", "b", "c"], most) == shown
    assert first_of([], most) == ""


def test_columns_are_aligned() -> None:
    """Each column is as wide as its widest cell, and no line ends with a space."""
    rows = [("name", "role"), ("a", "an operator"), ("longest", "")]
    assert aligned(rows).splitlines() == ["name     role", "a        an operator", "longest"]


@given(st.text())
def test_nothing_can_steer_the_terminal(text: str) -> None:
    """No escape, newline or direction mark reaches the screen; letters of any script stay as they are."""
    assert printable(text).isprintable()
    assert printable("Qwen 千问, naïve") == "Qwen 千问, naïve"


def test_an_unknown_name_is_told_with_what_is_known() -> None:
    """The sentence quotes the name, lists the first known ones and guesses what was meant."""
    known = ["us-east-2", "eu-west-1"]
    guess = "unknown region 'us-eat-2'; did you mean 'us-east-2'? known: eu-west-1, us-east-2"
    assert unknown("region", "us-eat-2", known) == guess
    assert unknown("region", "x", []) == "unknown region 'x'; known: none yet"
    sentence = unknown("target", "zzz", [f"provider/model-{n:04}" for n in range(1_000)])
    assert "and 980 more" in sentence
    assert len(sentence) < 600


@pytest.mark.parametrize(
    ("text", "is_usable"),
    [
        ("https://api.example/v1", True),
        ("http://[::1]:81", True),
        ("ftp://api.example", False),
        ("https://", False),
        ("https://api.example:0", False),
        ("https://api.example:70000", False),
        ("http://[::1", False),
    ],
)
def test_urls_of_http(text: str, *, is_usable: bool) -> None:
    """They have one of two schemes, a host, and a port from 1 to 65535 if any."""
    assert is_http_url(text) is is_usable


@pytest.mark.parametrize(
    ("base_url", "endpoint", "expected"),
    [
        ("https://h/v1/", "chat/completions", "https://h/v1/chat/completions"),
        ("https://h/d/m?api-version=1", "/chat/completions", "https://h/d/m/chat/completions?api-version=1"),
        ("https://h/v1?a=1", "models/m:go?alt=sse", "https://h/v1/models/m:go?a=1&alt=sse"),
    ],
)
def test_the_endpoint_goes_before_the_query(base_url: str, endpoint: str, expected: str) -> None:
    """A base URL may have a query, as Azure documents it; that of the endpoint follows."""
    assert endpoint_url(base_url, endpoint) == expected
