"""The values of every target from each region, for leaderboards, latency targets and tiers."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts, Values, hours_between
from isochrone_collector.analysis.probes import Kind
from isochrone_collector.analysis.stats.arrays import Flags
from isochrone_collector.store.postgres.instants import POSTGRES_EPOCH_AT
from isochrone_collector.store.postgres.pool import Connection, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import KINDS, Scope, measure, within_reach
from isochrone_wire.answers import Metric

_LIMITED = tuple(metric for metric in Metric if metric.includes_request)
Column = TypeVar("Column", bound=np.generic)
METRICS = (*_LIMITED, Metric.TOKENS_PER_SECOND)

# One probe of the statement `standings`, in the server's byte order, and the bits of its `traits`.
_PROBE = np.dtype([("traits", ">i4"), ("round_at", ">i8"), *((metric.value, ">f8") for metric in METRICS)])
_KIND_BITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesValues:
    """One target from one region: its values by metric, the outcomes of its probes, and the hours that these span.
    `succeeded` has whether each probe succeeded that was sent and not throttled, in the order of their rounds; `None`
    from summaries.
    """

    target_id: int
    region: str
    values: Mapping[Metric, Distribution]
    outcome_counts: OutcomeCounts
    newest_at: int
    hours: float = 0.0
    succeeded: Flags | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ManyRow:
    many: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SeriesRow:
    """The probes of one series, each a `_PROBE`."""

    target_id: int
    region: str
    probes: bytes

    def __len__(self) -> int:
        return len(self.probes) // _PROBE.itemsize


async def standings(connection: Connection, scope: Scope) -> list[SeriesValues]:
    """Return every target and region of a scope with samples, from the samples themselves. Raises `BadRequest` if there
    are too many.
    """
    statement = query("standings").format(**_expressions(), **KINDS)
    parts: dict[tuple[int, str], list[bytes]] = {}
    for row in await within_reach(connection, statement, scope, _SeriesRow):
        parts.setdefault((row.target_id, row.region), []).append(row.probes)
    return await asyncio.to_thread(_seen, parts)


async def more_than(connection: Connection, scope: Scope, limit: int) -> bool:
    """Return whether a scope has more than `limit` samples."""
    (row,) = await fetch(connection, query("samples_up_to"), _ManyRow, **scope.parameters(), limit=limit + 1)
    return row.many > limit


def _seen(parts: Mapping[tuple[int, str], Sequence[bytes]]) -> list[SeriesValues]:
    """Return the series of these probes. Their columns are cut at last, because thousands of series have a hundred
    probes each.
    """
    lengths = np.array([sum(map(len, own)) // _PROBE.itemsize for own in parts.values()], np.int64)
    owner = np.repeat(np.arange(len(parts)), lengths)
    records, rounds_at = _in_order(np.frombuffer(b"".join(chain(*parts.values())), _PROBE), owner)
    ends = lengths.cumsum()
    oldest_at, newest_at = rounds_at[ends - lengths], rounds_at[ends - 1]
    traits = records["traits"].astype(np.int64)
    kinds = traits & max(Kind)
    counts = np.bincount(owner * len(Kind) + kinds, minlength=len(parts) * len(Kind)).reshape(len(parts), len(Kind))
    is_sent = (kinds == Kind.OK) | (kinds == Kind.FAILED)
    succeeded = _cut((kinds == Kind.OK)[is_sent], counts[:, Kind.OK] + counts[:, Kind.FAILED])
    values = dict(_values(records, traits >> _KIND_BITS, owner, of=len(parts)))
    return [
        SeriesValues(
            target_id=target_id,
            region=region,
            values={metric: own[place] for metric, own in values.items()},
            outcome_counts=OutcomeCounts(ok=ok, failed=failed, throttled=throttled, skipped=skipped),
            newest_at=newest,
            hours=hours,
            succeeded=succeeded[place],
        )
        for place, ((target_id, region), (ok, failed, throttled, skipped), newest, hours) in enumerate(
            zip(
                parts,
                counts.tolist(),
                newest_at.tolist(),
                hours_between(oldest_at, newest_at, lengths).tolist(),
                strict=True,
            )
        )
    ]


def _in_order(probes: NDArray[np.void], owner: NDArray[np.int64]) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Return the probes of each owner in the order of their rounds, in which they were mostly written, and the rounds
    in microseconds since the epoch.
    """
    at = probes["round_at"].astype(np.int64) + POSTGRES_EPOCH_AT
    if not np.any((at[1:] < at[:-1]) & (owner[1:] == owner[:-1])):
        return probes, at
    order = np.lexsort((at, owner))
    return probes[order], at[order]


def _values(
    records: NDArray[np.void], limited: NDArray[np.int64], owner: NDArray[np.int64], *, of: int
) -> Iterator[tuple[Metric, list[Values]]]:
    """Yield the values of each metric, of each of the owners; `limited` has a bit for each metric that has limits."""
    for bit, metric in enumerate(METRICS):
        column = records[metric.value].astype(np.float64)
        known = ~np.isnan(column)
        lengths = np.bincount(owner[known], minlength=of)
        values, censored = _cut(column[known], lengths), _cut((limited >> bit & 1).astype(np.bool_)[known], lengths)
        yield metric, [Values(values=own, censored=flags) for own, flags in zip(values, censored, strict=True)]


def _cut(column: NDArray[Column], lengths: NDArray[np.int64]) -> list[NDArray[Column]]:
    """Cut a column into runs of these lengths."""
    ends = lengths.cumsum().tolist()
    return [column[start:end] for start, end in zip([0, *ends][:-1], ends, strict=True)]


def _expressions() -> dict[str, sql.SQL]:
    parts = {metric: measure(metric) for metric in METRICS}
    values = {metric.value: parts[metric]["value"] for metric in METRICS}
    return values | {f"{metric.value}_limit": parts[metric]["ceiling"] for metric in _LIMITED}
