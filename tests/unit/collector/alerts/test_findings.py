"""What is wrong now: each kind of finding, and what is none."""

from dataclasses import replace
from typing import Any

import pytest

from isochrone_collector.alerts import findings
from isochrone_collector.fleet_state import VantageState
from isochrone_wire.answers import Differential, Level, Metric
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import AlertKind, DriftEvent, FailedProbe, Incident
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import DAY_US, MINUTE_US, Plan, Target
from isochrone_wire.operations import Silence
from isochrone_wire.queries.status import Severity, State, TargetStatus

NOW_AT = 1_795_219_200_000_000
INCIDENT = Incident(
    id=1,
    kind=AlertKind.TARGET_FAILING,
    subject="alpha/m",
    first_failed_at=NOW_AT - 5 * MINUTE_US,
    last_failed_at=NOW_AT,
    opened_at=NOW_AT,
    scope="one",
    failing=("us",),
    regions=("us", "sg"),
    example="the key sk-123 of 10.0.0.7 is not valid",
    samples=(FailedProbe(vantage="us-1", region="us", round_at=NOW_AT, outcome="http_error"),),
)
SILENCE = Silence(id=1, created_at=0, created_by="ida", reason="known", until_at=NOW_AT + DAY_US)


@pytest.mark.parametrize(
    ("change", "kind", "severity", "sentence"),
    [
        ({}, "target_failing", "critical", "alpha/m fails from us"),
        ({"kind": AlertKind.TARGET_THROTTLED}, "target_throttled", "critical", "alpha/m is throttled from us"),
        ({"never_worked": True}, "target_failing", "critical", "alpha/m has never worked from us"),
        ({"silences": (SILENCE,)}, "target_failing", "warning", "alpha/m fails from us (silenced)"),
    ],
)
def test_open_incidents(change: dict[str, Any], kind: str, severity: str, sentence: str) -> None:
    """An open incident is critical unless somebody has silenced it; it says no error, vantage or address."""
    (found,) = findings.of_incidents([replace(INCIDENT, **change)])
    assert (found.kind, found.severity, found.sentence) == (kind, severity, sentence)
    assert (found.target, found.regions, found.since_at) == ("alpha/m", ("us",), INCIDENT.first_failed_at)
    assert [word for word in ("sk-123", "10.0.0.7", "us-1") if word in str(to_json_value(found))] == []


@pytest.mark.parametrize("change", [{"recovered_at": NOW_AT}, {"kind": AlertKind.SLO_BREACHED}])
def test_other_incidents_are_no_findings(change: dict[str, Any]) -> None:
    """One that is over, or of another kind, is nothing wrong now."""
    assert list(findings.of_incidents([replace(INCIDENT, **change)])) == []


def level(at: int, n: int, baseline_ms: float, region_ms: float, *, half: float | None = 10.0) -> Level:
    """A level of `n` rounds from `at` minutes before now on."""
    shift = region_ms - baseline_ms
    low, high = (None, None) if half is None else ((shift - half) * 1000, (shift + half) * 1000)
    return Level(
        from_at=NOW_AT - at * MINUTE_US,
        until_at=NOW_AT,
        n=n,
        shift=shift * 1000,
        low=low,
        high=high,
        baseline_median=baseline_ms * 1000,
        region_median=region_ms * 1000,
    )


def stepped(*levels: Level, metric: Metric = Metric.TTFT, region: str = "sg") -> Differential:
    return Differential(
        target="alpha/m",
        provider="alpha",
        model="m",
        metric=metric,
        unit=metric.unit,
        baseline="us",
        region=region,
        levels=levels,
        margin=20_000.0,
    )


USUAL = level(100, 90, 200, 203)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([USUAL, level(10, 9, 200, 615)], ("sg", 10, "+415 ms (95 %: +405 … +425) against us, +3 before")),
        ([USUAL, level(10, 5, 200, 615, half=None)], ("sg", 10, "+415? ms against us, +3 before")),
        # The baseline is the one that became slower.
        ([USUAL, level(10, 9, 600, 203)], ("us", 10, "+397 ms (95 %: +387 … +407) against sg, -3 before")),
        # It rose twice: since the first of them.
        ([USUAL, level(30, 20, 200, 500), level(10, 9, 200, 615)], ("sg", 30, "+415 ms")),
        ([USUAL, level(30, 20, 200, 615), level(10, 9, 200, 203)], None),
        # The other side became faster.
        ([USUAL, level(10, 9, 100, 203)], None),
        ([USUAL, level(10, 9, 200, 103)], None),
        ([USUAL, level(10, 9, 200, 222)], None),
        # As before, for all that is known.
        ([USUAL, level(10, 9, 200, 240, half=38)], None),
        ([USUAL], None),
        ([], None),
    ],
)
def test_steps(levels: list[Level], expected: tuple[str, int, str] | None) -> None:
    """A target is slower from the region whose own median rose, since its usual level ended, and by how much."""
    found = list(findings.of_changes([stepped(*levels)], []))
    assert len(found) == (expected is not None)
    if expected is not None:
        assert (found[0].regions, found[0].since_at) == ((expected[0],), NOW_AT - expected[1] * MINUTE_US)
        assert found[0].sentence.startswith(f"alpha/m is slower from {expected[0]}: {expected[2]}")


def test_a_baseline_that_slows_is_found_once() -> None:
    """Every region shows it; the one with the most rounds is stated."""
    rows = [stepped(USUAL, level(10, n, 600, 203), region=region) for region, n in (("sg", 8), ("eu", 9))]
    (found,) = findings.of_changes(rows, [])
    assert (found.regions, found.baseline, found.n) == (("us",), "eu", 9)


EVENT = DriftEvent(
    target="alpha/m",
    provider="alpha",
    model="m",
    region="us",
    metric=Metric.TTFT,
    changed_at=NOW_AT - HOUR_US,
    detected_at=NOW_AT,
    before=200_000,
    after=400_000,
    change_percent=100.0,
    p_value=0.001,
    n_before=300,
    n_after=60,
    may_be_weekly=False,
)
SPEED = replace(EVENT, metric=Metric.TOKENS_PER_SECOND, before=40.0, after=20.0)


def later(after: float) -> DriftEvent:
    return replace(EVENT, changed_at=EVENT.changed_at + 30 * MINUTE_US, before=EVENT.after, after=after)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([EVENT], (60, "ttft 400 ms, 200 before (p ≤ 0.002)")),
        ([later(500_000), EVENT], (60, "ttft 500 ms, 200 before (p ≤ 0.002)")),
        ([later(200_000), EVENT], None),
        ([replace(EVENT, before=400_000, after=200_000)], None),
        ([replace(EVENT, before=400_000, after=200_000), later(300_000)], None),
        ([SPEED], (60, "speed 20 tokens/s, 40 before (p ≤ 0.002)")),
        ([replace(SPEED, before=20.0, after=40.0)], None),
    ],
)
def test_lasting_changes(events: list[DriftEvent], expected: tuple[int, str] | None) -> None:
    """A change for the worse is a finding until the series returns to its level before."""
    found = list(findings.of_changes([], events))
    assert len(found) == (expected is not None)
    if expected is not None:
        assert found[0].since_at == NOW_AT - expected[0] * MINUTE_US
        assert found[0].sentence == f"alpha/m is slower from us: {expected[1]}"


def test_a_step_stands_for_the_change_of_the_same_series() -> None:
    """A target is slower from a region once, however many methods see it."""
    rows = [stepped(USUAL, level(10, 9, 600, 203))]
    assert [one.baseline for one in findings.of_changes(rows, [EVENT, SPEED])] == ["sg", ""]


PLAN = Plan(
    version=1, baseline="us", targets=(Target(id=1, name="alpha/m", provider="alpha", model="m", base_url="http://x"),)
)
VANTAGE = VantageState(
    name="us-1",
    region="us",
    first_seen_at=NOW_AT - DAY_US,
    last_seen_at=NOW_AT - MINUTE_US,
    next_heartbeat_at=NOW_AT,
    newest_sample_at=NOW_AT - MINUTE_US,
    plan_version=1,
)
ABSENT: dict[str, Any] = {"last_seen_at": NOW_AT - HOUR_US, "next_heartbeat_at": NOW_AT - HOUR_US + MINUTE_US}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, None),
        (ABSENT, "vantage_absent"),
        ({**ABSENT, "last_seen_at": NOW_AT - DAY_US}, None),
        ({"stopped": True}, None),
        ({"newest_sample_at": NOW_AT - HOUR_US}, "vantage_absent"),
        ({"newest_sample_at": None, "first_seen_at": NOW_AT - MINUTE_US}, None),
        ({"clock_offset_us": 60_000_000}, "clock_wrong"),
        ({"left_out": 0.51}, "vantage_busy"),
        ({"left_out": 0.5}, None),
    ],
)
def test_vantages(change: dict[str, Any], kind: str | None) -> None:
    """A vantage is a finding if it is absent, sends no samples or has a wrong clock; not a retired or a new one."""
    found = findings.of_vantages([replace(VANTAGE, **change), replace(VANTAGE, name="us-2")], PLAN, now_at=NOW_AT)
    assert [(one.kind, one.vantage, one.severity) for one in found] == ([(kind, "us-1", "warning")] if kind else [])


def test_it_is_critical_if_nothing_is_measured() -> None:
    """All vantages together are worse than each alone."""
    away = [replace(VANTAGE, name=name, **ABSENT) for name in ("us-1", "us-2")]
    found = findings.of_vantages(away, PLAN, now_at=NOW_AT)
    assert [one.severity for one in found] == [Severity.CRITICAL] * 2


def stale(region: str, **change: Any) -> TargetStatus:
    row = TargetStatus(
        target="alpha/m",
        provider="alpha",
        region=region,
        state=State.STALE,
        success=None,
        ttft_p50_us=None,
        newest_at=NOW_AT - HOUR_US,
    )
    return replace(row, **change)


@pytest.mark.parametrize(
    ("explained", "regions"),
    [([], ("sg", "us")), ([("", "us")], ("sg",)), ([("alpha", "us")], ("sg",)), ([("beta", "us")], ("sg", "us"))],
)
def test_targets_without_requests(explained: list[tuple[str, str]], regions: tuple[str, ...]) -> None:
    """A target is not measured from the regions whose vantages and budgets do not explain it."""
    rows = [stale("sg"), stale("us"), stale("eu", state=State.OK)]
    (found,) = findings.of_silence(rows, explained)
    assert (found.kind, found.regions, found.since_at) == ("not_measured", regions, NOW_AT - HOUR_US)
