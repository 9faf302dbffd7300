"""Series from summaries: each point is that of the merged histograms and the added counts of its bucket."""

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.distribution import OutcomeCounts
from isochrone_collector.analysis.goodput import summarised_requests
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_collector.analysis.time_series import (
    SHARES,
    SummarisedOutcomes,
    SummarisedValues,
    TargetSeries,
    packed_summaries,
    rank_of,
    summarised_series,
)
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US
from isochrone_wire.queries.series import SeriesPoint

BUCKET_US = 6 * HOUR_US
AT = 1_795_219_200_000_000
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
    """Return the columns of hours, with outcomes that occur and with histograms of hours with values."""
    counted = [(hour, kind, count) for hour in hours for kind, count in enumerate(hour.counts) if count]
    valued = [hour for hour in hours if hour.values or hour.limits]
    known, limits = [histogram.pack(hour.values) for hour in valued], [histogram.pack(hour.limits) for hour in valued]
    outcomes = SummarisedOutcomes(
        region=integers([hour.region for hour, _, _ in counted]),
        at=integers([AT + hour.hour * HOUR_US for hour, _, _ in counted]),
        kind=integers([kind for _, kind, _ in counted]),
        probes=integers([count for _, _, count in counted]),
    )
    return outcomes, SummarisedValues(
        region=integers([hour.region for hour in valued]),
        at=integers([AT + hour.hour * HOUR_US for hour in valued]),
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
        at = AT + hour.hour * HOUR_US
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
    ok, failed, throttled, skipped = (counts[kind] for kind in Kind)
    outcomes = OutcomeCounts(ok=ok, failed=failed, throttled=throttled, skipped=skipped)
    requests = summarised_requests(merged, outcomes, LIMIT_US)
    return SeriesPoint(
        at=at,
        n=merged.n,
        p10=p10,
        p50=p50,
        p90=p90,
        ok=ok,
        failed=failed,
        throttled=throttled,
        skipped=skipped,
        planned=requests.planned if has_limit else None,
        good=requests.good if has_limit else None,
    )


@settings(max_examples=150)
@given(HOURS, st.booleans())
def test_a_point_is_that_of_its_bucket(hours: list[Hour], has_limit: bool) -> None:  # noqa: FBT001  # a drawn value
    """All buckets at once have the values, counts and goodput of each bucket on its own, without any for hours that
    have none.
    """
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


def test_days_and_hours_are_one_series() -> None:
    """Summaries of days and of hours of the same bucket add up."""
    hours = [Hour(0, 0, [1e5] * 3, [], [3, 0, 0, 0]), Hour(0, 24, [2e5] * 5, [], [5, 1, 0, 0])]
    outcomes, values = columns(hours)
    series = summarised_series(TARGET_ID, REGIONS, outcomes, values, bucket_us=2 * DAY_US)
    points = series[TARGET_ID, "us"]
    assert sum(found.n for found in points) == 8
    assert sum(found.failed for found in points) == 1
