"""Retention: the job that deletes samples, summaries, ledger entries, incidents and alerts when their retention periods
are over.

The laws:

1. No sample is deleted before its hour and its day are summarised, however old it is, and no hour before its day is.
2. A batch is deleted from the ledger when all of its samples would be set aside as too old if it were pushed again, so
   that no sample can be stored twice. That is a few days after its samples, because a batch may hold future rounds.
3. Without a retention period for samples, neither samples nor the ledger are deleted.
4. An open incident stays, however old it is, and so do its alerts, what is not delivered, the last alert about each
   subject, and a silence in force.
5. Periods count from the receipt of the newest samples, not from the clock: a wrong clock deletes nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from isochrone_collector.settings import RetentionPeriods
from isochrone_collector.store import job_state, partitions, vantages
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.model import DAY_US, MINUTE_US, day_of

EVERY_US = 10 * MINUTE_US
LEDGER_SLACK_US = (partitions.DAYS_AHEAD + 2) * DAY_US
"""Time in microseconds for which the ledger keeps a batch longer than its samples."""

_log = structlog.get_logger()


@dataclass(eq=False, kw_only=True)
class Retention:
    """Deletion of data whose retention period is over."""

    database: Database
    clock: Callable[[], int]
    periods: RetentionPeriods

    async def run(self) -> None:
        """Delete everything that is due. Raises `DatabaseUnavailable`."""
        periods = self.periods
        async with self.database.connection() as connection:
            newest = await vantages.newest_receipts(connection)
            summarised_until = (await job_state.progress(connection)).get(Resolution.DAY.job, 0)
        # Never in the future.
        at = min(newest.samples_at or 0, self.clock())
        if periods.samples_us is not None:
            await self._repeat("late samples", at - periods.samples_us, partitions.forget_late)
            await self._repeat("ledger", at - periods.samples_us - LEDGER_SLACK_US, partitions.forget_batches)
        if periods.hours_us is not None:
            forget = partial(partitions.forget_summaries, resolution=Resolution.HOUR)
            await self._repeat("hour summaries", min(at - periods.hours_us, summarised_until), forget)
        if periods.days_us is not None:
            forget = partial(partitions.forget_summaries, resolution=Resolution.DAY)
            await self._repeat("day summaries", at - periods.days_us, forget)
        if periods.incidents_us is not None:
            before_at = at - periods.incidents_us
            await self._repeat("incidents", before_at, partial(partitions.forget_ended, what="incidents"))
            await self._repeat("alerts", before_at, partitions.forget_alerts)
            await self._repeat("silences", before_at, partial(partitions.forget_ended, what="silences"))
        # Last, because a long-running reader can block it.
        if periods.samples_us is not None:
            before_at = min(day_of(at) - periods.samples_us, summarised_until)
            for day_at in await partitions.retire(self.database, before_at=before_at):
                _log.info("partition.retired", day_at=day_at)

    async def _repeat(self, what: str, before_at: int, forget: Callable[[Database, int], Awaitable[bool]]) -> None:
        portions = 0
        while await forget(self.database, before_at):
            portions += 1
        if portions:
            _log.info("retention.applied", what=what, before_at=before_at, portions=portions)
