"""Participation: planned, recorded and failed rounds, and regions with a problem of their own."""

from dataclasses import replace

import numpy as np
import pytest

from isochrone_collector.analysis.differential.participation import (
    MAX_SILENCE_US,
    Participation,
    PlanSpan,
    Presence,
    active_window,
    oldest_rounds,
    participations,
    planned,
    planned_rounds,
)
from isochrone_collector.analysis.history import HOURS, NO_HISTORY, SUCCESS, History, Levels, SeriesLevels
from isochrone_collector.analysis.probes import Kind
from isochrone_wire.answers import Window
from testdata.columns import Row, present, probes

WINDOW = Window(from_at=0, until_at=100)


def test_probes_are_counted_by_how_they_ended() -> None:
    """Throttled and skipped probes are neither tried nor failed, but their round is recorded."""
    kinds = (Kind.OK, Kind.OK, Kind.FAILED, Kind.THROTTLED, Kind.SKIPPED)
    given = [Row(1, "us", at, kind=kind) for at, kind in enumerate(kinds)]
    found = participations(probes(given), {})
    assert {key: replace(own, independent=None) for key, own in found.items()} == {
        (1, "us"): Participation(tried=3, failed=1, recorded=5)
    }


def test_failures_in_a_run_are_worth_fewer_independent_ones() -> None:
    """An outage of a tenth of the day says less about the next day than as many failures at random times."""
    rng = np.random.default_rng(7)
    kinds = np.full(288, Kind.OK)
    kinds[100:129] = Kind.FAILED
    in_a_run, spread = (
        participations(probes([Row(1, "us", at, kind=Kind(kind)) for at, kind in enumerate(own.tolist())]), {})[1, "us"]
        for own in (kinds, rng.permutation(kinds))
    )
    assert in_a_run.failures
    assert spread.failures
    assert in_a_run.failures.value == spread.failures.value
    assert in_a_run.failures.high > spread.failures.high + 0.1
    # If all probes failed, their order says nothing.
    failed = participations(probes([Row(1, "us", at, kind=Kind.FAILED) for at in range(4)]), {})[1, "us"]
    assert failed.independent == 4


def test_an_outage_within_the_window_is_a_problem_of_the_region() -> None:
    """Forty failures in a run are worth few independent ones, but they are most of this window's probes."""
    kinds = [Kind.FAILED] * 40 + [Kind.OK] * 20
    own = participations(probes([Row(1, "us", at, kind=kind) for at, kind in enumerate(kinds)]), {})[1, "us"]
    assert own.losses("us") == "most probes of us failed"
    assert own.control_problem("us", "sim/c").startswith("us has a problem of its own: 33 %")


@pytest.mark.parametrize("failed", [0, 32])
def test_a_week_with_outages_widens_the_failures_of_a_day(failed: int) -> None:
    """As in a leaderboard: a day says less of the next one if the success of the past week came and went."""
    kinds = np.random.default_rng(1).permutation(np.repeat([Kind.FAILED, Kind.OK], [failed, 288 - failed])).tolist()
    given = probes([Row(1, "us", at * 300_000_000, kind=Kind(kind)) for at, kind in enumerate(kinds)])
    outages = Levels(values=np.repeat([0.5, 1.0], HOURS // 2)[np.newaxis], noise=np.zeros(1))
    week = SeriesLevels(series={(1, "us"): 0}, from_at=np.zeros(1, np.int64), levels=outages)
    known = History(levels={SUCCESS: week})
    alone, told = (participations(given, {}, history)[1, "us"] for history in (NO_HISTORY, known))
    assert alone.failures
    assert told.failures
    assert present(alone.independent) > 100
    assert present(told.independent) < 10
    assert told.failures.high > alone.failures.high + 0.1


def test_a_round_is_recorded_once_by_each_vantage() -> None:
    """A burst is one round of its vantage; a region without samples has its planned rounds."""
    given = [Row(1, "us", 7, vantage=vantage) for vantage in (1, 1, 1, 2)] + [Row(1, "us", 8, vantage=1)]
    assert participations(probes(given), {})[1, "us"].recorded == 3
    found = participations(probes([Row(1, "us", 7)]), {(1, "us"): 4, (1, "sg"): 4})
    assert found[1, "sg"] == Participation(planned=4)
    assert (found[1, "us"].coverage, found[1, "sg"].coverage) == (0.25, 0.0)


def test_rounds_are_planned_for_every_vantage_while_it_is_there() -> None:
    """Ten rounds in the window are twenty for two vantages, and fewer for one that came later."""
    spans = [PlanSpan(from_at=0, until_at=None, every_us={10: 10, 20: 50})]
    late = Window(from_at=50, until_at=100)
    there = [Presence(region="us", part=WINDOW), Presence(region="us", part=WINDOW), Presence(region="sg", part=late)]
    found = planned(there, spans, [10, 20, 30])
    assert [found[target, region] for region in ("us", "sg") for target in (10, 20, 30)] == [20, 4, 0, 5, 1, 0]


@pytest.mark.parametrize(
    ("recorded", "due", "reason"),
    [
        (31, 100, "us recorded 31 % of its rounds; 50 % needed"),
        (0, 3, "us recorded 0 % of its rounds; 50 % needed"),
        (60, 121, "us recorded 49 % of its rounds; 50 % needed"),
        (50, 100, ""),
        # Rounds of before the plan was applied do not count against anybody.
        (50, 3, ""),
        (0, 0, ""),
    ],
)
def test_too_little_coverage_has_its_reason(recorded: int, due: int, reason: str) -> None:
    """With less than half of the planned rounds there is a coverage problem; without a plan there is none."""
    assert Participation(recorded=recorded, planned=due).coverage_problem("us") == reason


@pytest.mark.parametrize(
    ("participation", "reason"),
    [
        (Participation(tried=100, failed=0, recorded=100, planned=100), ""),
        (Participation(tried=100, failed=15, recorded=100, planned=100), ""),
        (
            Participation(tried=100, failed=17, recorded=100, planned=100),
            "us has a problem of its own: 83 % of 100 probes of sim/c succeeded",
        ),
        # Two failures of two are bad luck as well as trouble; of four they are not.
        (Participation(tried=2, failed=1, recorded=2, planned=2), ""),
        (
            Participation(tried=4, failed=4, recorded=4, planned=4),
            "us has a problem of its own: 0 % of 4 probes of sim/c succeeded",
        ),
        (Participation(recorded=0, planned=5), "us recorded nothing of the control target sim/c"),
        # A paused or throttled control target tells nothing.
        (Participation(recorded=5, planned=5), ""),
        (Participation(), ""),
    ],
)
def test_the_control_target_shows_a_region_in_trouble(participation: Participation, reason: str) -> None:
    """A region has a problem if its control target certainly fails in more than a tenth of the probes, or is absent."""
    assert participation.control_problem("us", "sim/c") == reason


def test_a_side_of_a_differential_tells_failures_with_their_interval() -> None:
    """Both sides' failures are shown, because only successful probes are compared."""
    side = Participation(tried=40, failed=10, recorded=48, planned=50).side(30)
    assert (side.n, side.coverage) == (30, 0.96)
    assert side.failures is not None
    assert (side.failures.value, side.failures.n) == (0.25, 40)
    assert side.failures.low < 0.25 < side.failures.high
    assert Participation().side(0).failures is None


def test_the_oldest_round_of_each_vantage() -> None:
    """The oldest round of a vantage is that of any target."""
    given = [Row(1, "us", 30, vantage=7), Row(2, "us", 10, vantage=7), Row(1, "sg", 20, vantage=8)]
    assert oldest_rounds(probes(given)) == {7: 10, 8: 20}
    assert oldest_rounds(probes([])) == {}


@pytest.mark.parametrize(
    ("tried", "failed", "reason"),
    [
        (100, 100, "most probes of us failed"),
        (100, 61, "most probes of us failed"),
        (100, 55, ""),
        (3, 3, ""),
        (0, 0, ""),
    ],
)
def test_failing_nearly_always_must_be_sure(tried: int, failed: int, reason: str) -> None:
    """More than half of the probes failed, beyond what the interval of so few leaves open."""
    assert Participation(tried=tried, failed=failed).losses("us") == reason


SPANNED = Window(from_at=1_000, until_at=2_000)


def span(from_at: int, until_at: int | None, **every_us: int) -> PlanSpan:
    return PlanSpan(
        from_at=from_at, until_at=until_at, every_us={int(key.removeprefix("t")): n for key, n in every_us.items()}
    )


def test_the_rounds_of_a_route_have_one_phase() -> None:
    """The rounds of a target start at the phase of its route: here 40 after each multiple of 100, not at it."""
    early = Window(from_at=1_000, until_at=1_040)
    own = span(0, None, t100=100)
    assert [planned_rounds(100, [one], early) for one in (own, replace(own, phase_ids={100: 40}))] == [1, 0]
    assert planned_rounds(100, [own], Window(from_at=2_000, until_at=1_000)) == 0, "a vantage of the future"


@pytest.mark.parametrize(
    ("spans", "planned"),
    [
        ([span(0, None, t100=100)], 10),
        ([span(0, None, t7=100)], 0),
        ([span(1_500, None, t100=100)], 5),
        ([span(0, 1_500, t100=100)], 5),
        ([span(3_000, None, t100=100)], 0),
        ([span(0, 500, t100=100)], 0),
        ([span(0, 1_500, t100=100), span(1_500, None, t100=50)], 5 + 10),
        ([span(0, 1_200, t100=100), span(1_200, 1_800, t7=100), span(1_800, None, t100=100)], 2 + 2),
        ([], 0),
    ],
)
def test_rounds_follow_the_plans_in_force(spans: list[PlanSpan], planned: int) -> None:
    """Each plan asks for its own rounds while it is in force: none before, none after, none of other targets."""
    assert planned_rounds(100, spans, SPANNED) == planned


@pytest.mark.parametrize(
    ("first_seen_at", "oldest_at", "now_at", "expected"),
    [
        (0, None, 9_999, (1_000, 2_000)),
        (1_500, None, 9_999, (1_500, 2_000)),
        (1_500, 1_400, 9_999, (1_400, 2_000)),
        (1_500, 1_600, 9_999, (1_500, 2_000)),
        (0, None, 1_300, (1_000, 1_300)),
    ],
)
def test_nobody_is_asked_for_rounds_before_or_after_their_time(
    first_seen_at: int, oldest_at: int | None, now_at: int, expected: tuple[int, int]
) -> None:
    """A vantage is active from its first push or its oldest round, until now."""
    part = active_window(SPANNED, first_seen_at=first_seen_at, last_seen_at=now_at, oldest_at=oldest_at, now_at=now_at)
    assert (part.from_at, part.until_at) == expected


@pytest.mark.parametrize(
    ("last_seen_at", "oldest_at", "planned"),
    [
        (-MAX_SILENCE_US, None, 0),
        (999 - MAX_SILENCE_US, None, 0),
        (1_000 - MAX_SILENCE_US, None, 10),
        (1_300, None, 10),
        (-MAX_SILENCE_US, 1_100, 10),
        (1_300, 1_100, 10),
    ],
)
def test_a_vantage_that_was_replaced_owes_nothing(last_seen_at: int, oldest_at: int | None, planned: int) -> None:
    """A vantage gone before the window has no planned rounds; one that fell silent within it has all of them."""
    part = active_window(SPANNED, first_seen_at=-(10**12), last_seen_at=last_seen_at, oldest_at=oldest_at, now_at=9_999)
    assert planned_rounds(100, [span(0, None, t100=100)], part) == planned
