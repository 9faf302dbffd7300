"""Partitions of `sample`: one per day (UTC), created ahead of time and dropped after the retention period.

The laws:

1. Creating a partition does not disturb ingest: the table is created separately, and attached under a lock that readers
   and writers share.
2. Dropping a partition locks the whole of `sample` for a moment. It gives up if it does not get the lock at once, and
   retries. (DETACH ... CONCURRENTLY would not need that lock, but an interrupted one leaves a half-detached partition,
   and Citus does not support it.)
3. Rounds are accepted where a partition exists, not where one should exist: see `covered`.
4. The partition of a retired day is never created again, even if samples are now kept for longer: a partition always
   holds all samples of its day. The end of the retired days is recorded together with the drop.

Deletion of old ledger entries, late samples, summaries, incidents and alerts, in small portions, so that no other
statement waits long.

Each function deletes one portion of the rows older than an instant, and returns whether there may be more. Samples are
dropped by the partition.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from psycopg import sql

from isochrone_collector.errors import DatabaseUnavailable, StartError
from isochrone_collector.store import job_state
from isochrone_collector.store.postgres.pool import Connection, Database, execute, fetch_values, query
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import DAY_US, MINUTE_US, day_of

DAYS_BACK = 31
"""Maximum age in days with which a sample is still stored in `sample`."""
DAYS_AHEAD = 3
RETIRED = "sample.retired"
"""The name of the recorded end of the retired days."""

_LOCK_KEY = 4_600_003
_ATTEMPTS = 5
_PAUSE_S = 0.5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = "sample_%Y%m%d"


def window(now_at: int, *, keep_us: int | None = None) -> Window:
    """Return the rounds that should have a partition at `now_at`: whole days, UTC. If samples are kept only for
    `keep_us`, the window begins a day after the oldest kept ones, so that no sample is stored and dropped at once.
    """
    today_at = day_of(now_at)
    days_back = DAYS_BACK if keep_us is None else min(DAYS_BACK, max(0, keep_us // DAY_US - 1))
    return Window(from_at=today_at - days_back * DAY_US, until_at=today_at + (DAYS_AHEAD + 1) * DAY_US)


async def ensure(database: Database, *, now_at: int, keep_us: int | None = None) -> Window:
    """Create missing partitions; return the covered window. Raises `DatabaseUnavailable` and `StartError`."""
    wanted = window(now_at, keep_us=keep_us)

    async def make(connection: Connection) -> None:
        await _check_rights(connection)
        await execute(connection, "take_lock", key=_LOCK_KEY)
        there = set(await days(connection))
        for day_at in range(max(wanted.from_at, await retired_until(connection)), wanted.until_at, DAY_US):
            if day_at not in there:
                day, partition = _EPOCH + timedelta(microseconds=day_at), _identifier(day_at)
                span = {
                    "from_day": sql.Literal(f"{day:%F} 00:00+00"),
                    "until_day": sql.Literal(f"{day + timedelta(1):%F} 00:00+00"),
                }
                await execute(connection, query("create_partition").format(partition=partition))
                await execute(connection, query("attach_partition").format(partition=partition, **span))

    await _with_lock_timeout(database, "set_short_lock_timeout", make)
    async with database.connection() as connection:
        return replace(wanted, from_at=max(wanted.from_at, await retired_until(connection)))


async def covered(database: Database, *, now_at: int, keep_us: int | None = None) -> Window:
    """Return the part of the window around today that has partitions without a gap; it is empty if today has none."""
    wanted, today_at = window(now_at, keep_us=keep_us), day_of(now_at)
    async with database.connection() as connection:
        retired_at = await retired_until(connection)
        # A collector whose clock was set back may have created the partition of a retired day again.
        there = {day_at for day_at in await days(connection) if day_at >= retired_at}
    from_at = _reach(range(today_at, wanted.from_at - 1, -DAY_US), there)
    last_at = _reach(range(today_at, wanted.until_at, DAY_US), there)
    if from_at is None or last_at is None:
        return Window(from_at=today_at, until_at=today_at)
    return Window(from_at=from_at, until_at=last_at + DAY_US)


async def retire(database: Database, *, before_at: int) -> list[int]:
    """Drop the partitions of days that end by `before_at`; return these. Raises `DatabaseUnavailable`."""
    async with database.connection() as connection:
        over = [day_at for day_at in await days(connection) if day_at + DAY_US <= before_at]
    for day_at in over:
        await _with_lock_timeout(database, "set_minimal_lock_timeout", partial(_drop, day_at=day_at))
    return over


async def days(connection: Connection) -> list[int]:
    """Return the days that have a partition, by their first instants, oldest first."""
    names = await fetch_values(connection, "partitions")
    return sorted(day_at for name in names if (day_at := day_named(name)) is not None)


async def retired_until(connection: Connection) -> int:
    """Return the end of the retired days, in microseconds since the Unix epoch; 0 if there are none."""
    return (await job_state.progress(connection)).get(RETIRED, 0)


def day_named(partition: str) -> int | None:
    """Return the first instant of a partition's day, from its name; `None` for other tables."""
    try:
        return (datetime.strptime(partition, _NAME).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    except ValueError:
        return None


async def _with_lock_timeout(
    database: Database, lock_timeout: str, work: Callable[[Connection], Awaitable[None]]
) -> None:
    """Run `work` in a transaction after the statement `lock_timeout`; retry if a lock is not available."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async with database.transaction() as connection:
                await execute(connection, "set_on_workers_too")
                await execute(connection, lock_timeout)
                await work(connection)
        except DatabaseUnavailable:
            if attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(_PAUSE_S * attempt)
        else:
            return


async def _check_rights(connection: Connection) -> None:
    if await fetch_values(connection, "may_make_partitions") != [True]:
        raise StartError(
            "the database user may not create partitions of `sample`, so tomorrow's samples could not be stored",
            hint="make it the owner of the table, with the privilege to create in its schema: "
            "ALTER TABLE sample OWNER TO …; GRANT CREATE ON SCHEMA public TO …",
        )


async def _drop(connection: Connection, *, day_at: int) -> None:
    partition = _identifier(day_at)
    await execute(connection, "take_lock", key=_LOCK_KEY)
    await execute(connection, query("detach_partition").format(partition=partition))
    await execute(connection, query("drop_partition").format(partition=partition))
    await job_state.advance(connection, RETIRED, max(day_at + DAY_US, await retired_until(connection)))


def _identifier(day_at: int) -> sql.Identifier:
    return sql.Identifier(f"{_EPOCH + timedelta(microseconds=day_at):{_NAME}}")


def _reach(wanted: Iterable[int], there: set[int]) -> int | None:
    last_at = None
    for day_at in wanted:
        if day_at not in there:
            break
        last_at = day_at
    return last_at


_PORTION_US = 10 * MINUTE_US


async def forget_batches(database: Database, before_at: int) -> bool:
    """Delete batches of the ledger that were received before `before_at`. Raises `DatabaseUnavailable`."""
    return await _forget_received(database, "oldest_batch", "forget_batches", before_at)


async def forget_late(database: Database, before_at: int) -> bool:
    """Delete late samples that were received before `before_at`. Raises `DatabaseUnavailable`."""
    return await _forget_received(database, "oldest_late", "forget_late", before_at)


async def forget_summaries(database: Database, before_at: int, *, resolution: Resolution) -> bool:
    """Delete summaries of buckets that ended at `before_at` or earlier. Raises `DatabaseUnavailable`."""
    async with database.connection() as connection:
        (oldest_at,) = await fetch_values(connection, "oldest_bucket", resolution=resolution)
        if oldest_at is None or oldest_at + resolution.size_us > before_at:
            return False
        bucket = {"resolution": resolution, "bucket_at": oldest_at}
        await execute(connection, "forget_summaries", **bucket, metrics=list(Metric))
        await execute(connection, "forget_outcomes", **bucket)
    return True


async def forget_ended(database: Database, before_at: int, *, what: Literal["incidents", "silences"]) -> bool:
    """Delete incidents or silences that ended before `before_at`. Raises `DatabaseUnavailable`."""
    async with database.connection() as connection:
        return await execute(connection, f"forget_{what}", before_at=before_at)


async def forget_alerts(database: Database, before_at: int) -> bool:
    """Delete old alerts and their deliveries, except those still needed. Raises `DatabaseUnavailable`."""
    async with database.transaction() as connection:
        if ids := await fetch_values(connection, "alerts_to_forget", before_at=before_at):
            await execute(connection, "forget_deliveries", ids=ids)
            await execute(connection, "forget_alerts", ids=ids)
    return bool(ids)


async def _forget_received(database: Database, oldest: str, forget: str, before_at: int) -> bool:
    async with database.connection() as connection:
        (oldest_at,) = await fetch_values(connection, oldest)
        if oldest_at is None or oldest_at >= before_at:
            return False
        await execute(connection, forget, until_at=min(oldest_at + _PORTION_US, before_at))
    return True
