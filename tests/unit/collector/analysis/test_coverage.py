"""Coverage: planned rounds follow the plans in force and the time a vantage was there."""

from dataclasses import replace

import pytest

from isochrone_collector.analysis.differential.participation import (
    MAX_SILENCE_US,
    PlanSpan,
    active_window,
    planned_rounds,
)
from isochrone_wire.answers import Window

WINDOW = Window(from_at=1_000, until_at=2_000)


def span(from_at: int, until_at: int | None, **every_us: int) -> PlanSpan:
    return PlanSpan(
        from_at=from_at, until_at=until_at, every_us={int(key.removeprefix("t")): n for key, n in every_us.items()}
    )


def test_the_rounds_of_a_route_have_one_phase() -> None:
    """The rounds of a target start at the phase of its route: here 40 after each multiple of 100, not at it."""
    early = Window(from_at=1_000, until_at=1_040)
    own = span(0, None, t100=100)
    assert [planned_rounds(100, [one], early) for one in (own, replace(own, phase_ids={100: 40}))] == [1, 0]


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
    assert planned_rounds(100, spans, WINDOW) == planned


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
    part = active_window(WINDOW, first_seen_at=first_seen_at, last_seen_at=now_at, oldest_at=oldest_at, now_at=now_at)
    assert (part.from_at, part.until_at) == expected


def test_a_vantage_of_the_future_has_no_rounds() -> None:
    """A part that ends before it begins has no rounds, not a negative number of them."""
    assert planned_rounds(100, [span(0, None, t100=100)], Window(from_at=2_000, until_at=1_000)) == 0


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
    part = active_window(WINDOW, first_seen_at=-(10**12), last_seen_at=last_seen_at, oldest_at=oldest_at, now_at=9_999)
    assert planned_rounds(100, [span(0, None, t100=100)], part) == planned
