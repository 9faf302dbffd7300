"""Lost batches: batches that an agent delivered and the database does not have.

The database was restored from a backup or emptied, or a standby that had not yet received them was promoted. Agents
list the delivered batches of which they still have a copy, and push those that are missing again.
"""

from collections.abc import Callable

import structlog

from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store import batches, job_state
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.model import DAY_US, BatchRange

MAX_MISSING = 1_000
"""The maximum number of ranges in one reply; the agent asks again."""
_MAX_RANGE = 1_000_000

_log = structlog.get_logger()


class LostBatches:
    """Lookup of delivered batches in the ledger."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    async def find(self, batch: PushBatch) -> tuple[BatchRange, ...]:
        """Return those of the batches which an agent keeps that are not in the ledger. Raises `DatabaseUnavailable`."""
        if not batch.kept:
            return ()
        missing = list[BatchRange]()
        async with self._database.connection() as connection:
            for kept in batch.kept:
                if 0 <= kept.last_seq - kept.first_seq < _MAX_RANGE:
                    missing += await batches.missing(connection, batch.vantage.id, kept)
            if missing:
                await self._record(connection)
        if missing:
            count = sum(one.last_seq - one.first_seq + 1 for one in missing)
            _log.error("database.lost_batches", vantage=batch.vantage.name, batches=count)
        return tuple(missing[:MAX_MISSING])

    async def _record(self, connection: Connection) -> None:
        """Record the instant, once a day, for the alert."""
        at = self._clock()
        if at - await job_state.batches_lost_at(connection) > DAY_US:
            await job_state.record_batches_lost(connection, at)
