"""Long windows of leaderboards: from summaries, and from samples at the edges that no whole hour covers.

The samples of the edges are counted into the same buckets, so a window is exact as long as its samples are kept.
Without them it begins with its first whole hour.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.distribution import Distribution, Values, outcome_counts
from isochrone_collector.errors import BadRequest
from isochrone_collector.store import leaderboards, partitions, summaries
from isochrone_collector.store.leaderboards import METRICS, SeriesValues
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.summaries import JoinedRow, OutcomeRow, Series
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import DAY_US

LONGEST_US = 7 * DAY_US
"""Windows up to this length are answered from samples, as long as these are kept and not too many."""

MAX_SAMPLES = 2_000_000
"""A window longer than a day with more samples is answered from summaries, because reading them would take many
seconds. It is also the maximum number of samples read for the part that summaries do not cover yet.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarisedWindow:
    """The values of a window, which may begin later than the requested one."""

    window: Window
    seen: list[SeriesValues]


async def summarised(connection: Connection, scope: Scope) -> SummarisedWindow | None:
    """Return a scope from summaries; `None` if samples cover it better, or nothing of it is summarised. Raises
    `BadRequest` if too many samples are not summarised yet.
    """
    oldest_at = await kept_since(connection)
    if not await prefers_summaries(connection, scope, kept_at=oldest_at):
        return None
    pieces = await summaries.pieces(connection, scope.window)
    span = summaries.span(pieces)
    if span is None:
        return None
    joined = [row for piece in pieces for row in await summaries.joined(connection, scope, piece, METRICS)]
    counted = [row for piece in pieces for row in await summaries.counted(connection, scope, piece)]
    edges = [
        seen
        for edge in _edges(scope.window, span)
        for seen in await _unsummarised(connection, replace(scope, window=edge))
    ]
    from_at = scope.window.from_at if scope.window.from_at >= oldest_at else span.from_at
    window = Window(from_at=from_at, until_at=scope.window.until_at)
    # Merging all histograms takes seconds, during which the event loop has to serve other requests.
    seen = await asyncio.to_thread(lambda: list(_together(joined, summaries.added(counted), edges)))
    return SummarisedWindow(window=window, seen=seen)


async def prefers_summaries(connection: Connection, scope: Scope, *, kept_at: int) -> bool:
    """Return whether a scope is long, or has samples that were deleted: those before `kept_at`."""
    return scope.window.from_at < kept_at or await _is_much(connection, scope)


async def kept_since(connection: Connection) -> int:
    """Return the instant before which samples were deleted; 0 without any samples."""
    return min(await partitions.days(connection), default=0)


async def _unsummarised(connection: Connection, scope: Scope) -> list[SeriesValues]:
    if await leaderboards.more_than(connection, scope, MAX_SAMPLES):
        raise BadRequest(
            f"more than {MAX_SAMPLES:_} samples of this window are not summarised yet: retry later, or choose a "
            "shorter window, fewer targets or fewer regions"
        )
    return await leaderboards.standings(connection, scope)


async def _is_much(connection: Connection, scope: Scope) -> bool:
    length_us = scope.window.until_at - scope.window.from_at
    if length_us <= DAY_US or length_us > LONGEST_US:
        return length_us > LONGEST_US
    return await leaderboards.more_than(connection, scope, MAX_SAMPLES)


def _edges(window: Window, span: Window) -> list[Window]:
    both = [
        Window(from_at=window.from_at, until_at=span.from_at),
        Window(from_at=span.until_at, until_at=window.until_at),
    ]
    return [edge for edge in both if edge.from_at < edge.until_at]


def _together(
    joined: Sequence[JoinedRow], counted: dict[Series, OutcomeRow], edges: Sequence[SeriesValues]
) -> Iterator[SeriesValues]:
    values = {metric: _distributions(metric, joined, edges) for metric in METRICS}
    of_edges: dict[Series, list[SeriesValues]] = {series: [] for series in counted}
    for seen in edges:
        of_edges.setdefault((seen.target_id, seen.region), []).append(seen)
    for series, own in of_edges.items():
        row = counted.get(series)
        summarised_at = [row.newest_at] if row is not None else []
        yield SeriesValues(
            target_id=series[0],
            region=series[1],
            values={metric: found[series] for metric, found in values.items() if series in found},
            outcome_counts=sum(
                (seen.outcome_counts for seen in own), start=outcome_counts(row.outcomes if row is not None else {})
            ),
            newest_at=max([*summarised_at, *(seen.newest_at for seen in own)]),
            hours=(row.hours if row is not None else 0.0) + sum(seen.hours for seen in own),
        )


def _distributions(
    metric: Metric, joined: Iterable[JoinedRow], edges: Iterable[SeriesValues]
) -> dict[Series, Distribution]:
    rows = [row for row in joined if row.metric == metric]
    blobs = [
        *((row.target_id, row.region, row.histogram, row.censored or b"") for row in rows),
        *((seen.target_id, seen.region, *_packed(seen.values[metric])) for seen in edges),
    ]
    places: dict[Series, int] = {}
    groups = [places.setdefault((target_id, region), len(places)) for target_id, region, _, _ in blobs]
    known, limits = (blob for *_, blob, _ in blobs), (blob for *_, blob in blobs)
    merged = histogram.merge(known, limits, groups, of=len(places))
    return {series: merged.group(place) for series, place in places.items()}


def _packed(values: Distribution) -> tuple[bytes, bytes]:
    # Values from samples are complete.
    assert isinstance(values, Values)
    return histogram.pack(values.values[~values.censored]), histogram.pack(values.values[values.censored])
