"""Values and outcomes over time: round buckets, nearest ranks, and every probe counted once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.analysis.goodput import Ending
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.analysis.time_series import MAX_POINTS, SHARES, bucket_width, rank_of, series_of
from isochrone_wire.answers import Metric, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.queries.series import SeriesPoint
from testdata.columns import Row, independent_quantile, probes, requests_of

AT = 1_795_248_000_000_000


@pytest.mark.parametrize(
    ("span_us", "points", "width_us"),
    [
        (3 * MINUTE_US, 120, 2 * SECOND_US),
        (HOUR_US, 120, 30 * SECOND_US),
        (DAY_US, 100, 15 * MINUTE_US),
        (DAY_US, 500, 5 * MINUTE_US),
        (400 * DAY_US, 500, DAY_US),
        (400 * DAY_US, 120, 4 * DAY_US),
    ],
)
def test_buckets_have_a_round_width(span_us: int, points: int, width_us: int) -> None:
    """A window has the finest round buckets that do not exceed the number of points."""
    assert bucket_width(Window(from_at=AT, until_at=AT + span_us), points=points) == width_us


@given(st.integers(0, 400 * DAY_US), st.integers(1, 400 * DAY_US), st.integers(1, MAX_POINTS))
def test_no_window_has_too_many_buckets(from_at: int, span_us: int, points: int) -> None:
    """Wherever a window begins, it touches at most so many buckets."""
    width_us = bucket_width(Window(from_at=from_at, until_at=from_at + span_us), points=points)
    assert (from_at + span_us - 1) // width_us - from_at // width_us < points


def test_a_point_counts_the_probes_of_its_bucket() -> None:
    """Points are per target and region, oldest first, with counts of outcomes; a bucket without probes has none."""
    rows = [
        Row(7, "us", 25, 300.0),
        Row(7, "us", 3, 100.0),
        Row(7, "us", 9, 200.0),
        Row(7, "us", 9, kind=Kind.FAILED),
        Row(7, "us", 9, kind=Kind.THROTTLED),
        Row(7, "sg", 8, kind=Kind.SKIPPED),
    ]
    found = series_of(probes(rows), bucket_us=10)
    assert found == {
        (7, "us"): (
            SeriesPoint(at=0, n=2, p10=100.0, p50=100.0, p90=200.0, ok=2, failed=1, throttled=1),
            SeriesPoint(at=20, n=1, p10=300.0, p50=300.0, p90=300.0, ok=1),
        ),
        (7, "sg"): (SeriesPoint(at=0, n=0, skipped=1),),
    }


def test_a_quantile_among_timeouts_is_not_known() -> None:
    """Values that were cut off rank last, whatever their limit."""
    rows = [Row(1, "us", 0, 5.0), Row(1, "us", 0, 1.0, kind=Kind.FAILED, censored=True), Row(1, "us", 0, 7.0)]
    ((point,),) = series_of(probes(rows), bucket_us=10).values()
    assert (point.n, point.p10, point.p50, point.p90) == (3, 5.0, 7.0, None)


def test_without_probes_there_is_no_series() -> None:
    """An empty window has no series."""
    assert series_of(probes([]), bucket_us=10) == {}
    assert series_of(probes([]), bucket_us=10, limit_us=5) == {}


def test_goodput_counts_every_planned_request() -> None:
    """Only a success within the limit is good; failures, throttled requests and slow successes are planned. Rounds that
    were not sent, and successes without a valid duration, are not.
    """
    rows = [
        Row(1, "us", 0, 5.0),
        Row(1, "us", 1, 5.1),
        Row(1, "us", 2, 3.0, kind=Kind.FAILED),
        Row(1, "us", 3, 4.0, kind=Kind.FAILED, censored=True),
        Row(1, "us", 4, kind=Kind.THROTTLED),
        Row(1, "us", 5, kind=Kind.SKIPPED),
        Row(1, "us", 6),
        Row(1, "us", 15, 1.0),
    ]
    ((first, second),) = series_of(probes(rows), bucket_us=10, limit_us=5).values()
    assert (first.planned, first.good) == (5, 1)
    assert (second.planned, second.good) == (1, 1)


def test_the_goodput_is_that_of_latency_targets() -> None:
    """The points of all buckets add up to the counts of a verdict on the same requests."""
    kinds = [Kind.OK, Kind.OK, Kind.OK, Kind.FAILED, Kind.THROTTLED, Kind.SKIPPED, Kind.OK]
    values = [100.0, 300.0, 301.0, 100.0, np.nan, np.nan, np.nan]
    endings = {Kind.OK: Ending.ANSWERED, Kind.FAILED: Ending.FAILED, Kind.THROTTLED: Ending.THROTTLED}
    rows = [Row(1, "us", at, value, kind=kind) for at, (value, kind) in enumerate(zip(values, kinds, strict=True))]
    ((point,),) = series_of(probes(rows), bucket_us=10, limit_us=300).values()
    judged = requests_of(values, [endings.get(kind, Ending.NONE) for kind in kinds]).judged({Metric.TTFT: 300.0})
    assert (point.planned, point.good) == (judged.planned, judged.good)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.floats(1, 1e9)), max_size=60))
def test_points_agree_with_the_quantiles_of_their_values(given_rows: list[tuple[int, int, float]]) -> None:
    """A point has the quantiles that a leaderboard would show for the values of its bucket."""
    rows = [Row(target, "us", at, value) for target, at, value in given_rows]
    found = series_of(probes(rows), bucket_us=10)
    for (target, _), points in found.items():
        for point in points:
            values = [row.value for row in rows if row.target == target and row.at // 10 * 10 == point.at]
            exact = [independent_quantile(values, share) for share in SHARES]
            assert [point.p10, point.p50, point.p90] == [one.value if one else None for one in exact]
    assert sum(point.ok for points in found.values() for point in points) == len(rows)


def test_ranks_are_nearest() -> None:
    """The rank is n times the share, rounded up, and a product that is whole is not raised by rounding."""
    assert [int(rank_of(10, share)) for share in SHARES] == [1, 5, 9]
    assert rank_of(np.array([0, 1, 11]), 0.5).tolist() == [1, 1, 6]
