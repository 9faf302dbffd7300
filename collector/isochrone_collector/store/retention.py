"""What is kept for a time only, apart from partitions: deleted a portion at a time, so that nothing else waits.

Each function deletes one portion of what is older than an instant and says whether there may be more.
"""

from dataclasses import dataclass

from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Database, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.answers import Metric
from isochrone_wire.model import MINUTE_US

_PORTION_US = 10 * MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtRow:
    """An instant, if there is one."""

    at: int | None


async def forget_batches(database: Database, before_at: int) -> bool:
    """Batches of the ledger that were received before `before_at`. Raises `DatabaseUnavailable`."""
    return await _forget_received(database, "oldest_batch", "forget_batches", before_at)


async def forget_late(database: Database, before_at: int) -> bool:
    """Late samples that were received before `before_at`. Raises `DatabaseUnavailable`."""
    return await _forget_received(database, "oldest_late", "forget_late", before_at)


async def forget_summaries(database: Database, resolution: Resolution, before_at: int) -> bool:
    """Summaries of buckets that ended at `before_at` or earlier. Raises `DatabaseUnavailable`."""
    told = {"resolution": resolution.value}
    async with database.connection() as connection:
        (oldest,) = await fetch(connection, query("oldest_bucket"), _AtRow, **told)
        if oldest.at is None or oldest.at + resolution.size_us > before_at:
            return False
        bucket = {**told, "bucket_start": Instant(oldest.at)}
        await execute(connection, query("forget_summaries"), **bucket, metrics=[metric.value for metric in Metric])
        await execute(connection, query("forget_outcomes"), **bucket)
    return True


async def _forget_received(database: Database, oldest: str, forget: str, before_at: int) -> bool:
    async with database.connection() as connection:
        (found,) = await fetch(connection, query(oldest), _AtRow)
        if found.at is None or found.at >= before_at:
            return False
        until_at = min(found.at + _PORTION_US, before_at)
        await execute(connection, query(forget), until_at=Instant(until_at))
    return True
