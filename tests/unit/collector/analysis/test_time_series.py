"""Values and outcomes over time: round buckets, nearest ranks, and every probe counted once."""

from collections import Counter, defaultdict
from dataclasses import asdict, replace
from itertools import pairwise
from math import isclose
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.distribution import OutcomeCounts
from isochrone_collector.analysis.goodput import Ending, summarised_requests
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_collector.analysis.time_series import (
    FEWEST_BINS,
    MAX_BINS,
    MAX_POINTS,
    SHARES,
    SummarisedOutcomes,
    SummarisedValues,
    TargetSeries,
    bins_of,
    bucket_width,
    packed_summaries,
    packed_values,
    rank_of,
    series_of,
    summarised_series,
)
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
    """Values that were cut off rank last, whatever their limit; an empty window has no series."""
    rows = [Row(1, "us", 0, 5.0), Row(1, "us", 0, 1.0, kind=Kind.FAILED, censored=True), Row(1, "us", 0, 7.0)]
    ((point,),) = series_of(probes(rows), bucket_us=10).values()
    assert (point.n, point.p10, point.p50, point.p90) == (3, 5.0, 7.0, None)
    assert series_of(probes([]), bucket_us=10, limit_us=5) == {}


def test_goodput_counts_every_planned_request() -> None:
    """Only a success within the limit is good; failures, throttled and slow ones are planned, unsent rounds are not."""
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


VALUES = st.lists(st.floats(min_value=1e-3, max_value=1e10), max_size=40)


def test_values_are_counted_per_target_and_region() -> None:
    """Values of probes that were cut off, and probes without a value, are in no bin."""
    rows = [
        Row(7, "us", 25, 300.0),
        Row(7, "us", 3, 100.0),
        Row(7, "us", 9, 100.0),
        Row(7, "us", 9, 900.0, censored=True),
        Row(7, "us", 9),
        Row(7, "sg", 8, 100.0),
        Row(8, "sg", 8),
    ]
    found = bins_of(packed_values(probes(rows)), most=MAX_BINS)
    assert {key: [one.n for one in bins] for key, bins in found.items()} == {(7, "us"): [2, 1], (7, "sg"): [1]}
    assert found[7, "us"][0] == replace(found[7, "sg"][0], n=2)
    assert packed_values(probes([])) == {}
    assert bins_of({}, most=10) == {}


@given(VALUES, VALUES, st.integers(FEWEST_BINS, MAX_BINS))
def test_bins_are_few_and_equally_wide(here: list[float], there: list[float], most: int) -> None:
    """Each value is in a bin that holds it, bins do not overlap, and all series together have at most so many."""
    packed = {(1, "us"): histogram.pack(here), (1, "sg"): histogram.pack(there)}
    found = bins_of(packed, most=most)
    bins = sorted({(one.low, one.high) for row in found.values() for one in row})
    assert len(bins) <= most
    assert all(isclose(high / low, bins[0][1] / bins[0][0], rel_tol=1e-9) for low, high in bins)
    assert all(below[1] <= above[0] * (1 + 1e-9) for below, above in pairwise(bins))
    for values, row in zip((here, there), found.values(), strict=True):
        # Rounding of logarithms moves an edge by less than a billionth.
        assert sum(one.n for one in row) == len(values)
        assert all(any(one.low * (1 - 1e-9) <= value <= one.high * (1 + 1e-9) for one in row) for value in values)


@given(VALUES, VALUES)
def test_values_may_come_in_portions(first: list[float], second: list[float]) -> None:
    """The bins of concatenated portions are those of all values at once; zero, which has no logarithm, has its own."""
    whole = bins_of({(1, "us"): histogram.pack(first + second)}, most=30)
    assert bins_of({(1, "us"): histogram.pack(first) + histogram.pack(second)}, most=30) == whole
    (row,) = bins_of({(1, "us"): histogram.pack([0.0, 0.0, 5.0])}, most=2).values()
    assert [(one.low == one.high, one.n) for one in row] == [(True, 2), (False, 1)]


BUCKET_US = 6 * HOUR_US
SUMMARY_AT = 1_795_219_200_000_000
REGIONS = ("us", "eu", "sg")
LIMIT_US = 300_000
TARGET_ID = 7


class Hour(NamedTuple):
    """The summary of an hour of a region: values and limits in microseconds, and the counts of `Kind`."""

    region: int
    hour: int
    values: list[float]
    limits: list[float]
    counts: list[int]


LATENCIES = st.lists(st.floats(50_000, 900_000), max_size=5)
HOURS = st.lists(
    st.builds(
        Hour,
        region=st.integers(0, len(REGIONS) - 1),
        hour=st.integers(0, 47),
        values=LATENCIES,
        limits=LATENCIES,
        counts=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    ),
    max_size=20,
)


def columns(hours: list[Hour]) -> tuple[SummarisedOutcomes, SummarisedValues]:
    counted = [(hour, kind, count) for hour in hours for kind, count in enumerate(hour.counts) if count]
    valued = [hour for hour in hours if hour.values or hour.limits]
    known, limits = [histogram.pack(hour.values) for hour in valued], [histogram.pack(hour.limits) for hour in valued]
    outcomes = SummarisedOutcomes(
        region=integers([hour.region for hour, _, _ in counted]),
        at=integers([SUMMARY_AT + hour.hour * HOUR_US for hour, _, _ in counted]),
        kind=integers([kind for _, kind, _ in counted]),
        probes=integers([count for _, _, count in counted]),
    )
    return outcomes, SummarisedValues(
        region=integers([hour.region for hour in valued]),
        at=integers([SUMMARY_AT + hour.hour * HOUR_US for hour in valued]),
        known=b"".join(known),
        known_sizes=integers(list(map(len, known))),
        limits=b"".join(limits),
        limit_sizes=integers(list(map(len, limits))),
    )


def integers(values: list[int]) -> Integers:
    return np.array(values, np.int64)


def one_by_one(hours: list[Hour], *, has_limit: bool) -> TargetSeries:
    """Return the series by merging the histograms of each bucket on its own."""
    buckets: defaultdict[tuple[str, int], list[Hour]] = defaultdict(list)
    for hour in hours:
        at = SUMMARY_AT + hour.hour * HOUR_US
        buckets[REGIONS[hour.region], at - at % BUCKET_US].append(hour)
    found: defaultdict[tuple[int, str], list[SeriesPoint]] = defaultdict(list)
    for (region, at), own in sorted(buckets.items()):
        counts = Counter({kind: sum(hour.counts[kind] for hour in own) for kind in Kind})
        if counts.total():
            found[TARGET_ID, region].append(point(at, own, counts, has_limit=has_limit))
    return {key: tuple(points) for key, points in found.items()}


def point(at: int, own: list[Hour], counts: Counter[Kind], *, has_limit: bool) -> SeriesPoint:
    merged = histogram.merge(
        [histogram.pack(hour.values) for hour in own],
        [histogram.pack(hour.limits) for hour in own],
        [0] * len(own),
        of=1,
    ).group(0)
    quantiles = [merged.quantile(share) if rank_of(merged.n, share) <= merged.known else None for share in SHARES]
    p10, p50, p90 = (found.value if found else None for found in quantiles)
    outcomes = OutcomeCounts(**{kind.name.lower(): counts[kind] for kind in Kind})
    requests = summarised_requests(merged, outcomes, LIMIT_US)
    found = SeriesPoint(at=at, n=merged.n, p10=p10, p50=p50, p90=p90, **asdict(outcomes))
    return replace(found, planned=requests.planned, good=requests.good) if has_limit else found


@settings(max_examples=150)
@given(HOURS, st.booleans())
def test_a_point_is_that_of_its_bucket(hours: list[Hour], has_limit: bool) -> None:  # noqa: FBT001  # a drawn value
    """All buckets at once have the values, counts and goodput of each on its own, none for hours that have none."""
    outcomes, values = columns(hours)
    found = summarised_series(
        TARGET_ID, REGIONS, outcomes, values, bucket_us=BUCKET_US, limit_us=LIMIT_US if has_limit else None
    )
    assert found == one_by_one(hours, has_limit=has_limit)
    assert outcomes.points(BUCKET_US) == sum(map(len, found.values()))


@given(HOURS)
def test_values_are_those_of_all_hours(hours: list[Hour]) -> None:
    """The values of a region are those of all its hours together; a region without any has none."""
    _, values = columns(hours)
    found = packed_summaries(TARGET_ID, REGIONS, values)
    for place, region in enumerate(REGIONS):
        own = [value for hour in hours if hour.region == place for value in hour.values]
        merged = histogram.merge([found.get((TARGET_ID, region), b"")], [b""], [0], of=1)
        assert merged.blobs()[0][0] == histogram.pack(own)
        assert ((TARGET_ID, region) in found) == bool(own)
