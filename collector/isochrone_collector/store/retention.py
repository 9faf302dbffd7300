"""Deletion of old ledger entries, late samples, summaries, incidents and alerts, in small portions, so that no other
statement waits long.

Each function deletes one portion of the rows older than an instant, and returns whether there may be more. Samples are
dropped by the partition.
"""

from dataclasses import dataclass

from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Database, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.rows import IdRow
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.answers import Metric
from isochrone_wire.model import MINUTE_US

_PORTION_US = 10 * MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtRow:
    """An instant, if there is one."""

    at: int | None


async def forget_batches(database: Database, before_at: int) -> bool:
    """Delete batches of the ledger that were received before `before_at`. Raises `DatabaseUnavailable`."""
    return await _forget_received(database, "oldest_batch", "forget_batches", before_at)


async def forget_late(database: Database, before_at: int) -> bool:
    """Delete late samples that were received before `before_at`. Raises `DatabaseUnavailable`."""
    return await _forget_received(database, "oldest_late", "forget_late", before_at)


async def forget_summaries(database: Database, resolution: Resolution, before_at: int) -> bool:
    """Delete summaries of buckets that ended at `before_at` or earlier. Raises `DatabaseUnavailable`."""
    parameters = {"resolution": resolution.value}
    async with database.connection() as connection:
        (oldest,) = await fetch(connection, query("oldest_bucket"), _AtRow, **parameters)
        if oldest.at is None or oldest.at + resolution.size_us > before_at:
            return False
        bucket = {**parameters, "bucket_start": Instant(oldest.at)}
        await execute(connection, query("forget_summaries"), **bucket, metrics=[metric.value for metric in Metric])
        await execute(connection, query("forget_outcomes"), **bucket)
    return True


async def forget_incidents(database: Database, before_at: int) -> bool:
    """Delete incidents that ended before `before_at`. Raises `DatabaseUnavailable`."""
    async with database.connection() as connection:
        return await execute(connection, query("forget_incidents"), before_at=Instant(before_at))


async def forget_alerts(database: Database, before_at: int) -> bool:
    """Delete alerts that were raised before `before_at`, with their deliveries, except those that are still needed.
    Raises `DatabaseUnavailable`.
    """
    async with database.transaction() as connection:
        rows = await fetch(connection, query("alerts_to_forget"), IdRow, before_at=Instant(before_at))
        ids = [row.id for row in rows]
        if ids:
            await execute(connection, query("forget_deliveries"), ids=ids)
            await execute(connection, query("forget_alerts"), ids=ids)
    return bool(ids)


async def forget_silences(database: Database, before_at: int) -> bool:
    """Delete silences and acknowledgements that ended before `before_at`. Raises `DatabaseUnavailable`."""
    async with database.connection() as connection:
        return await execute(connection, query("forget_silences"), before_at=Instant(before_at))


async def _forget_received(database: Database, oldest: str, forget: str, before_at: int) -> bool:
    async with database.connection() as connection:
        (found,) = await fetch(connection, query(oldest), _AtRow)
        if found.at is None or found.at >= before_at:
            return False
        until_at = min(found.at + _PORTION_US, before_at)
        await execute(connection, query(forget), until_at=Instant(until_at))
    return True
