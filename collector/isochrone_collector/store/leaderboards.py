"""The values of every target from each region, for leaderboards, latency targets and tiers.

Long windows are answered from summaries, and from samples at the edges that no whole hour covers.
The samples of the edges are counted into the same buckets, so a window is exact as long as its samples are kept.
Without them it begins with its first whole hour.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts, Values, hours_between, outcome_counts
from isochrone_collector.analysis.probe_records import COMPARABLE, has, outcomes
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.analysis.stats.arrays import Flags, Integers
from isochrone_collector.errors import BadRequest
from isochrone_collector.store import partitions, summaries
from isochrone_collector.store.postgres.pool import Connection, fetch_values
from isochrone_collector.store.probe_queries import KIND_OF, ProbeColumns, Scope, needed_columns, read, values_of
from isochrone_collector.store.summaries import JoinedRow, OutcomeRow, Series
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import DAY_US

Column = TypeVar("Column", bound=np.generic)
METRICS = (Metric.TTFT, Metric.TTFT_COLD, Metric.TTFAT, Metric.E2E, Metric.TOKENS_PER_SECOND)
COLUMNS = ("round_at", *needed_columns(*METRICS))
"""The columns of the probes of a leaderboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesValues:
    """One target from one region: its values by metric, the outcomes of its probes, and the hours that these span.
    `succeeded` has whether each probe succeeded that was sent and not throttled, in the order of their rounds; `None`
    from summaries. `left_out` is the share of those that succeeded that are not compared.
    """

    target_id: int
    region: str
    values: Mapping[Metric, Distribution]
    outcome_counts: OutcomeCounts
    newest_at: int
    hours: float = 0.0
    succeeded: Flags | None = None
    left_out: float | None = None


async def standings(connection: Connection, scope: Scope) -> list[SeriesValues]:
    """Return every target and region with samples, from these. Raises `BadRequest` if there are too many."""
    return await asyncio.to_thread(_seen, await read(connection, scope, *COLUMNS))


async def more_than(connection: Connection, scope: Scope, limit: int) -> bool:
    """Return whether a scope has more than `limit` samples."""
    (many,) = await fetch_values(connection, "samples_up_to", **scope.parameters(), limit=limit + 1)
    return bool(many > limit)


def _seen(probes: ProbeColumns) -> list[SeriesValues]:
    """Return the series of these probes, whose columns are cut at last: there are thousands of short series."""
    series, lengths, found = probes.by_series()
    owner, rounds_at, ends = np.repeat(np.arange(len(series)), lengths), found.column("round_at"), lengths.cumsum()
    oldest_at, newest_at = rounds_at[ends - lengths], rounds_at[ends - 1]
    traits = found.column("traits")
    kinds = KIND_OF[outcomes(traits)]
    left_out = np.bincount(owner[(kinds == Kind.OK) & ~has(traits, COMPARABLE)], minlength=len(series)).tolist()
    counts = np.bincount(owner * len(Kind) + kinds, minlength=len(series) * len(Kind)).reshape(-1, len(Kind))
    is_sent = (kinds == Kind.OK) | (kinds == Kind.FAILED)
    succeeded = cut((kinds == Kind.OK)[is_sent], counts[:, Kind.OK] + counts[:, Kind.FAILED])
    values = {metric: measured(found, metric, lengths) for metric in METRICS}
    return [
        SeriesValues(
            target_id=target_id,
            region=region,
            values={metric: own[place] for metric, own in values.items()},
            outcome_counts=OutcomeCounts(ok=ok, failed=failed, throttled=throttled, skipped=skipped),
            newest_at=newest,
            hours=hours,
            succeeded=succeeded[place],
            left_out=left_out[place] / ok if ok else None,
        )
        for place, ((target_id, region), (ok, failed, throttled, skipped), newest, hours) in enumerate(
            zip(
                series,
                counts.tolist(),
                newest_at.tolist(),
                hours_between(oldest_at, newest_at, lengths).tolist(),
                strict=True,
            )
        )
    ]


def measured(found: ProbeColumns, metric: Metric, lengths: Integers) -> list[Values]:
    """Return the values of a metric of each series, given their numbers of probes."""
    column, is_limit = values_of(metric, found.column)
    is_known = ~np.isnan(column)
    many = np.bincount(np.repeat(np.arange(len(lengths)), lengths)[is_known], minlength=len(lengths))
    parts = zip(cut(column[is_known], many), cut(is_limit[is_known], many), strict=True)
    return [Values(values=own, censored=flags) for own, flags in parts]


def cut(column: NDArray[Column], lengths: NDArray[np.int64]) -> list[NDArray[Column]]:
    """Cut a column into runs of these lengths."""
    ends = lengths.cumsum().tolist()
    return [column[start:end] for start, end in zip([0, *ends][:-1], ends, strict=True)]


LONGEST_US = 7 * DAY_US
"""Windows up to this length are answered from samples, as long as these are kept and not too many."""

MAX_SAMPLES = 2_000_000
"""A window longer than a day with more samples is answered from summaries, because reading them would take many
seconds. It is also the maximum number of samples read for the part that summaries do not cover yet.
"""


async def summarised(connection: Connection, scope: Scope) -> tuple[Window, list[SeriesValues]] | None:
    """Return a scope from summaries with its window, which may begin later than the requested one; `None` if samples
    are better. Raises `BadRequest` if too little is summarised.
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
        for edge in summaries.edges(scope.window, span)
        for seen in await _unsummarised(connection, replace(scope, window=edge))
    ]
    from_at = scope.window.from_at if scope.window.from_at >= oldest_at else span.from_at
    window = Window(from_at=from_at, until_at=scope.window.until_at)
    # Merging all histograms takes seconds, during which the event loop has to serve other requests.
    seen = await asyncio.to_thread(lambda: list(_together(joined, summaries.added(counted), edges)))
    return window, seen


async def prefers_summaries(connection: Connection, scope: Scope, *, kept_at: int) -> bool:
    """Return whether a scope is long, or has samples that were deleted: those before `kept_at`."""
    length_us = scope.window.until_at - scope.window.from_at
    if scope.window.from_at < kept_at or length_us > LONGEST_US:
        return True
    return length_us > DAY_US and await more_than(connection, scope, MAX_SAMPLES)


async def kept_since(connection: Connection) -> int:
    """Return the instant before which samples were deleted; 0 without any samples."""
    return min(await partitions.days(connection), default=0)


async def _unsummarised(connection: Connection, scope: Scope) -> list[SeriesValues]:
    if await more_than(connection, scope, MAX_SAMPLES):
        raise BadRequest(
            f"more than {MAX_SAMPLES:_} samples of this window are not summarised yet: retry later, or choose a "
            "shorter window, fewer targets or fewer regions"
        )
    return await standings(connection, scope)


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
