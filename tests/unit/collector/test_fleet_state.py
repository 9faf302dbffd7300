"""Liveness and spend of vantages, and free space on the disk."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from isochrone_collector.disk_space import DiskLevel, DiskSpace
from isochrone_collector.fleet_state import (
    LATE_GRACE_US,
    Spender,
    VantageState,
    budget_of,
    classify,
    fresh_us,
    reported,
    spend_lines,
)
from isochrone_wire import durations
from isochrone_wire.fleet import Liveness
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Budget, Plan, Price, Spend, Target, Workload

NOW_AT = 1_795_248_000_000_000
EVERY_30_S = Target(id=1, name="a", provider="p", model="a", base_url="http://h", every_us=30 * SECOND_US)
EVERY_5_MIN = replace(EVERY_30_S, id=2, every_us=5 * MINUTE_US)
PLAN = Plan(version=4, baseline="us", targets=(EVERY_30_S, EVERY_5_MIN))
PAUSED = replace(PLAN, targets=(replace(EVERY_30_S, paused=True),))
SLOW = replace(PLAN, targets=(replace(EVERY_30_S, paused=True), EVERY_5_MIN))
WELL = VantageState(
    name="ohio-1",
    region="us-east-2",
    first_seen_at=NOW_AT - DAY_US,
    last_seen_at=NOW_AT - 3 * SECOND_US,
    next_heartbeat_at=NOW_AT + 12 * SECOND_US,
    newest_sample_at=NOW_AT - 20 * SECOND_US,
    plan_version=4,
)


@pytest.mark.parametrize(
    ("changes", "plan", "expected"),
    [
        ({}, PLAN, "online: samples arrive"),
        ({"newest_sample_at": NOW_AT - 90 * SECOND_US}, PLAN, "online: samples arrive"),
        ({"newest_sample_at": NOW_AT + 5 * SECOND_US}, PLAN, "online: samples arrive"),
        (
            {"newest_sample_at": NOW_AT - 91 * SECOND_US},
            PLAN,
            "silent: last heartbeat 3 s ago, but its newest sample is 91 s old",
        ),
        ({"newest_sample_at": NOW_AT - 15 * MINUTE_US}, SLOW, "online: samples arrive"),
        (
            {"newest_sample_at": NOW_AT - 16 * MINUTE_US},
            SLOW,
            "silent: last heartbeat 3 s ago, but its newest sample is 16 min",
        ),
        ({"newest_sample_at": None}, PLAN, "silent: last heartbeat 3 s ago, but no sample since it joined 24 h ago"),
        ({"newest_sample_at": None}, None, "empty: no plan has been applied yet"),
        ({"newest_sample_at": None}, Plan(version=2, baseline="us"), "empty: plan 2 has no targets"),
        ({"newest_sample_at": None}, PAUSED, "empty: every target of plan 4 is paused"),
        ({}, PAUSED, "online: samples arrive"),
        ({"next_heartbeat_at": NOW_AT - LATE_GRACE_US}, PLAN, "online: samples arrive"),
        (
            {"next_heartbeat_at": NOW_AT - LATE_GRACE_US - 1},
            PLAN,
            "late: last heartbeat 3 s ago; the next was due 5 s ago",
        ),
        ({"next_heartbeat_at": NOW_AT - DAY_US}, None, "late: last heartbeat 3 s ago; the next was due 24 h ago"),
        ({"next_heartbeat_at": None}, PLAN, "online: samples arrive"),
        ({"next_heartbeat_at": NOW_AT - DAY_US, "stopped": True}, PLAN, "stopped: its agent was stopped 3 s ago"),
        (
            {"stopped": True, "spool_depth": 7},
            PLAN,
            "stopped: its agent was stopped 3 s ago; 7 samples wait in its spool",
        ),
        (
            {"next_heartbeat_at": None, "last_seen_at": NOW_AT - 3 * MINUTE_US},
            PLAN,
            "late: last heartbeat 3 min ago; the next was due 2 min ago",
        ),
    ],
)
def test_a_vantage_is_what_was_last_heard_of_it(changes: dict[str, Any], plan: Plan | None, expected: str) -> None:
    """An overdue heartbeat is late, fresh samples are online, an empty plan is empty, all else is silent."""
    liveness, reason = classify(replace(WELL, **changes), now_at=NOW_AT, plan=plan)
    assert f"{liveness}: {reason}".startswith(expected)


@pytest.mark.parametrize(
    ("changes", "clue"),
    [
        ({"refused_plan_version": 4, "plan_version": 3}, "it refuses plan 4"),
        ({"refused_plan_version": 3}, "see its log for the probes"),
        ({"plan_version": 0, "spool_depth": 9}, "it does not run plan 4"),
        ({"spool_depth": 9}, "9 samples wait in its spool"),
        ({}, "see its log for the probes"),
    ],
)
def test_silence_comes_with_a_clue(changes: dict[str, Any], clue: str) -> None:
    """The reason for a silent vantage has the most likely cause."""
    liveness, reason = classify(replace(WELL, newest_sample_at=None, **changes), now_at=NOW_AT, plan=PLAN)
    assert liveness is Liveness.SILENT
    assert reason.endswith(f"; {clue}")


@pytest.mark.parametrize(
    ("plan", "seconds"), [(None, 60), (PLAN, 90), (SLOW, 900), (PAUSED, 90), (Plan(version=1, baseline="us"), 60)]
)
def test_three_rounds_are_fresh(plan: Plan | None, seconds: int) -> None:
    """Freshness follows the shortest interval that is not paused, and is never below a minute."""
    assert fresh_us(plan) == seconds * SECOND_US


@pytest.mark.parametrize(
    ("us", "said"),
    [
        (-SECOND_US, "0 s"),
        (0, "0 s"),
        (119 * SECOND_US, "119 s"),
        (2 * MINUTE_US, "2 min"),
        (119 * MINUTE_US, "119 min"),
        (120 * MINUTE_US, "2 h"),
        (2 * DAY_US - 1, "47 h"),
        (9 * DAY_US, "9 d"),
    ],
)
def test_durations_are_spoken(us: int, said: str) -> None:
    """A duration in a reason has the natural unit and is never negative."""
    assert durations.rough(us) == said


DAY_AT = 20_000 * DAY_US
NOON_AT = DAY_AT + DAY_US // 2
# 4 prompt tokens and at most 100 of output: 4 * 1 + 100 * 10 = 1004 millionths of a dollar.
ASKED = Workload(prompt="sixteen letters.", max_output_tokens=100)
PRICED = Target(
    id=MINUTE_US,
    name="p/a",
    provider="p",
    model="a",
    base_url="http://h",
    workload=ASKED,
    every_us=MINUTE_US,
    price=Price(usd_per_m_input=1.0, usd_per_m_output=10.0),
)
SPEND_PLAN = Plan(version=1, baseline="us", targets=(PRICED,))
LEFT = 720


def spent(usd: float = 0.0, tokens: int = 0, requests: int = 0, *, day_at: int = DAY_AT) -> Spend:
    return Spend(provider="p", day_at=day_at, usd=usd, tokens=tokens, requests=requests)


@pytest.mark.parametrize(
    ("today", "target", "usd", "tokens", "requests"),
    [
        (None, PRICED, LEFT * 0.001004, LEFT * 104, LEFT),
        (spent(1.0, 50_000, 500), PRICED, 1.0 + LEFT * 0.002, 50_000 + LEFT * 100, 500 + LEFT),
        (spent(9.0, 9, 9, day_at=DAY_AT - DAY_US), PRICED, LEFT * 0.001004, LEFT * 104, LEFT),
        (spent(0.0, 0, 10), PRICED, LEFT * 0.001004, LEFT * 104, 10 + LEFT),
        (None, replace(PRICED, price=None), None, LEFT * 104, LEFT),
        (spent(0.0, 200, 2), replace(PRICED, price=None), None, 200 + LEFT * 100, 2 + LEFT),
        (spent(2.0, 200, 2), replace(PRICED, price=None), 2.0 + LEFT * 1.0, 200 + LEFT * 100, 2 + LEFT),
        (spent(2.0, 200, 2), replace(PRICED, paused=True), 2.0, 200, 2),
        (None, replace(PRICED, workload=replace(ASKED, concurrency=5)), 5 * LEFT * 0.001004, 5 * LEFT * 104, 5 * LEFT),
    ],
)
def test_the_rest_of_the_day_costs_as_the_day_did(
    today: Spend | None, target: Target, usd: float | None, tokens: int, requests: int
) -> None:
    """Spent plus planned, at the mean of today's requests; yesterday and paused targets count for nothing."""
    spender = Spender(vantage="v", region="us", reported=(today,) if today else ())
    [line] = spend_lines(spender, plan=replace(SPEND_PLAN, targets=(target,)), now_at=NOON_AT)
    assert line.forecast_usd == (None if usd is None else pytest.approx(usd))
    assert (line.forecast_tokens, line.forecast_requests) == (tokens, requests)
    assert line.day_at == DAY_AT


def test_the_last_instant_of_a_day_plans_nothing_more() -> None:
    """A forecast ends at midnight UTC, where the next day's budget begins."""
    [line] = spend_lines(Spender(vantage="v", region="us"), plan=SPEND_PLAN, now_at=DAY_AT + DAY_US - 1)
    assert (line.forecast_requests, line.forecast_tokens, line.forecast_usd) == (0, 0, 0.0)


def test_every_provider_has_a_line() -> None:
    """A provider is shown when it is planned or was paid today, and only if it was asked for."""
    plan = replace(SPEND_PLAN, targets=(PRICED, replace(PRICED, id=7, provider="q")))
    gone = replace(spent(0.5, 10, 1), provider="gone")
    spender = Spender(vantage="v", region="us", reported=(spent(1.0, 10, 1), gone))
    lines = {line.provider: line for line in spend_lines(spender, plan=plan, now_at=NOON_AT)}
    assert list(lines) == ["gone", "p", "q"]
    assert (lines["gone"].forecast_usd, lines["gone"].forecast_requests) == (0.5, 1)
    assert [line.provider for line in spend_lines(spender, plan=plan, now_at=NOON_AT, providers=["q", "x"])] == ["q"]


@pytest.mark.parametrize(("vantage", "usd"), [("v", 1.0), ("w", 9.0)])
def test_the_nearest_budget_binds(vantage: str, usd: float) -> None:
    """A vantage's own budget stands before the one of every vantage, and other providers' are none of its business."""
    budgets = (
        Budget(provider="p", usd_per_day=9.0),
        Budget(provider="p", vantage="v", usd_per_day=1.0),
        Budget(provider="q", usd_per_day=5.0),
    )
    found = budget_of(budgets, provider="p", vantage=vantage)
    assert found is not None
    assert found.usd_per_day == usd
    assert budget_of(budgets, provider="z", vantage=vantage) is None


def test_what_was_kept_comes_back() -> None:
    """What the store keeps of a report is the report, whatever a newer agent says besides."""
    one = spent(0.25, 100, 3)
    assert reported([{**asdict(one), "cached_tokens": 4}]) == (one,)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "size", "level"),
    [
        (15, 100, DiskLevel.ENOUGH),
        (14.9, 100, DiskLevel.LOW),
        (7.4, 100, DiskLevel.NO_BACKLOG),
        (3.7, 100, DiskLevel.FULL),
        (0, 100, DiskLevel.FULL),
        (16, 10_000, DiskLevel.ENOUGH),
        (15, 10_000, DiskLevel.LOW),
        (7, 10_000, DiskLevel.NO_BACKLOG),
        (3, 10_000, DiskLevel.FULL),
    ],
)
def test_levels(free: float, size: int, level: DiskLevel) -> None:
    """The limits are 15 % of the disk, at most 16 GiB, half of that and a quarter of it."""
    assert DiskSpace(free_bytes=int(free * GIB), size_bytes=size * GIB, low_percent=15).level is level


def test_no_limits() -> None:
    """With 0 percent there is always enough."""
    assert DiskSpace(free_bytes=0, size_bytes=100 * GIB, low_percent=0).level is DiskLevel.ENOUGH
