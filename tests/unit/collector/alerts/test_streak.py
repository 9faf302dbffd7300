"""How many failures in a row are no chance."""

import pytest

from isochrone_collector.alerts.failure_evidence import ALONE, MOST, TOGETHER, Streak


def played(rounds: str) -> Streak:
    streak = Streak()
    for place, one in enumerate(rounds):
        if one == "x":
            streak.extend(place)
        else:
            streak.end()
    return streak


@pytest.mark.parametrize(
    ("rounds", "alone", "together"),
    [
        ("", 3, 2),
        ("." * 1440, 3, 2),
        (("." * 99 + "x") * 14, 3, 2),
        (("." * 200 + "xx") * 7, 4, 3),
        (("." * 9 + "x") * 140, 4, 2),
        (("." * 5 + "xx") * 200, 4, 3),
        (("." * 5 + "xxx" + "." * 9 + "x") * 70, MOST, MOST),
    ],
)
def test_a_series_that_often_fails_needs_more(rounds: str, alone: int, together: int) -> None:
    """Three failures alone and two together are enough in a quiet series; noise and bursts raise both."""
    streak = played(rounds)
    assert (streak.needed(ALONE), streak.needed(TOGETHER)) == (alone, together)
    quiet = "." * 500
    assert played(quiet + "x" * 100 + "." * 10).needed(ALONE) == played(quiet).needed(ALONE), "an outage is not learned"


def test_length_and_requests() -> None:
    """A streak has its first and its newest round; rounds that were not sent lengthen it, and are no requests."""
    streak = Streak()
    streak.end()
    streak.extend(10)
    streak.extend(20, sent=False)
    streak.extend(30)
    assert (streak.length, streak.requests, streak.since_at, streak.until_at, streak.clear) == (3, 2, 10, 30, 0)
    streak.end()
    assert (streak.length, streak.requests, streak.clear) == (0, 0, 1)
