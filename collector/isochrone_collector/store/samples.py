"""Single samples as records for `rows.stored_sample`: the newest, one of them, page by page, and those of newly stored
batches; and the rate limits of samples.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from isochrone_collector.store.partitions import DAYS_AHEAD, DAYS_BACK
from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.rows import COLUMNS
from isochrone_collector.store.sample_position import NAMES, Position
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US

Record = dict[str, Any]

_FURTHER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitBucket:
    """The lowest remaining amounts in the bucket that begins at `at`, and the number of probes that stated them."""

    target_id: int
    vantage: str
    region: str
    at: int
    requests: int | None
    requests_n: int
    tokens: int | None
    tokens_n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitReading:
    """The rate limits in the headers of one probe, which began at `at`."""

    target_id: int
    vantage: str
    region: str
    at: int
    remaining_requests: int | None
    limit_requests: int | None
    reset_requests_us: int | None
    remaining_tokens: int | None
    limit_tokens: int | None
    reset_tokens_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A batch in the ledger: how many of its samples were stored, and the range of their rounds, if known."""

    vantage_id: int
    epoch: int
    seq: int
    stored: int
    received_at: int
    oldest_round_at: int | None
    newest_round_at: int | None

    @property
    def key(self) -> tuple[int, int, int]:
        """The batch's key in the ledger: vantage, epoch and sequence number."""
        return (self.vantage_id, self.epoch, self.seq)


async def newest(connection: Connection, scope: Scope, *, limit: int) -> list[Record]:
    """Return the newest samples of a scope, newest first. The search goes back from the end of the scope in growing
    steps, because no index has the rounds of all targets in order.
    """
    window, span_us = scope.window, MINUTE_US
    while True:
        from_at = max(window.from_at, window.until_at - span_us)
        part = replace(scope, window=replace(window, from_at=from_at))
        records = await _records(connection, "samples", {**part.parameters(), "limit": limit})
        if len(records) == limit or from_at == window.from_at:
            return records
        span_us *= _FURTHER


async def after(connection: Connection, scope: Scope, position: Position, *, limit: int) -> list[Record]:
    """Return the samples of a scope after a position, in order."""
    bounds = {f"after_{name}": getattr(position, name) for name in NAMES}
    bounds["after_round_at"] = Instant(position.round_at)
    return await _records(connection, "samples_after", {**scope.parameters(), **bounds, "limit": limit})


async def at(connection: Connection, position: Position) -> list[Record]:
    """Return the sample at a position, if there is one."""
    parameters = {**asdict(position), "round_at": Instant(position.round_at)}
    return await _records(connection, "sample_at", parameters)


async def arrivals(connection: Connection, span: Window, regions: tuple[str, ...] | None) -> list[Arrival]:
    """Return the batches that were received within `span`, by the collectors' clocks."""
    bounds = {"from_at": Instant(span.from_at), "until_at": Instant(span.until_at)}
    listed = None if regions is None else list(regions)
    found = await fetch(connection, query("batches_received"), Arrival, **bounds, regions=listed)
    return [_with_rounds(arrival) for arrival in found]


async def of_batches(connection: Connection, scope: Scope, batches: Sequence[Arrival]) -> list[Record]:
    """Return the samples of some batches, in the order of their receipt; the window of the scope is ignored."""
    oldest, newest_at = [row.oldest_round_at or 0 for row in batches], [row.newest_round_at or 0 for row in batches]
    parameters: Record = {
        **scope.parameters(),
        "from_at": Instant(min(oldest)),
        "until_at": Instant(max(newest_at)),
        "vantage_ids": [row.vantage_id for row in batches],
        "epochs": [row.epoch for row in batches],
        "seqs": [row.seq for row in batches],
        "oldest": [Instant(at) for at in oldest],
        "newest": [Instant(at) for at in newest_at],
    }
    return await _records(connection, "samples_of_batches", parameters)


async def rate_limit_history(
    connection: Connection, scope: Scope, *, bucket_us: int, limit: int
) -> list[RateLimitBucket]:
    """Return at most `limit` buckets with rate limits, oldest first by target, region and vantage."""
    parameters = {**scope.parameters(), "bucket": f"{bucket_us} microseconds", "limit": limit}
    return await fetch(connection, query("rate_limit_history"), RateLimitBucket, **parameters)


async def rate_limit_readings(connection: Connection, scope: Scope, *, newest: int) -> list[RateLimitReading]:
    """Return the `newest` rate limits of each target and vantage, oldest first."""
    return await fetch(
        connection, query("rate_limit_readings"), RateLimitReading, **scope.parameters(), readings=newest
    )


def _with_rounds(arrival: Arrival) -> Arrival:
    """Give a batch without rounds in the ledger (all its samples are late) every round that had a partition."""
    if arrival.oldest_round_at is not None and arrival.newest_round_at is not None:
        return arrival
    oldest_at = arrival.received_at - (DAYS_BACK + 1) * DAY_US
    return replace(arrival, oldest_round_at=oldest_at, newest_round_at=arrival.received_at + (DAYS_AHEAD + 1) * DAY_US)


async def _records(connection: Connection, name: str, parameters: Record) -> list[Record]:
    columns = sql.SQL(", ").join(sql.Identifier("sample", column) for column in COLUMNS)
    async with connection.cursor(binary=True, row_factory=dict_row) as cursor:
        await cursor.execute(query(name).format(columns=columns), parameters)
        return await cursor.fetchall()
