"""Status: one word per target and region, what is wrong in a list, and one sentence about all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from isochrone_collector.queries.status import Measured, states_of, summary_of, verdict_of
from isochrone_wire.answers import Proportion, Quantile, Window
from isochrone_wire.insights import Standing
from isochrone_wire.model import DAY_US, MINUTE_US, Target, Workload
from isochrone_wire.queries.status import Finding, FindingKind, Severity, State, TargetStatus, Verdict

NOW_AT = 1_795_219_200_000_000
WINDOW = Window(from_at=NOW_AT - DAY_US, until_at=NOW_AT)
TARGET = Target(id=1, name="alpha/m", provider="alpha", model="m", base_url="http://secret.internal/v1")
DAY = Standing(
    region="us",
    rank=1,
    target="alpha/m",
    provider="alpha",
    model="m",
    n=1000,
    failed=0,
    ttft_p50_us=Quantile(value=400_000, low=390_000, high=410_000),
    success=Proportion(value=0.995, low=0.99, high=0.999, n=1000),
    newest_at=NOW_AT - MINUTE_US,
)
FAILING = Finding(
    kind=FindingKind.TARGET_FAILING,
    severity=Severity.CRITICAL,
    sentence="alpha/m fails from us",
    target="alpha/m",
    regions=("us",),
)
SLOWER = replace(FAILING, kind=FindingKind.SLOWER, severity=Severity.WARNING, sentence="alpha/m is slower from us")


def measured(*day: Standing, hour: Sequence[Standing] = (), **target: Any) -> Measured:
    """One target, from a region where another one is measured, too; the plan is old."""
    every = (*day, replace(DAY, target="other"))
    return Measured(
        targets=[replace(TARGET, **target)],
        baseline="us",
        day={(one.target, one.region): one for one in every},
        hour={(one.target, one.region): one for one in hour},
        planned_at=NOW_AT - DAY_US,
        now_at=NOW_AT,
        vantages={},
    )


def state(of: Measured, *found: Finding) -> State:
    (row,) = [one for one in states_of(of, found) if one.region == "us"]
    return row.state


@pytest.mark.parametrize(
    ("day", "hour", "found", "every", "expected"),
    [
        ({}, {}, [], MINUTE_US, "ok"),
        ({}, {}, [FAILING], MINUTE_US, "failing"),
        ({}, {}, [replace(FAILING, kind=FindingKind.TARGET_THROTTLED)], MINUTE_US, "failing"),
        ({}, {}, [replace(FAILING, regions=("sg",))], MINUTE_US, "ok"),
        ({}, {}, [replace(FAILING, target="beta/m")], MINUTE_US, "ok"),
        ({}, {}, [SLOWER], MINUTE_US, "slow"),
        ({}, {}, [SLOWER, FAILING], MINUTE_US, "failing"),
        ({"n": 59}, {}, [], MINUTE_US, "too_young"),
        ({"n": 60}, {}, [], MINUTE_US, "ok"),
        ({"n": 9}, {}, [SLOWER], MINUTE_US, "slow"),
        ({"newest_at": NOW_AT - 16 * MINUTE_US}, {}, [FAILING], MINUTE_US, "stale"),
        ({"newest_at": NOW_AT - 16 * MINUTE_US}, {}, [], 10 * MINUTE_US, "ok"),
        ({"newest_at": NOW_AT - 31 * MINUTE_US}, {}, [], 10 * MINUTE_US, "stale"),
        ({"success": None}, None, [], MINUTE_US, "stale"),
        ({}, {"success": None}, [], MINUTE_US, "stale"),
        ({"success": None}, {"success": None, "throttled": 9}, [], MINUTE_US, "stale"),
        ({"success": None, "throttled": 9}, {"success": None, "throttled": 9}, [], MINUTE_US, "ok"),
        (None, None, [], MINUTE_US, "stale"),
    ],
)
def test_states(
    day: dict[str, Any] | None, hour: dict[str, Any] | None, found: list[Finding], every: int, expected: str
) -> None:
    """The first law that applies counts: stale, failing, slow, too young, ok."""
    days, hours = ([] if change is None else [replace(DAY, **change)] for change in (day, hour))
    assert state(measured(*days, hour=hours, every_us=every), *found) == expected


@pytest.mark.parametrize(("own", "other", "streams", "young"), [(11, 11, 1, 0), (11, 10, 1, 2), (11, 60, 2, 2)])
def test_a_step_needs_eleven_rounds_from_both_regions(own: int, other: int, streams: int, young: int) -> None:
    """With as many both regions are judged, and with fewer neither is; the streams of a round are one round."""
    rounds = replace(DAY, n=own), replace(DAY, region="sg", n=other)
    states = states_of(measured(*rounds, workload=Workload(concurrency=streams)), ())
    assert sum(one.state is State.TOO_YOUNG for one in states) == young


def test_vantages_of_a_region_have_the_same_rounds() -> None:
    """Two vantages need twice the samples."""
    of = measured(replace(DAY, n=119))
    assert state(replace(of, vantages={"us": 1})) is State.OK
    assert state(replace(of, vantages={"us": 2})) is State.TOO_YOUNG


def test_a_target_of_a_new_plan_need_not_have_samples() -> None:
    """Only after three of its intervals, at least 15 minutes, it is stale."""
    new = replace(measured(), planned_at=NOW_AT - 15 * MINUTE_US)
    assert state(new) is State.TOO_YOUNG
    assert state(replace(new, planned_at=new.planned_at - 1)) is State.STALE


def test_a_paused_target_is_not_shown() -> None:
    """Its rounds send no requests."""
    assert states_of(measured(DAY, paused=True), ()) == ()


def test_a_target_without_samples_has_no_numbers() -> None:
    """A target without samples has a row without numbers; a median of too few samples is early."""
    (found,) = states_of(measured(), ())
    assert (found.region, found.success, found.ttft_p50_us) == ("us", None, None)
    early = replace(DAY, ttft_p50_us=Quantile(value=400_000))
    assert [states_of(measured(one), ())[0].is_early for one in (DAY, early)] == [False, True]


def rows(*states: State) -> tuple[TargetStatus, ...]:
    (row,) = states_of(measured(DAY), ())
    return tuple(replace(row, state=one, region=str(place)) for place, one in enumerate(states))


@pytest.mark.parametrize(
    ("states", "found", "verdict", "summary"),
    [
        ([State.OK] * 3, [], Verdict.WELL, "1 target from 3 regions in the last 24 h"),
        (
            [State.OK, State.FAILING],
            [SLOWER, FAILING, FAILING],
            Verdict.CRITICAL,
            "2 critical findings; 1 warning; 1 target",
        ),
        ([State.TOO_YOUNG, State.SLOW], [SLOWER], Verdict.WARNING, "1 warning; 1 of 2 pairs"),
        (
            [State.TOO_YOUNG, State.OK],
            [],
            Verdict.TOO_YOUNG,
            "1 of 2 pairs of a target and a region have too few rounds",
        ),
        ([State.TOO_YOUNG, State.OK, State.OK], [], Verdict.WELL, "1 of 3 pairs"),
        ([], [], Verdict.TOO_YOUNG, "nothing was measured yet"),
    ],
)
def test_one_verdict_and_sentence(states: list[State], found: list[Finding], verdict: Verdict, summary: str) -> None:
    """The worst finding is the verdict; without one, half of the pairs without enough rounds make it too young."""
    shown = rows(*states)
    assert verdict_of(shown, found) is verdict
    assert summary_of(shown, found, WINDOW).startswith(summary)
