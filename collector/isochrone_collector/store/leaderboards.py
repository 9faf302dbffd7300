"""The values of every target from each region, for leaderboards, latency targets and tiers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts, Values
from isochrone_collector.store.postgres.pool import Connection, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import Scope, measure, within_reach
from isochrone_wire.answers import Metric

_LIMITED = tuple(metric for metric in Metric if metric.includes_request)
METRICS = (*_LIMITED, Metric.TOKENS_PER_SECOND)

Column = NDArray[np.float64] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesValues:
    """One target from one region: its values by metric, and the outcomes of its probes."""

    target_id: int
    region: str
    values: Mapping[Metric, Distribution]
    outcome_counts: OutcomeCounts
    newest_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ManyRow:
    many: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _StandingRow:
    target_id: int
    region: str
    ttft: Column
    ttft_limits: Column
    ttft_cold: Column
    ttft_cold_limits: Column
    ttfat: Column
    ttfat_limits: Column
    e2e: Column
    e2e_limits: Column
    tokens_per_second: Column
    ok: int
    throttled: int
    skipped: int
    probes: int
    newest_at: int

    def __len__(self) -> int:
        return self.probes

    @property
    def outcome_counts(self) -> OutcomeCounts:
        """Return the outcomes of the probes."""
        failed = self.probes - self.ok - self.throttled - self.skipped
        return OutcomeCounts(ok=self.ok, failed=failed, throttled=self.throttled, skipped=self.skipped)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return a column; it is empty if it is NULL or does not exist."""
        found: Column = getattr(self, name, None)
        return np.empty(0) if found is None else found


async def standings(connection: Connection, scope: Scope) -> list[SeriesValues]:
    """Return every target and region of a scope with samples, from the samples themselves. Raises `BadRequest` if there
    are too many.
    """
    statement = query("standings").format(**_expressions())
    parts: dict[tuple[int, str], list[_StandingRow]] = {}
    for row in await within_reach(connection, statement, scope, _StandingRow):
        parts.setdefault((row.target_id, row.region), []).append(row)
    return [_seen(own) for own in parts.values()]


async def more_than(connection: Connection, scope: Scope, limit: int) -> bool:
    """Return whether a scope has more than `limit` samples."""
    (row,) = await fetch(connection, query("samples_up_to"), _ManyRow, **scope.parameters(), limit=limit + 1)
    return row.many > limit


def _seen(parts: Sequence[_StandingRow]) -> SeriesValues:
    """Join the rows of one series, each of a part of the window."""

    def joined(name: str) -> NDArray[np.float64]:
        return np.concatenate([part.column(name) for part in parts])

    return SeriesValues(
        target_id=parts[0].target_id,
        region=parts[0].region,
        values={
            metric: Values(values=joined(metric.value), limits=joined(f"{metric.value}_limits")) for metric in METRICS
        },
        outcome_counts=sum((part.outcome_counts for part in parts), start=OutcomeCounts()),
        newest_at=max(part.newest_at for part in parts),
    )


def _expressions() -> dict[str, sql.SQL]:
    parts = {metric: measure(metric) for metric in METRICS}
    values = {metric.value: parts[metric]["value"] for metric in METRICS}
    return values | {f"{metric.value}_limit": parts[metric]["ceiling"] for metric in _LIMITED}
