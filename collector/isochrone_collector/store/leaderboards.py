"""The values of every target from each region, for leaderboards, latency targets and tiers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts, Values, hours_of
from isochrone_collector.analysis.probes import Flags, Kind
from isochrone_collector.store.postgres.instants import POSTGRES_EPOCH_AT
from isochrone_collector.store.postgres.pool import Connection, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import KINDS, Scope, measure, within_reach
from isochrone_wire.answers import Metric

_LIMITED = tuple(metric for metric in Metric if metric.includes_request)
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
    return [_seen(*series, b"".join(own)) for series, own in parts.items()]


async def more_than(connection: Connection, scope: Scope, limit: int) -> bool:
    """Return whether a scope has more than `limit` samples."""
    (row,) = await fetch(connection, query("samples_up_to"), _ManyRow, **scope.parameters(), limit=limit + 1)
    return row.many > limit


def _seen(target_id: int, region: str, probes: bytes) -> SeriesValues:
    unsorted = np.frombuffer(probes, _PROBE)
    rounds_at = unsorted["round_at"].astype(np.int64) + POSTGRES_EPOCH_AT
    order = np.argsort(rounds_at, kind="stable")
    records, rounds_at = unsorted[order], rounds_at[order]
    traits = records["traits"].astype(np.int64)
    kinds = traits & max(Kind)
    counts = np.bincount(kinds, minlength=len(Kind)).tolist()
    return SeriesValues(
        target_id=target_id,
        region=region,
        values=dict(_values(records, traits >> _KIND_BITS)),
        outcome_counts=OutcomeCounts(
            ok=counts[Kind.OK],
            failed=counts[Kind.FAILED],
            throttled=counts[Kind.THROTTLED],
            skipped=counts[Kind.SKIPPED],
        ),
        newest_at=int(rounds_at[-1]),
        hours=hours_of(rounds_at),
        succeeded=(kinds == Kind.OK)[(kinds == Kind.OK) | (kinds == Kind.FAILED)],
    )


def _values(records: NDArray[np.void], limited: NDArray[np.int64]) -> Iterator[tuple[Metric, Values]]:
    """Yield the values of each metric; `limited` has a bit for each that has limits."""
    for bit, metric in enumerate(METRICS):
        column = records[metric.value].astype(np.float64)
        known = ~np.isnan(column)
        yield metric, Values(values=column[known], censored=(limited >> bit & 1).astype(np.bool_)[known])


def _expressions() -> dict[str, sql.SQL]:
    parts = {metric: measure(metric) for metric in METRICS}
    values = {metric.value: parts[metric]["value"] for metric in METRICS}
    return values | {f"{metric.value}_limit": parts[metric]["ceiling"] for metric in _LIMITED}
