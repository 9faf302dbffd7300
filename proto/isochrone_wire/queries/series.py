"""Value classes of the answer on values over time. Units as in `isochrone_wire.model`."""

from dataclasses import dataclass

from isochrone_wire.answers import Metric, Source, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """The probes of one bucket, which begins at `at` (microseconds since the epoch): quantiles of the n values of a
    metric, and counts of outcomes.

    A quantile is `None` without values, and if it is not known because probes were cut off by a timeout. The goodput is
    the share of the `planned` requests that are `good`: answered within the limit; both are `None` without a limit.
    """

    at: int
    n: int = 0
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    ok: int = 0
    failed: int = 0
    throttled: int = 0
    skipped: int = 0
    planned: int | None = None
    good: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesBin:
    """The number of values x of the window with `low` < x <= `high`, in the metric's unit; of zeros if both are 0."""

    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of a target from one region over time, oldest first; buckets without a probe are left out. `bins` is
    the distribution of its values in the whole window, if it was asked for: lowest first, without values that were cut
    off by a timeout and without empty bins. All series of an answer have the same edges, which are on a logarithmic
    scale.
    """

    target: str
    region: str
    points: tuple[SeriesPoint, ...] = ()
    bins: tuple[SeriesBin, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesList:
    """A series per target and region, in buckets at multiples of `bucket_us`; `limit_us` limits the goodput."""

    window: Window
    metric: Metric
    bucket_us: int
    source: Source = Source.SAMPLES
    series: tuple[Series, ...] = ()
    limit_us: int | None = None
