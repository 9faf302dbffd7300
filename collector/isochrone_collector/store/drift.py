"""Round medians in which changes are searched, and the changes found."""

from collections.abc import Sequence
from dataclasses import dataclass

from isochrone_collector.analysis.drift import Change
from isochrone_collector.analysis.probe_records import MediansRow
from isochrone_collector.store.postgres.pool import Connection, execute, fetch, fetch_columns, fetch_values
from isochrone_collector.store.postgres.values import fields_of
from isochrone_collector.store.probe_queries import Scope
from isochrone_common.probe_metrics import CUT_OFF, STREAMED
from isochrone_wire.answers import Metric

WATCHED = (Metric.TTFT, Metric.TOKENS_PER_SECOND)
"""The metrics whose changes are detected."""
_OUTCOMES = {"streamed": list(STREAMED), "cut_off": list(STREAMED & CUT_OFF)}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeriesKey:
    """One metric of one target, measured from one region."""

    target_id: int
    region: str
    metric: Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRow(SeriesKey):
    """A stored change."""

    changed_at: int
    detected_at: int
    before: float
    after: float
    p_value: float
    n_before: int
    n_after: int
    may_be_weekly: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRow:
    """The numbers of rounds of a target from a region that have a value of each watched metric."""

    target_id: int
    region: str
    ttft: int
    tokens_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownRow(SeriesKey):
    changed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewestChangeRow:
    """The newest change of one target from one region."""

    target_id: int
    region: str
    changed_at: int


async def medians(connection: Connection, scope: Scope) -> list[MediansRow]:
    """Return the round medians of the watched metrics, by target and region."""
    async with connection.transaction():
        await execute(connection, "prepare_round_scan")
        return await fetch_columns(connection, "round_medians", MediansRow, **scope.parameters(), **_OUTCOMES)


async def known(connection: Connection, target_ids: Sequence[int], *, from_at: int) -> dict[SeriesKey, list[int]]:
    """Return the instants since `from_at` at which each series of some targets changed."""
    found: dict[SeriesKey, list[int]] = {}
    for row in await fetch(connection, "changes_since", _KnownRow, target_ids=target_ids, from_at=from_at):
        key = SeriesKey(target_id=row.target_id, region=row.region, metric=row.metric)
        found.setdefault(key, []).append(row.changed_at)
    return found


async def record(
    connection: Connection, key: SeriesKey, change: Change, *, detected_at: int, tolerance_us: int
) -> bool:
    """Record a change unless one within `tolerance_us` (microseconds) is recorded; return whether it was new."""
    row = {**fields_of(key), **fields_of(change), "detected_at": detected_at}
    near = {"from_at": change.changed_at - tolerance_us, "until_at": change.changed_at + tolerance_us}
    [is_known] = await fetch_values(connection, "change_is_known", **row, **near)
    return not is_known and await execute(connection, "insert_change", **row)


async def of_window(connection: Connection, scope: Scope) -> list[DriftRow]:
    """Return the changes that began in a window, newest first."""
    return await fetch(connection, "changes_of_window", DriftRow, **scope.parameters())


async def watched(connection: Connection, scope: Scope) -> list[WatchedRow]:
    """Return the numbers of rounds in which changes are searched."""
    return await fetch(connection, "rounds_watched", WatchedRow, **scope.parameters(), streamed=_OUTCOMES["streamed"])


async def newest_changes(connection: Connection, scope: Scope, metric: Metric) -> dict[tuple[int, str], int]:
    """Return target and region → the newest change of the metric within the scope, if any."""
    rows = await fetch(connection, "newest_changes", _NewestChangeRow, **scope.parameters(), metric=metric)
    return {(row.target_id, row.region): row.changed_at for row in rows}
