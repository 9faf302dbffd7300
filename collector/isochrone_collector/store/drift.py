"""Round medians in which changes are searched, and the changes found."""

from collections.abc import Sequence
from dataclasses import dataclass

from isochrone_collector.analysis.drift import Change
from isochrone_collector.analysis.probe_records import MediansRow
from isochrone_collector.store.postgres import pool
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


async def medians(connection: pool.Connection, scope: Scope) -> list[MediansRow]:
    """Return the round medians of the watched metrics, by target and region."""
    async with connection.transaction():
        await pool.execute(connection, "prepare_round_scan")
        return await pool.fetch_columns(connection, "round_medians", MediansRow, **scope.parameters(), **_OUTCOMES)


async def known(connection: pool.Connection, target_ids: Sequence[int], *, from_at: int) -> dict[SeriesKey, list[int]]:
    """Return the instants since `from_at` at which each series of some targets changed."""
    found: dict[SeriesKey, list[int]] = {}
    rows = await pool.fetch_tuples(connection, "changes_since", target_ids=target_ids, from_at=from_at)
    for target_id, region, metric, changed_at in rows:
        key = SeriesKey(target_id=target_id, region=region, metric=Metric(metric))
        found.setdefault(key, []).append(changed_at)
    return found


async def record(
    connection: pool.Connection, key: SeriesKey, change: Change, *, detected_at: int, tolerance_us: int
) -> bool:
    """Record a change unless one within `tolerance_us` (microseconds) is recorded; return whether it was new."""
    row = {**fields_of(key), **fields_of(change), "detected_at": detected_at}
    near = {"from_at": change.changed_at - tolerance_us, "until_at": change.changed_at + tolerance_us}
    [is_known] = await pool.fetch_values(connection, "change_is_known", **row, **near)
    return not is_known and await pool.execute(connection, "insert_change", **row)


async def of_window(connection: pool.Connection, scope: Scope) -> list[DriftRow]:
    """Return the changes that began in a window, newest first."""
    return await pool.fetch(connection, "changes_of_window", DriftRow, **scope.parameters())


async def watched(connection: pool.Connection, scope: Scope) -> list[int]:
    """Return the numbers of rounds of the series in which changes are searched; one without values has 0."""
    asked = {**scope.parameters(), "streamed": _OUTCOMES["streamed"]}
    return [n for _, _, *counts in await pool.fetch_tuples(connection, "rounds_watched", **asked) for n in counts]


async def newest_changes(connection: pool.Connection, scope: Scope, metric: Metric) -> dict[tuple[int, str], int]:
    """Return target and region → the newest change of the metric within the scope, if any."""
    rows = await pool.fetch_tuples(connection, "newest_changes", **scope.parameters(), metric=metric)
    return {(target_id, region): changed_at for target_id, region, changed_at in rows}
