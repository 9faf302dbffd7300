"""The sentences about what happens during the demo."""

import pytest

from isochrone_client.demo.scenario import EPISODE, FAULTS, Episode, Timeline
from isochrone_client.pages.matrix import Matrix
from isochrone_wire.answers import Metric
from testdata.client_answers import cell, difference

SLOW = Episode(provider="acme", region="eu-central-1", added_ms=400, after_seconds=75, lasting_seconds=180)


def board(changed_us: float | None = None, *, error_us: float = 5_000.0) -> Matrix:
    """A matrix of one place."""
    place = ("acme/large", "eu-central-1")
    row = difference(35 + (changed_us or 0) / 1000, error_us / 1000, error_us / 1000)
    cells = {place: cell(500, row, changed=changed_us)}
    return Matrix(metric=Metric.TTFT, baseline="us-east-2", regions=place[1:], targets=place[:1], cells=cells)


@pytest.mark.parametrize(
    ("seconds", "elapsed", "sentence"),
    [
        (10, 0, ""),
        (60, 59, ""),
        (75, 0, ""),
        (100, 5, "in 70 s acme gets 400 ms slower from eu-central-1, until the end"),
        (255, 0, "in 75 s acme gets 400 ms slower from eu-central-1, for 180 s"),
        (None, 74.6, "in 0 s acme gets 400 ms slower from eu-central-1, for 180 s"),
        (None, 75, ""),
    ],
)
def test_only_what_will_happen_is_announced(seconds: float | None, elapsed: float, sentence: str) -> None:
    """A slowdown after the end of the demo is not announced, and one that the end cuts short is announced as such."""
    assert Timeline(SLOW.script, seconds=seconds).coming(elapsed) == sentence


def test_each_event_is_noted_once() -> None:
    """The beginning and the end of the slowdown, a measured change and a switch are each noted once, with the time."""
    timeline = Timeline(SLOW.script, seconds=None)
    assert timeline.note(74.0, board(), ()) == []
    assert timeline.note(75.4, board(), ()) == ["75 s: acme gets 400 ms slower from eu-central-1, for 180 s"]
    assert timeline.note(90.0, board(250_000.0, error_us=200_000), ()) == []  # its size is not known yet
    assert timeline.note(98.2, board(399_600.0), ["the route chat switches"]) == [
        "98 s: measured: acme/large takes 400 ms longer from eu-central-1 than at the start",
        "98 s: the route chat switches",
    ]
    assert timeline.note(99.0, board(401_000.0), ()) == []
    assert timeline.note(255.0, board(401_000.0), ()) == ["255 s: acme is as fast as before from eu-central-1"]
    assert timeline.note(290.0, board(), ()) == [
        "290 s: measured: acme/large is as fast as at the start from eu-central-1"
    ]
    assert len(timeline.events) == 5


def test_less_time_is_positive_too() -> None:
    """A place that got faster takes a positive number of milliseconds less."""
    [sentence] = Timeline(SLOW.script, seconds=60).note(30.0, board(-129_000.0), ())
    assert sentence == "30 s: measured: acme/large takes 129 ms less from eu-central-1 than at the start"


def test_a_minute_has_no_slowdown() -> None:
    """The README's demo of a minute ends before the scripted slowdown."""
    assert Timeline(EPISODE.script, seconds=60).coming(0) == ""


def test_faults_are_announced_one_after_another() -> None:
    """The next fault is announced until it begins, then the one after it; an end is noted only."""
    timeline = Timeline(FAULTS.script, seconds=None)
    assert timeline.coming(0) == "in 10 s stepfun answers with HTTP 500 from eu-central-1, for 25 s"
    assert timeline.note(10.0, board(), ()) == ["10 s: stepfun answers with HTTP 500 from eu-central-1, for 25 s"]
    assert timeline.coming(10.0) == "in 8 s bytedance answers with HTTP 429 from every region, for 22 s"
    assert timeline.note(26.0, board(), ["alert target_failing: a from b"]) == [
        "18 s: bytedance answers with HTTP 429 from every region, for 22 s",
        "25 s: stepfun answers with HTTP 500 from every region, for 10 s",
        "26 s: alert target_failing: a from b",
    ]
    assert timeline.coming(26.0) == ""
    assert timeline.note(60.0, board(), ()) == ["35 s: stepfun answers as before", "40 s: bytedance answers as before"]
