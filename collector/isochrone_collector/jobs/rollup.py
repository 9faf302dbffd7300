"""Rollup: the job that turns samples into summaries of hours and days, and records its progress.

The laws:

1. An hour is summarised a few minutes after its end, in order; a day as soon as all of its hours are, because hours are
   not kept for ever.
2. Hours with late samples are summarised again, and so are their days. The delivery ledger has the rounds of each
   batch, and its transaction: a search begins with the first transaction that was pending at the search before. On a
   Citus cluster it begins one search earlier, because a shard may show what has ended a minute later.
3. Hours whose samples were retired are never summarised again, because some of their samples are gone.
4. When a day is done, the hourly levels of the past week are made for every series (see `analysis.history`).
5. Progress is never in the future. If it is, because the clock of an earlier leader was ahead, it is set back, and
   everything in the ledger is summarised again; so it is in a new database with the rows of another one, whose
   transactions had higher numbers.
6. The job can be stopped anywhere: recorded progress is complete, and the rest is done again.
"""

from collections.abc import Callable, Mapping
from itertools import chain

import structlog

from isochrone_collector.clock import AGREE_US
from isochrone_collector.store import hourly_levels, job_state, partitions, rollups
from isochrone_collector.store.batches import transactions
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, day_of

EVERY_US = MINUTE_US
GRACE_US = 5 * MINUTE_US
"""Time after its end at which an hour is summarised, in microseconds: by then most samples have arrived."""
LATE_EVERY_US = 10 * MINUTE_US
"""Interval of the search for late samples, in microseconds."""
LEVELS = "summary.levels"
"""The name of the recorded progress of the hourly levels of series."""
LATE = "summary.late"
"""The name of the recorded progress of the search for late samples."""

_log = structlog.get_logger()


class Rollup:
    """Summaries of the hours and days that are due."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._first_pending = 0

    async def run(self) -> None:
        """Make every summary that is due, and remake those with late samples. Raises `DatabaseUnavailable`."""
        at = self._clock()
        done = await self._begun(at)
        hours_until = done[Resolution.HOUR.job]
        days_until = await self._days(done[Resolution.DAY.job], day_of(hours_until))
        until_at = _floor(at - GRACE_US, HOUR_US)
        while hours_until < until_at:
            # The next hour, or the next day if it has no samples.
            is_empty = False
            if hours_until + DAY_US <= until_at:
                async with self._database.connection() as connection:
                    is_empty = not await rollups.any_samples(connection, _day(hours_until))
            if is_empty:
                hours_until += DAY_US
            else:
                await rollups.summarise_hour(self._database, hours_until)
                hours_until += HOUR_US
            await self._record(Resolution.HOUR.job, hours_until)
            if hours_until % DAY_US == 0 or hours_until == until_at:
                left = (until_at - hours_until) // HOUR_US
                _log.info("summary.made", resolution="hour", until_at=hours_until, left=left)
            days_until = await self._days(days_until, day_of(hours_until))
        if days_until > done.get(LEVELS, 0):
            series = await hourly_levels.make(self._database, days_until)
            await self._record(LEVELS, days_until)
            _log.info("hourly_levels.computed", until_at=days_until, series=series)
        if at - done[LATE] >= LATE_EVERY_US:
            await self._late(at=at, hours_until=hours_until, days_until=days_until)

    async def _begun(self, at: int) -> dict[str, int]:
        """Return the recorded progress; the first time, begin at the oldest day with samples."""
        async with self._database.transaction() as connection:
            done = await job_state.progress(connection)
            if LATE not in done:
                first_at = day_of(at)
                for day_at in await partitions.days(connection):
                    if day_at < at and await rollups.any_samples(connection, _day(day_at)):
                        first_at = day_at
                        break
                done = {LATE: at, Resolution.HOUR.job: first_at, Resolution.DAY.job: first_at}
                # Samples that are stored from now on may be late for hours that are summarised before.
                first = (await transactions(connection)).first_pending
                for name, until_at in done.items():
                    await job_state.advance(connection, name, until_at, next_number=first)
                _log.info("summary.begun", from_at=first_at, hours=(at - first_at) // HOUR_US)
            done |= await _set_back(connection, done, at)
        return done

    async def _days(self, done_until: int, until_at: int) -> int:
        for day_at in range(done_until, until_at, DAY_US):
            series = await rollups.summarise_day(self._database, day_at)
            await self._record(Resolution.DAY.job, day_at + DAY_US)
            _log.info("summary.made", resolution="day", until_at=day_at + DAY_US, series=series)
        return max(done_until, until_at)

    async def _late(self, *, at: int, hours_until: int, days_until: int) -> None:
        async with self._database.connection() as connection:
            first, found = await job_state.next_number(connection, LATE) or 0, await transactions(connection)
            if first > found.until:
                _log.error("summary.search_again", transaction=first, newest=found.until, hint="another database")
                first = 0
            spans = await rollups.touched(connection, first=first, until=found.until, before_at=hours_until)
            kept = await partitions.days(connection)
            retired_until = await partitions.retired_until(connection)
        kept_from = max(min(kept, default=at), retired_until)
        # The spans are closed, and of whole hours.
        late = (range(max(span.from_at, kept_from), min(span.until_at + 1, hours_until), HOUR_US) for span in spans)
        hours = sorted(set(chain.from_iterable(late)))
        for hour_at in hours:
            await rollups.summarise_hour(self._database, hour_at)
        days = sorted({day_of(hour_at) for hour_at in hours if hour_at < days_until})
        for day_at in days:
            await rollups.summarise_day(self._database, day_at)
        earlier, self._first_pending = self._first_pending or first, found.first_pending
        await self._record(LATE, at, next_number=earlier if found.is_cluster else found.first_pending)
        if hours:
            _log.info("summary.renewed", hours=len(hours), days=len(days), oldest_at=hours[0])

    async def _record(self, name: str, done_until: int, *, next_number: int = 0) -> None:
        async with self._database.connection() as connection:
            await job_state.advance(connection, name, done_until, next_number=next_number)


async def _set_back(connection: Connection, done: Mapping[str, int], at: int) -> dict[str, int]:
    """Set progress that is in the future back; return what was changed."""
    today_at = day_of(at)
    kept = [day_at for day_at in await partitions.days(connection) if day_at < today_at]
    latest = {
        Resolution.HOUR.job: _floor(at - GRACE_US, HOUR_US),
        Resolution.DAY.job: day_of(at - GRACE_US),
        LEVELS: day_of(at - GRACE_US),
        partitions.RETIRED: min(kept, default=today_at),
        LATE: 0,
    }
    changed = {name: until_at for name, until_at in latest.items() if done.get(name, 0) > at + AGREE_US}
    if changed:
        changed[LATE] = 0
        _log.error("summary.set_back", progress=sorted(changed), hint="an earlier clock of a collector was ahead")
    for name, until_at in changed.items():
        await job_state.advance(connection, name, until_at)
    return changed


def _day(from_at: int) -> Window:
    return Window(from_at=from_at, until_at=from_at + DAY_US)


def _floor(at: int, size_us: int) -> int:
    return at - at % size_us
