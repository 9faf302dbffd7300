"""Round medians to seek changes in, and the changes found."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.drift.change_detection import Change
from isochrone_collector.analysis.probes import Flags, Integers, Reals
from isochrone_collector.store.postgres import columns
from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.rows import YesRow
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import SECOND_US

WATCHED = (Metric.TTFT, Metric.TOKENS_PER_SECOND)
"""The metrics whose changes are sought."""

# A few hundred pages, some milliseconds, when they were written side by side.
_ROWS_BETWEEN_RESTS = 1_000
_REST_US = 5_000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeriesKey:
    """One metric of one target as seen from one region."""

    target_id: int
    region: str
    metric: Metric


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MediansRow:
    """The medians of a target's rounds as seen from a region, oldest first; NaN where a metric has no value. Those of
    TTFT that are `ttft_limited`, which is not 0, are of probes most of which were cut off by a timeout: it was at least
    so long.
    """

    target_id: int
    region: str
    rounds: Integers
    ttft_us: Reals
    ttft_limited: NDArray[np.int32]
    tokens_per_second: Reals

    def values(self, metric: Metric) -> Reals:
        """The medians of one of the watched metrics."""
        return self.ttft_us if metric is Metric.TTFT else self.tokens_per_second

    def limited(self, metric: Metric) -> Flags:
        """Which of them are timeouts' limits."""
        return self.ttft_limited > 0 if metric is Metric.TTFT else np.zeros(len(self.rounds), np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredRow:
    """A region to which rounds were delivered, and the oldest of them."""

    region: str
    oldest_round_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRow:
    """A change as it is kept."""

    target_id: int
    region: str
    metric: str
    changed_at: int
    detected_at: int
    before: float
    after: float
    p_value: float
    n_before: int
    n_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRow:
    """How many rounds of a target as seen from a region have a value of each watched metric."""

    target_id: int
    region: str
    ttft: int
    tokens_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownRow:
    target_id: int
    region: str
    metric: str
    changed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewestChangeRow:
    """The newest change of one target as seen from one region."""

    target_id: int
    region: str
    changed_at: int


async def medians(connection: Connection, scope: Scope, *, resting_us: int = 0) -> list[MediansRow]:
    """The round medians of the watched metrics, by target and region. For the first `resting_us` (microseconds) of its
    reading the server rests for some milliseconds after every thousand rows or so.
    """
    rests = {"rest_share": 1 / _ROWS_BETWEEN_RESTS, "rest_s": _REST_US / SECOND_US, "resting_us": resting_us}
    async with connection.transaction():
        await execute(connection, query("prepare_round_scan"))
        return await columns.fetch(connection, query("round_medians"), MediansRow, **scope.parameters(), **rests)


async def late(connection: Connection, *, received_at: int, usual_us: int, rounds: Window) -> list[DeliveredRow]:
    """Regions with deliveries since `received_at` of rounds of a window that were older than usual by then, in
    microseconds.
    """
    told = {"received_at": Instant(received_at), "usual_us": usual_us, "from_at": Instant(rounds.from_at)}
    return await fetch(connection, query("late_deliveries"), DeliveredRow, **told)


async def known(connection: Connection, target_ids: Sequence[int], *, from_at: int) -> dict[SeriesKey, list[int]]:
    """When each series of some targets changed since an instant."""
    told = {"target_ids": list(target_ids), "from_at": Instant(from_at)}
    found: dict[SeriesKey, list[int]] = {}
    for row in await fetch(connection, query("changes_since"), _KnownRow, **told):
        key = SeriesKey(target_id=row.target_id, region=row.region, metric=Metric(row.metric))
        found.setdefault(key, []).append(row.changed_at)
    return found


async def record(
    connection: Connection, key: SeriesKey, change: Change, *, detected_at: int, tolerance_us: int
) -> bool:
    """Record a change unless one is recorded that began within `tolerance_us` (microseconds) of it; whether it was."""
    series = {"target_id": key.target_id, "region": key.region, "metric": key.metric.value}
    near = {
        "from_at": Instant(change.changed_at - tolerance_us),
        "until_at": Instant(change.changed_at + tolerance_us),
    }
    [row] = await fetch(connection, query("change_is_known"), YesRow, **series, **near)
    return not row.yes and await execute(
        connection,
        query("insert_change"),
        **series,
        changed_at=Instant(change.changed_at),
        detected_at=Instant(detected_at),
        before=change.before,
        after=change.after,
        p_value=change.p_value,
        n_before=change.n_before,
        n_after=change.n_after,
    )


async def of_window(connection: Connection, scope: Scope) -> list[DriftRow]:
    """The changes that began in a window, newest first."""
    return await fetch(connection, query("changes_of_window"), DriftRow, **scope.parameters())


async def watched(connection: Connection, scope: Scope) -> list[WatchedRow]:
    """How many rounds there are to seek changes in."""
    return await fetch(connection, query("rounds_watched"), WatchedRow, **scope.parameters())


async def newest_changes(connection: Connection, scope: Scope, metric: Metric) -> dict[tuple[int, str], int]:
    """Target and region → the newest change of the metric within the scope, where there is any."""
    rows = await fetch(connection, query("newest_changes"), _NewestChangeRow, **scope.parameters(), metric=metric.value)
    return {(row.target_id, row.region): row.changed_at for row in rows}
