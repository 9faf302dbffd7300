"""Liveness: decided by heartbeats, samples and plans, in this order, with the reason."""

from dataclasses import replace
from typing import Any

import pytest

from isochrone_collector.fleet_state import LATE_GRACE_US, VantageSignals, classify, fresh_us
from isochrone_wire import durations
from isochrone_wire.fleet import Liveness
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Plan, Target

NOW_AT = 1_795_248_000_000_000
EVERY_30_S = Target(id=1, name="a", provider="p", model="a", base_url="http://h", every_us=30 * SECOND_US)
EVERY_5_MIN = replace(EVERY_30_S, id=2, every_us=5 * MINUTE_US)
PLAN = Plan(version=4, baseline="us", targets=(EVERY_30_S, EVERY_5_MIN))
PAUSED = replace(PLAN, targets=(replace(EVERY_30_S, paused=True),))
SLOW = replace(PLAN, targets=(replace(EVERY_30_S, paused=True), EVERY_5_MIN))
WELL = VantageSignals(
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
