"""Values and outcomes over time from the summaries of hours and days, in buckets of several of them. Pure.

The points are those of `time_series`, within the width of a histogram's bucket.
"""

from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.histogram import Joined, SortedEntries
from isochrone_collector.analysis.probes import Integers, Kind, Reals
from isochrone_collector.analysis.requests import planned_and_good
from isochrone_collector.analysis.time_series import SHARES, TargetSeries, points_of, rank_of
from isochrone_collector.analysis.value_bins import PackedValues

# The number of an hour since the epoch takes fewer bits.
_BUCKET_BITS = 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummarisedOutcomes:
    """How many probes of one target had each `Kind` of outcome in each hour or day, as columns: `region` is an index
    into a list, `at` the beginning of the hour or day in microseconds since the epoch.
    """

    region: Integers
    at: Integers
    kind: Integers
    probes: Integers

    def points(self, bucket_us: int) -> int:
        """Return the number of points of all regions."""
        return len(np.unique(_cells(self.region, self.at, bucket_us)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummarisedValues:
    """The values of one metric of one target in each hour or day: columns as of `SummarisedOutcomes`, and the
    concatenated blobs of known values and of limits, with their sizes in bytes.
    """

    region: Integers
    at: Integers
    known: bytes
    known_sizes: Integers
    limits: bytes
    limit_sizes: Integers


def summarised_series(
    target_id: int,
    regions: tuple[str, ...],
    outcomes: SummarisedOutcomes,
    values: SummarisedValues,
    *,
    bucket_us: int,
    limit_us: int | None = None,
) -> TargetSeries:
    """Return the points of a target from each region with probes, in buckets of `bucket_us` microseconds; with a limit
    in microseconds on a latency, also the goodput.
    """
    both = [_cells(one.region, one.at, bucket_us) for one in (outcomes, values)]
    cells, places = np.unique(np.concatenate(both), return_inverse=True)
    of_outcomes, of_values = np.split(places, [len(both[0])])
    kinds = _counts(outcomes, of_outcomes, of=len(cells))
    known, limits = (
        histogram.sort_entries(Joined(content=content, sizes=sizes, groups=of_values), of=len(cells))
        for content, sizes in ((values.known, values.known_sizes), (values.limits, values.limit_sizes))
    )
    n = known.n + limits.n
    region, bucket = np.divmod(cells, 1 << _BUCKET_BITS)
    columns = [bucket * bucket_us, n, *_quantiles(known, n), *kinds]
    if limit_us is not None:
        ok, failed, throttled, _ = kinds
        columns += planned_and_good(
            known=known.n, in_time=known.within(limit_us), ok=ok, failed=failed, throttled=throttled
        )
    has_probes = np.sum(kinds, axis=0) > 0
    return points_of(
        region[has_probes], [column[has_probes] for column in columns], lambda place: (target_id, regions[place])
    )


def packed_summaries(target_id: int, regions: tuple[str, ...], values: SummarisedValues) -> PackedValues:
    """Return the values of a target from each region that has any."""
    joined = Joined(content=values.known, sizes=values.known_sizes, groups=values.region)
    blobs = zip(regions, histogram.split(joined, of=len(regions)), strict=True)
    return {(target_id, region): blob for region, blob in blobs if blob}


def _cells(region: Integers, at: Integers, bucket_us: int) -> Integers:
    """Return a number for each region and bucket, ascending in this order."""
    return (region << _BUCKET_BITS) + at // bucket_us


def _counts(outcomes: SummarisedOutcomes, places: Integers, *, of: int) -> list[Integers]:
    """Return the number of probes of each kind in each of `of` cells."""
    return [
        np.bincount(places, weights=np.where(outcomes.kind == kind, outcomes.probes, 0), minlength=of).astype(np.int64)
        for kind in Kind
    ]


def _quantiles(known: SortedEntries, n: Integers) -> list[Reals]:
    """Return the quantiles of each group; NaN where they are among the values that were cut off by a timeout."""
    ranks = [rank_of(n, share) for share in SHARES]
    return [np.where(rank <= known.n, known.at(rank), np.nan) for rank in ranks]
