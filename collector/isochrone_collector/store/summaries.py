"""Summaries of hours and days, which outlive the samples.

The server concatenates histograms, and this module merges them; percentiles are never averaged. A result covers whole
hours, and only summarised ones.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from psycopg import sql

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.histogram import Histograms, Joined
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_collector.analysis.time_series import SummarisedOutcomes, SummarisedValues
from isochrone_collector.store import job_state
from isochrone_collector.store.postgres.pool import Connection, fetch, query
from isochrone_collector.store.postgres.values import POSTGRES_EPOCH_AT, fields_of
from isochrone_collector.store.probe_queries import KIND_OF, Scope, region_names
from isochrone_wire.answers import Metric, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, Outcome

_STARTS, _NO_STARTS = sql.SQL("timestamptz_send(bucket_start)"), sql.SQL("''::bytea")

Series = tuple[int, str]
"""A target's id and a region."""

Key = tuple[int, str, str]
"""A target's id, a metric and a region."""


class Resolution(StrEnum):
    """The span of time of one summary."""

    HOUR = "hour"
    DAY = "day"

    @property
    def size_us(self) -> int:
        """Return its length in microseconds."""
        return HOUR_US if self is Resolution.HOUR else DAY_US

    @property
    def job(self) -> str:
        """Return the name of the recorded progress of these summaries."""
        return f"summary.{self}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRow:
    """A metric of a target from a region, as blobs of `histogram`: of values, and of the limits that others exceed."""

    target_id: int
    region: str
    metric: str
    histogram: bytes
    censored: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndToEndRow:
    """The concatenated histograms of one target and metric: blobs of values and of limits, their sizes, the positions
    of their regions in a list, from 1, and their beginnings, if those were asked for.
    """

    target_id: int
    metric: str
    places: bytes
    starts: bytes
    known_sizes: bytes
    known: bytes
    limit_sizes: bytes
    limits: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutcomesRow:
    """The concatenated counts of probes of one target, by region, beginning and outcome."""

    target_id: int
    places: bytes
    starts: bytes
    outcomes: bytes
    probes: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """Probes of a series by outcome, their cost in US dollars, the newest round, and the hours with probes."""

    target_id: int
    region: str
    outcomes: dict[str, int]
    cost_usd: float | None
    newest_at: int
    hours: float = 0.0

    @property
    def series(self) -> Series:
        """Return its series."""
        return self.target_id, self.region

    def __add__(self, other: "OutcomeRow") -> "OutcomeRow":
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return replace(
            self,
            outcomes=dict(Counter(self.outcomes) + Counter(other.outcomes)),
            cost_usd=sum(costs) if costs else None,
            newest_at=max(self.newest_at, other.newest_at),
            hours=self.hours + other.hours,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A window of whole buckets of one resolution."""

    resolution: Resolution
    window: Window


async def pieces(connection: Connection, window: Window) -> tuple[Piece, ...]:
    """Return the summarised pieces of a window: days where possible, else hours; empty without a whole hour."""
    done = await job_state.progress(connection)
    until_at = min(window.until_at, done.get(Resolution.HOUR.job, 0))
    return divide(Window(from_at=window.from_at, until_at=until_at), days_until=done.get(Resolution.DAY.job, 0))


def divide(window: Window, *, days_until: int) -> tuple[Piece, ...]:
    """Divide the whole hours of a window into hours, days and hours again; days only before `days_until`."""
    from_at, until_at = _up(window.from_at, HOUR_US), _down(window.until_at, HOUR_US)
    first_day_at, last_day_at = _up(from_at, DAY_US), min(_down(until_at, DAY_US), days_until)
    if first_day_at >= last_day_at:
        cuts = [(Resolution.HOUR, from_at, until_at)]
    else:
        cuts = [
            (Resolution.HOUR, from_at, first_day_at),
            (Resolution.DAY, first_day_at, last_day_at),
            (Resolution.HOUR, last_day_at, until_at),
        ]
    return tuple(
        Piece(resolution=resolution, window=Window(from_at=start_at, until_at=end_at))
        for resolution, start_at, end_at in cuts
        if start_at < end_at
    )


def span(found: Sequence[Piece]) -> Window | None:
    """Return the window that pieces cover together; `None` if there are none."""
    return Window(from_at=found[0].window.from_at, until_at=found[-1].window.until_at) if found else None


def edges(window: Window, inner: Window) -> list[Window]:
    """Return what is left of a window before and after an inner one."""
    before = Window(from_at=window.from_at, until_at=inner.from_at)
    after = Window(from_at=inner.until_at, until_at=window.until_at)
    return [edge for edge in (before, after) if edge.from_at < edge.until_at]


async def outcomes(connection: Connection, scope: Scope) -> dict[Series, OutcomeRow]:
    """Return the outcomes of the probes of a scope, as far as it is summarised."""
    found = await pieces(connection, scope.window)
    return added([row for piece in found for row in await counted(connection, scope, piece)])


async def merged(
    connection: Connection, scope: Scope, found: Iterable[Piece], metrics: Sequence[Metric]
) -> tuple[list[Key], Histograms]:
    """Merge the histograms of all pieces per target, region and metric; the scope's window is ignored."""
    regions = await region_names(connection, scope)
    rows = await _joined_rows(connection, replace(scope, regions=regions), found, metrics, starts=_NO_STARTS)
    return await asyncio.to_thread(_merged, rows, regions)


async def values_over_time(
    connection: Connection, scope: Scope, found: Iterable[Piece], metric: Metric
) -> dict[int, SummarisedValues]:
    """Return the values of all pieces by target; the scope must have regions, and its window is ignored."""
    rows = await _joined_rows(connection, scope, found, (metric,), starts=_STARTS)
    own: dict[int, list[_EndToEndRow]] = {target_id: [] for target_id in scope.target_ids}
    for row in rows:
        own[row.target_id].append(row)
    return {
        target_id: SummarisedValues(
            region=_concatenated(_integers(row.places, ">i2") - 1 for row in parts),
            at=_concatenated(_integers(row.starts, ">i8") + POSTGRES_EPOCH_AT for row in parts),
            known=b"".join(row.known for row in parts),
            known_sizes=_concatenated(_integers(row.known_sizes, ">i4") for row in parts),
            limits=b"".join(row.limits or b"" for row in parts),
            limit_sizes=_concatenated(_integers(row.limit_sizes, ">i4") for row in parts),
        )
        for target_id, parts in own.items()
    }


async def outcomes_over_time(
    connection: Connection, scope: Scope, found: Iterable[Piece]
) -> dict[int, SummarisedOutcomes]:
    """Return the outcomes of all pieces by target; the scope must have regions, and its window is ignored."""
    own: defaultdict[int, list[_OutcomesRow]] = defaultdict(list)
    for piece in found:
        for row in await fetch(
            connection, "outcomes_over_time", _OutcomesRow, **_parameters(scope, piece), outcomes=list(Outcome)
        ):
            own[row.target_id].append(row)
    return {
        target_id: SummarisedOutcomes(
            region=_concatenated(_integers(row.places, ">i2") - 1 for row in parts),
            at=_concatenated(_integers(row.starts, ">i8") + POSTGRES_EPOCH_AT for row in parts),
            kind=KIND_OF[_concatenated(_integers(row.outcomes, ">i2") - 1 for row in parts)],
            probes=_concatenated(_integers(row.probes, ">i8") for row in parts),
        )
        for target_id, parts in own.items()
    }


async def joined(connection: Connection, scope: Scope, piece: Piece, metrics: Sequence[Metric]) -> list[JoinedRow]:
    """Merge the histograms of one piece, and return them as blobs in which every bucket occurs once."""
    keys, histograms = await merged(connection, scope, (piece,), metrics)
    blobs = await asyncio.to_thread(histograms.blobs)
    return [
        JoinedRow(target_id=target_id, region=region, metric=metric, histogram=known, censored=limits or None)
        for (target_id, metric, region), (known, limits) in zip(keys, blobs, strict=True)
    ]


async def counted(connection: Connection, scope: Scope, piece: Piece) -> list[OutcomeRow]:
    """Return the outcomes of one piece, per target and region; the scope's window is ignored."""
    named = replace(scope, regions=await region_names(connection, scope))
    return await fetch(connection, "outcome_summaries", OutcomeRow, **_parameters(named, piece))


def added(rows: Iterable[OutcomeRow]) -> dict[Series, OutcomeRow]:
    """Add up rows to one per target and region."""
    sums: dict[Series, OutcomeRow] = {}
    for row in rows:
        sums[row.series] = sums[row.series] + row if row.series in sums else row
    return sums


def _parameters(scope: Scope, piece: Piece) -> dict[str, object]:
    return {**scope.parameters(), **fields_of(piece.window), "resolution": piece.resolution}


async def _joined_rows(
    connection: Connection, scope: Scope, found: Iterable[Piece], metrics: Sequence[Metric], *, starts: sql.SQL
) -> list[_EndToEndRow]:
    statement = query("joined_summaries").format(starts=starts)
    return [
        row
        for piece in found
        for row in await fetch(connection, statement, _EndToEndRow, **_parameters(scope, piece), metrics=metrics)
    ]


def _merged(rows: Sequence[_EndToEndRow], regions: Sequence[str]) -> tuple[list[Key], Histograms]:
    firsts = dict.fromkeys((row.target_id, row.metric) for row in rows)
    number = {first: place for place, first in enumerate(firsts)}
    # One code for each possible target, metric and region, then one group for each that occurs.
    codes = _concatenated(
        number[row.target_id, row.metric] * len(regions) + _integers(row.places, ">i2") - 1 for row in rows
    )
    present, groups = np.unique(codes, return_inverse=True)
    histograms = histogram.merge_joined(
        Joined(
            content=b"".join(row.known for row in rows),
            sizes=_concatenated(_integers(row.known_sizes, ">i4") for row in rows),
            groups=groups,
        ),
        Joined(
            content=b"".join(row.limits or b"" for row in rows),
            sizes=_concatenated(_integers(row.limit_sizes, ">i4") for row in rows),
            groups=groups,
        ),
        of=len(present),
    )
    listed = list(firsts)
    keys = [(*listed[code // len(regions)], regions[code % len(regions)]) for code in present.tolist()]
    return keys, histograms


def _integers(content: bytes, kind: str) -> Integers:
    return np.frombuffer(content, kind).astype(np.int64)


def _concatenated(parts: Iterable[Integers]) -> Integers:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _down(at: int, size_us: int) -> int:
    return at - at % size_us


def _up(at: int, size_us: int) -> int:
    return -_down(-at, size_us)
