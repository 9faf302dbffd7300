"""Values and outcomes over time, in buckets that begin at multiples of their width.

The laws:

1. A quantile is the value of the nearest rank. Values that were cut off by a timeout rank above all others; a quantile
   among them is not known, and is absent.
2. Every probe is counted once, as a success, as a failure, as throttled or as skipped.
3. The goodput is that of `goodput`: of the planned requests, only those that succeeded within the limit count.

4. Distributions of values have bins that are equally wide on a logarithmic scale, with the same edges for all series of
   an answer: edges of the buckets of `histogram`, so that samples and summaries are counted in the same bins. Values
   that were cut off by a timeout are not counted.
5. Summaries of hours and days give the same points, within the width of a histogram's bucket.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.goodput import planned_and_good
from isochrone_collector.analysis.histogram import Joined
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals, beginnings, order_by, order_within
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.queries.series import SeriesBin, SeriesPoint

MAX_POINTS = 500
"""Maximum number of points of a series."""

SHARES = (0.1, 0.5, 0.9)
"""The quantiles of a point."""

_COLUMNS = ("at", "n", "p10", "p50", "p90", "ok", "failed", "throttled", "skipped", "planned", "good")

TargetSeries = dict[tuple[int, str], tuple[SeriesPoint, ...]]
"""Points by target id and region, oldest first."""

_WIDTHS = (
    *(size * SECOND_US for size in (1, 2, 5, 10, 15, 30)),
    *(size * MINUTE_US for size in (1, 2, 5, 10, 15, 30)),
    *(size * HOUR_US for size in (1, 2, 3, 6, 12)),
    DAY_US,
)
# Rounding in 0.1 * n must not raise a rank.
_ROUNDING = 1e-9
# Above any probe's limit in microseconds.
_CENSORED = 1e13


def bucket_width(window: Window, *, points: int, least_us: int = SECOND_US) -> int:
    """Return the smallest round width, at least `least_us`, with which a window has at most so many buckets."""
    widths: Iterator[int] = chain(_WIDTHS, (DAY_US << doublings for doublings in count(1)))
    first_at, last_at = window.from_at, window.until_at - 1
    return next(width for width in widths if width >= least_us and last_at // width - first_at // width < points)


def series_of(probes: Probes, *, bucket_us: int, limit_us: int | None = None) -> TargetSeries:
    """Return the points of each target and region in such buckets; with a limit on a latency, also the goodput."""
    target_ids, target = np.unique(probes.target_id, return_inverse=True)
    group = target * len(probes.regions) + probes.region
    at = probes.round_at - probes.round_at % bucket_us
    order = order_by(group, at)
    starts = beginnings(group[order], at[order])
    lengths = np.diff(starts, append=len(order))
    outcomes = [_added(probes.kind[order] == kind, starts) for kind in Kind]
    requests = [] if limit_us is None else [_added(flags[order], starts) for flags in _requests(probes, limit_us)]
    n, quantiles = _quantiles(probes.value[order], probes.censored[order], starts, lengths)
    columns = (at[order][starts], n, *quantiles, *outcomes, *requests)

    def name(owner: int) -> tuple[int, str]:
        place, region = divmod(owner, len(probes.regions))
        return int(target_ids[place]), probes.regions[region]

    return points_of(group[order][starts], columns, name)


def points_of(
    owners: Integers, columns: Sequence[NDArray[Any]], name: Callable[[int], tuple[int, str]]
) -> TargetSeries:
    """Return points by columns: instant, n, quantiles, counts of each `Kind`, and planned and good requests."""
    found: dict[int, list[SeriesPoint]] = {}
    for owner, *row in zip(owners.tolist(), *(column.tolist() for column in columns), strict=True):
        known: Iterator[Any] = (None if isnan(value) else value for value in row)
        found.setdefault(owner, []).append(SeriesPoint(**dict(zip(_COLUMNS, known, strict=False))))
    return {name(owner): tuple(points) for owner, points in found.items()}


def _requests(probes: Probes, limit_us: int) -> tuple[Flags, Flags]:
    """Return which probes are planned requests, and which of those were answered within the limit."""
    answered = probes.kind == Kind.OK
    planned = (probes.kind != Kind.SKIPPED) & ~(answered & np.isnan(probes.value))
    return planned, answered & (probes.value <= limit_us)


def _added(flags: Flags, starts: Integers) -> Integers:
    return np.add.reduceat(flags, starts, dtype=np.int64) if len(starts) else np.empty(0, np.int64)


def rank_of(n: Integers | int, share: float) -> Integers:
    """Return the nearest rank of a quantile, from 1; 1 without values."""
    return np.maximum(np.ceil(share * np.asarray(n) - _ROUNDING), 1).astype(np.int64)


def _quantiles(
    values: Reals, censored: Flags, starts: Integers, lengths: Integers
) -> tuple[Integers, tuple[Reals, ...]]:
    """Return the number of values of each run, and its quantiles; NaN where they are not known."""
    known = ~np.isnan(values)
    n, exact = _added(known, starts), _added(known & ~censored, starts)
    ordered = values[order_within(np.where(censored, values + _CENSORED, values), lengths)]
    ranks = [rank_of(n, share) for share in SHARES]
    return n, tuple(np.where(rank <= exact, ordered[starts + np.minimum(rank, lengths) - 1], np.nan) for rank in ranks)


FEWEST_BINS = 2
MAX_BINS = 200
"""Bounds of the number of bins of a distribution."""

PackedValues = dict[tuple[int, str], bytes]
"""Values by target id and region, as blobs of `histogram`, which may be concatenated."""


def packed_values(probes: Probes) -> PackedValues:
    """Return the values of each target and region that has any."""
    kept = ~np.isnan(probes.value) & ~probes.censored
    target_id, region, value = probes.target_id[kept], probes.region[kept], probes.value[kept]
    target_ids, target = np.unique(target_id, return_inverse=True)
    group = target * len(probes.regions) + region
    alike = np.zeros(len(group), np.int64)
    order = order_by(group, alike)
    starts = beginnings(group[order], alike)
    owners = (divmod(int(owner), len(probes.regions)) for owner in group[order][starts])
    portions = np.split(value[order], starts[1:])
    return {
        (int(target_ids[place]), probes.regions[region_place]): histogram.pack(portion)
        for (place, region_place), portion in zip(owners, portions, strict=False)
    }


def bins_of(found: Mapping[tuple[int, str], bytes], *, most: int) -> dict[tuple[int, str], tuple[SeriesBin, ...]]:
    """Return the bins with values of each target and region, lowest first, of at most `most` + 1 different ones."""
    merged = histogram.merge(found.values(), [b""] * len(found), range(len(found)), of=len(found))
    low, high, counts = merged.coarsened(most)
    edges = list(zip(low.tolist(), high.tolist(), strict=True))
    return {
        key: tuple(SeriesBin(low=low, high=high, n=n) for (low, high), n in zip(edges, row, strict=True) if n)
        for key, row in zip(found, counts.tolist(), strict=True)
    }


# The number of an hour since the epoch takes fewer bits.
_BUCKET_BITS = 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummarisedOutcomes:
    """The number of a target's probes of each `Kind` by hour or day; `region` is an index into a list."""

    region: Integers
    at: Integers
    kind: Integers
    probes: Integers

    def points(self, bucket_us: int) -> int:
        """Return the number of points of all regions."""
        return len(np.unique(_cells(self.region, self.at, bucket_us)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummarisedValues:
    """The values of a target by hour or day: concatenated blobs of values and of limits, with their sizes in bytes."""

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
    """Return the points of a target by region in such buckets; with a limit on a latency, also the goodput."""
    both = [_cells(one.region, one.at, bucket_us) for one in (outcomes, values)]
    cells, places = np.unique(np.concatenate(both), return_inverse=True)
    of_outcomes, of_values = np.split(places, [len(both[0])])
    counted = (np.where(outcomes.kind == kind, outcomes.probes, 0) for kind in Kind)
    kinds = [np.bincount(of_outcomes, weights=own, minlength=len(cells)).astype(np.int64) for own in counted]
    known, limits = (
        histogram.sort_entries(Joined(content=content, sizes=sizes, groups=of_values), of=len(cells))
        for content, sizes in ((values.known, values.known_sizes), (values.limits, values.limit_sizes))
    )
    n = known.n + limits.n
    region, bucket = np.divmod(cells, 1 << _BUCKET_BITS)
    ranks = [rank_of(n, share) for share in SHARES]
    # Not known among the values that were cut off by a timeout.
    quantiles = [np.where(rank <= known.n, known.at(rank), np.nan) for rank in ranks]
    columns = [bucket * bucket_us, n, *quantiles, *kinds]
    if limit_us is not None:
        ok, failed, throttled, _ = kinds
        columns += planned_and_good(known.n, known.up_to(limit_us), ok, failed, throttled)
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
