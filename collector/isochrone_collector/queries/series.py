import asyncio
from dataclasses import dataclass, field, replace

from isochrone_collector.analysis import time_series
from isochrone_collector.analysis.probes import Probes
from isochrone_collector.errors import BadRequest
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve
from isochrone_collector.store import leaderboards, probe_queries, summaries
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.answers import Metric, Selection, Source, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US
from isochrone_wire.queries.series import Series, SeriesBin, SeriesList

Distributions = dict[tuple[int, str], tuple[SeriesBin, ...]]
"""Distributions by target id and region."""

# Each takes at most 80 bytes of a message.
MAX_ANSWER_POINTS = 100_000
"""Maximum number of points and bins of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The metric of the values, the limit of the goodput in microseconds, and the most bins, 0 for none."""

    metric: Metric
    limit_us: int | None
    bins: int


@dataclass(frozen=True, slots=True)
class _Found:
    """The results so far: the points of each series, and its values if there are distributions."""

    points: time_series.TargetSeries = field(default_factory=dict)
    values: time_series.PackedValues = field(default_factory=dict)

    def add(self, points: time_series.TargetSeries, values: time_series.PackedValues) -> None:
        for key, more in points.items():
            self.points[key] = self.points.get(key, ()) + more
        for key, blob in values.items():
            self.values[key] = self.values.get(key, b"") + blob


async def series(
    context: QueryContext, selection: Selection, *, metric: Metric, points: int = 0, limit_us: int = 0, bins: int = 0
) -> SeriesList:
    """Return one series per target and region with samples, in at most `points` buckets, 500 if it is 0, from the first
    sample on; with a `limit_us` on the metric, a latency, also the goodput of each bucket; with `bins`, also the
    distribution of the values in at most so many bins.

    Long windows, and windows whose samples were deleted, are answered from summaries, in buckets of whole hours. Raises
    `BadRequest` and `UnknownName`.
    """
    asked = _asked(metric, limit_us, bins)
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        scope = replace(resolved.scope, regions=resolved.scope.regions or tuple(resolved.known_regions))
        kept_at = await leaderboards.kept_since(connection)
        is_long = await leaderboards.prefers_summaries(connection, scope, kept_at=kept_at)
        most, found, rest = points or time_series.MAX_POINTS, _Found(), [scope.window]
        bucket_us = time_series.bucket_width(scope.window, points=most, least_us=HOUR_US)
        if is_long:
            found, rest = await _summarised(connection, scope, asked, bucket_us=bucket_us, kept_at=kept_at)
        for window in rest:
            probes = await probe_queries.probes(connection, replace(scope, window=window), asked.metric)
            if not is_long:
                bucket_us = time_series.bucket_width(_measured_part(window, probes), points=most)
            found.add(*await asyncio.to_thread(_measured, probes, asked, bucket_us=bucket_us))
    distributions = await asyncio.to_thread(time_series.bins_of, found.values, most=asked.bins) if asked.bins else {}
    _require_fitting(sum(map(len, (*found.points.values(), *distributions.values()))))
    return SeriesList(
        window=selection.window,
        metric=asked.metric,
        bucket_us=bucket_us,
        source=Source.SUMMARIES if is_long else Source.SAMPLES,
        series=tuple(_named(found.points, distributions, resolved)),
        limit_us=asked.limit_us,
    )


def _asked(metric: Metric, limit_us: int, bins: int) -> _Asked:
    if limit_us and not metric.includes_request:
        latencies = ", ".join(one.value for one in Metric if one.includes_request)
        raise BadRequest(f"{metric.value} is no latency of a request: a limit applies to {latencies}")
    if 0 < bins < time_series.FEWEST_BINS:
        raise BadRequest(f"{bins} bins: a distribution has {time_series.FEWEST_BINS} to {time_series.MAX_BINS}")
    return _Asked(metric=metric, limit_us=limit_us or None, bins=bins)


def _measured_part(window: Window, probes: Probes) -> Window:
    """Return the part of a window from its first probe on: a young collector has a small part of a usual window."""
    return replace(window, from_at=int(probes.round_at.min())) if len(probes) else window


def _measured(
    probes: Probes, asked: _Asked, *, bucket_us: int
) -> tuple[time_series.TargetSeries, time_series.PackedValues]:
    points = time_series.series_of(probes, bucket_us=bucket_us, limit_us=asked.limit_us)
    return points, time_series.packed_values(probes) if asked.bins else {}


async def _summarised(
    connection: Connection, scope: Scope, asked: _Asked, *, bucket_us: int, kept_at: int
) -> tuple[_Found, list[Window]]:
    """Return what summaries have of a long window, and the windows of the rest. Raises `BadRequest`."""
    whole_pieces = await summaries.pieces(connection, scope.window)
    span = summaries.span(whole_pieces)
    buckets = _summarised_buckets(scope.window, span, bucket_us=bucket_us, kept_at=kept_at) if span else None
    if span is None or buckets is None:
        return _Found(), [scope.window]
    days_until = max((piece.window.until_at for piece in whole_pieces if piece.resolution is Resolution.DAY), default=0)
    pieces = summaries.divide(_common(buckets, span), days_until=0 if bucket_us % DAY_US else days_until)
    regions = await probe_queries.region_names(connection, scope)
    named = replace(scope, regions=regions)
    outcomes = await summaries.outcomes_over_time(connection, named, pieces)
    # Reading the values of too many points would take minutes.
    _require_fitting(sum(own.points(bucket_us) for own in outcomes.values()))
    values = await summaries.values_over_time(connection, named, pieces, asked.metric)
    found = _Found()
    for target_id, own in outcomes.items():
        found.add(
            *await asyncio.to_thread(
                _of_summaries, target_id, regions, own, values[target_id], asked, bucket_us=bucket_us
            )
        )
    return found, summaries.edges(scope.window, buckets)


def _summarised_buckets(window: Window, span: Window, *, bucket_us: int, kept_at: int) -> Window | None:
    """Return the buckets that come from summaries of a `span`; `None` if there are none.

    A bucket that is summarised only in part, which is the first or the last one, comes from samples, unless these were
    deleted.
    """
    first_at, last_at = span.from_at // bucket_us * bucket_us, -(-span.until_at // bucket_us) * bucket_us
    used = []
    for at in range(first_at, last_at, bucket_us):
        whole = _common(Window(from_at=at, until_at=at + bucket_us), window)
        if _common(whole, span) == whole or whole.from_at < kept_at:
            used.append(at)
    return Window(from_at=used[0], until_at=used[-1] + bucket_us) if used else None


def _common(one: Window, other: Window) -> Window:
    return Window(from_at=max(one.from_at, other.from_at), until_at=min(one.until_at, other.until_at))


def _of_summaries(
    target_id: int,
    regions: tuple[str, ...],
    outcomes: time_series.SummarisedOutcomes,
    values: time_series.SummarisedValues,
    asked: _Asked,
    *,
    bucket_us: int,
) -> tuple[time_series.TargetSeries, time_series.PackedValues]:
    points = time_series.summarised_series(
        target_id, regions, outcomes, values, bucket_us=bucket_us, limit_us=asked.limit_us
    )
    return points, time_series.packed_summaries(target_id, regions, values) if asked.bins else {}


def _require_fitting(many: int) -> None:
    if many > MAX_ANSWER_POINTS:
        raise BadRequest(
            f"the series have {many} points and bins, more than {MAX_ANSWER_POINTS}: choose fewer targets, regions, "
            "points or bins"
        )


def _named(found: time_series.TargetSeries, distributions: Distributions, resolved: ResolvedSelection) -> list[Series]:
    named = [
        Series(
            target=resolved.names[target_id],
            region=region,
            points=tuple(sorted(points, key=lambda point: point.at)),
            bins=distributions.get((target_id, region), ()),
        )
        for (target_id, region), points in found.items()
    ]
    return sorted(named, key=lambda one: (one.target, one.region))
