"""Planned requests: which rounds count, and which of them were answered in time."""

import numpy as np
import pytest

from isochrone_collector.analysis.goodput import Ending, by_series
from isochrone_wire.answers import Metric
from isochrone_wire.model import SECOND_US
from testdata.columns import requests_of

ANSWERED, FAILED, THROTTLED, NONE = Ending
NAN = float("nan")
MS = 1_000.0


@pytest.mark.parametrize(
    ("ending", "ttft_ms", "ceiling_ms", "counts"),
    [
        (ANSWERED, 300, NAN, (1, 1, 1)),
        (ANSWERED, 301, NAN, (1, 0, 0)),
        (ANSWERED, NAN, NAN, (0, 0, 0)),  # from a cache: no valid duration
        (FAILED, NAN, NAN, (1, 0, 0)),
        (FAILED, 100, NAN, (1, 0, 0)),  # the stream broke off after its first token
        (FAILED, NAN, 60_000, (1, 0, 0)),
        (FAILED, NAN, 200, (1, 0, 1)),  # given up before the limit
        (THROTTLED, NAN, NAN, (1, 0, 0)),
        (NONE, NAN, NAN, (0, 0, 0)),
    ],
)
def test_what_counts(ending: Ending, ttft_ms: float, ceiling_ms: float, counts: tuple[int, int, int]) -> None:
    """Every planned request counts, and only one answered within the limit is good (planned, good, possible)."""
    found = requests_of([ttft_ms * MS], [ending], ceiling_us=[ceiling_ms * MS]).judged({Metric.TTFT: 300 * MS})
    assert (found.planned, found.good, found.possible) == counts


def test_a_floor_on_speed() -> None:
    """A request below the floor is too slow; one whose speed is unknown is left out."""
    found = requests_of([100 * MS] * 4, speed=[29.9, 30.0, 80.0, NAN]).judged({Metric.TTFT: 300 * MS}, min_speed=30.0)
    assert (found.planned, found.good) == (3, 2)


def test_the_whole_answer_has_its_own_column() -> None:
    """A limit on the whole answer looks at the last token, not at the first."""
    found = requests_of([100 * MS] * 2, e2e_us=[4_000 * MS, 6_000 * MS])
    assert found.judged({Metric.E2E: 5_000 * MS}).good == 1


def test_several_limits_hold_together() -> None:
    """A request has to keep every limit; given up early is only what was given up before the first of them."""
    found = requests_of(
        [100 * MS, 100 * MS, 400 * MS, NAN, NAN],
        [ANSWERED, ANSWERED, ANSWERED, FAILED, FAILED],
        e2e_us=[4_000 * MS, 6_000 * MS, 4_000 * MS, NAN, NAN],
        ceiling_us=[NAN, NAN, NAN, 200 * MS, 400 * MS],
    ).judged({Metric.TTFT: 300 * MS, Metric.E2E: 5_000 * MS})
    assert (found.planned, found.good, found.possible) == (5, 1, 2)


def test_a_hang_counts_for_as_long_as_it_lasts() -> None:
    """Rounds skipped behind a hanging request count as too slow: an outage of a sixth of the time is a sixth."""
    ending = ([FAILED] * 10 + [ANSWERED] * 50) * 6
    ttft_us = np.where(np.array(ending) == ANSWERED, 100 * MS, NAN)
    found = requests_of(ttft_us.tolist(), ending).judged({Metric.TTFT: 300 * MS})
    assert found.goodput is not None
    assert found.goodput.value == pytest.approx(5 / 6)


def test_values_of_requests() -> None:
    """A distribution has the known latencies, and the limits of those that were given up."""
    found = requests_of([1.0, NAN, NAN], [ANSWERED, FAILED, FAILED], ceiling_us=[NAN, 5.0, NAN]).values(Metric.TTFT)
    assert (found.values.tolist(), found.censored.tolist()) == ([1.0, 5.0], [False, True])


def test_series_by_hour() -> None:
    """Requests are divided by hour of the day (UTC) over all days, each part in the order of its rounds."""
    found = requests_of(range(100), every_us=3600 * SECOND_US)
    parts = {hour: own.ttft_us.tolist() for (_, _, hour), own in by_series(found, by_hour=True)}
    assert parts[3] == [3, 27, 51, 75, 99]
    assert sorted(hour for hour in parts if hour is not None) == list(range(24))
    [(key, everything)] = by_series(found, by_hour=False)
    assert (key, len(everything)) == ((1, "us", None), 100)


def test_no_requests_make_no_series() -> None:
    """An empty selection has no series."""
    assert not list(by_series(requests_of([]), by_hour=True))
