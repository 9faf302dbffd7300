"""Values and outcomes over time, in buckets that begin at multiples of their width.

The laws:

1. A quantile is the value of the nearest rank. Values that were cut off by a timeout rank above all others; a quantile
   among them is not known, and is absent.
2. Every probe is counted once, as a success, as a failure, as throttled or as skipped.
3. The goodput is that of `goodput`: of the planned requests, only those that succeeded within the limit count.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.probes import Flags, Integers, Kind, Probes, Reals
from isochrone_collector.analysis.sorting import beginnings, order_by, order_within
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.queries.series import SeriesPoint

MAX_POINTS = 500
"""Maximum number of points of a series."""

SHARES = (0.1, 0.5, 0.9)
"""The quantiles of a point."""

TargetSeries = dict[tuple[int, str], tuple[SeriesPoint, ...]]
"""Points by target id and region, oldest first."""

_HOUR_US = 60 * MINUTE_US
_WIDTHS = (
    *(size * SECOND_US for size in (1, 2, 5, 10, 15, 30)),
    *(size * MINUTE_US for size in (1, 2, 5, 10, 15, 30)),
    *(size * _HOUR_US for size in (1, 2, 3, 6, 12)),
    DAY_US,
)
# Rounding in 0.1 * n must not raise a rank.
_ROUNDING = 1e-9
# Above any probe's limit in microseconds.
_CENSORED = 1e13


def bucket_width(window: Window, *, points: int, least_us: int = SECOND_US) -> int:
    """Return the smallest round width in microseconds, at least `least_us`, with which the window has at most `points`
    buckets.
    """
    widths: Iterator[int] = chain(_WIDTHS, (DAY_US << doublings for doublings in count(1)))
    return next(width for width in widths if width >= least_us and _buckets(window, width) <= points)


def _buckets(window: Window, width_us: int) -> int:
    return (window.until_at - 1) // width_us - window.from_at // width_us + 1


def series_of(probes: Probes, *, bucket_us: int, limit_us: int | None = None) -> TargetSeries:
    """Return the points of each target and region with probes, in buckets of `bucket_us` microseconds; with a limit in
    microseconds on a latency, also the goodput.
    """
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
    """Return the points of each owner by its name. The columns have a value for each point: its instant, n, the
    quantiles of `SHARES` (NaN if not known), the counts of each `Kind`, and then, if wanted, planned and good requests.
    """
    found: dict[int, list[SeriesPoint]] = {}
    for owner, *row in zip(owners.tolist(), *(column.tolist() for column in columns), strict=True):
        found.setdefault(owner, []).append(_point(*row))
    return {name(owner): tuple(points) for owner, points in found.items()}


def _requests(probes: Probes, limit_us: int) -> tuple[Flags, Flags]:
    """Return which probes are planned requests, and which of those were answered within the limit."""
    answered = probes.kind == Kind.OK
    planned = (probes.kind != Kind.SKIPPED) & ~(answered & np.isnan(probes.value))
    return planned, answered & (probes.value <= limit_us)


def _added(flags: Flags, starts: Integers) -> Integers:
    """Return how many flags are set in each run."""
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


def _point(at: int, n: int, p10: float, p50: float, p90: float, *counts: int) -> SeriesPoint:
    ok, failed, throttled, skipped, *requests = counts
    planned, good = requests or (None, None)
    return SeriesPoint(
        at=at,
        n=n,
        p10=_known_or_none(p10),
        p50=_known_or_none(p50),
        p90=_known_or_none(p90),
        ok=ok,
        failed=failed,
        throttled=throttled,
        skipped=skipped,
        planned=planned,
        good=good,
    )


def _known_or_none(value: float) -> float | None:
    """Return a value, or `None` for NaN."""
    return None if isnan(value) else value
