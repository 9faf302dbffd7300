"""A partition of `sample` per day, UTC, made ahead of time and taken away when its time is over.

The laws:

1. Making one does not disturb ingest: the table is made apart and attached under a lock that readers and writers share.
2. Taking one away does so for a moment: it needs the whole of `sample` to itself, gives up when it is not let in at
   once, and tries again. (DETACH ... CONCURRENTLY would not even need that moment, but it leaves a partition that is
   half there when it is interrupted, and Citus has no such thing.)
3. Rounds are taken where a partition *is*, not where one should be: see `covered`.
4. A day that was retired is never made again, whatever is kept by now: where there is a partition, all samples of its
   day are. How far days were retired is recorded with the drop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from psycopg import sql

from isochrone_collector.errors import DatabaseUnavailable, StartError
from isochrone_collector.store import job_state
from isochrone_collector.store.postgres.pool import Connection, Database, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.rows import NameRow, YesRow
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, day_of

DAYS_BACK = 31
"""How late a sample may be at most and still be stored with the others, in days."""
DAYS_AHEAD = 3
RETIRED = "sample.retired"
"""The name under which it is recorded until when days were retired."""

_LOCK_KEY = 4_600_003
_ATTEMPTS = 5
_PAUSE_S = 0.5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = "sample_%Y%m%d"


def window(now_at: int, *, keep_us: int | None = None) -> Window:
    """The rounds that should have a partition at `now_at`: whole days, UTC. When samples are kept for `keep_us` only,
    the window ends a day before they go, so that none is stored to be taken away at once.
    """
    today_at = day_of(now_at)
    days_back = DAYS_BACK if keep_us is None else min(DAYS_BACK, max(0, keep_us // DAY_US - 1))
    return Window(from_at=today_at - days_back * DAY_US, until_at=today_at + (DAYS_AHEAD + 1) * DAY_US)


async def ensure(database: Database, *, now_at: int, keep_us: int | None = None) -> Window:
    """Make the partitions that are missing, of days that were not retired, and return the window they cover.

    Raises `DatabaseUnavailable`, and `StartError` when the database does not let us make any.
    """
    wanted = window(now_at, keep_us=keep_us)

    async def make(connection: Connection) -> None:
        await _check_rights(connection)
        await execute(connection, query("take_lock"), key=_LOCK_KEY)
        there = set(await days(connection))
        for day_at in range(max(wanted.from_at, await retired_until(connection)), wanted.until_at, DAY_US):
            if day_at not in there:
                await _make(connection, day_at)

    await _patiently(database, "wait_briefly_for_locks", make)
    async with database.connection() as connection:
        return replace(wanted, from_at=max(wanted.from_at, await retired_until(connection)))


async def covered(database: Database, *, now_at: int, keep_us: int | None = None) -> Window:
    """As much of the window as there are partitions for without a gap, today's among them; else an empty one."""
    wanted, today_at = window(now_at, keep_us=keep_us), day_of(now_at)
    async with database.connection() as connection:
        retired_at = await retired_until(connection)
        # A collector of an earlier version may have made a retired day again.
        there = {day_at for day_at in await days(connection) if day_at >= retired_at}
    from_at = _reach(range(today_at, wanted.from_at - 1, -DAY_US), there)
    last_at = _reach(range(today_at, wanted.until_at, DAY_US), there)
    if from_at is None or last_at is None:
        return Window(from_at=today_at, until_at=today_at)
    return Window(from_at=from_at, until_at=last_at + DAY_US)


async def retire(database: Database, *, before_at: int) -> list[int]:
    """Drop the partitions of the days that end at `before_at` or earlier, oldest first; which days they were.

    Raises `DatabaseUnavailable` when one cannot be had to drop, for instance because somebody reads for long.
    """
    async with database.connection() as connection:
        over = [day_at for day_at in await days(connection) if day_at + DAY_US <= before_at]
    for day_at in over:
        await _patiently(database, "hardly_wait_for_locks", partial(_drop, day_at=day_at))
    return over


async def days(connection: Connection) -> list[int]:
    """The days that have a partition, by their first instants, oldest first."""
    names = [row.name for row in await fetch(connection, query("partitions"), NameRow)]
    return sorted(day_at for name in names if (day_at := day_named(name)) is not None)


async def retired_until(connection: Connection) -> int:
    """Until when days were retired, in microseconds since the Unix epoch; 0 when none was."""
    return (await job_state.progress(connection)).get(RETIRED, 0)


def day_named(partition: str) -> int | None:
    """The first instant of the day that a partition is of by its name; `None` of other tables."""
    try:
        return (datetime.strptime(partition, _NAME).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    except ValueError:
        return None


async def _patiently(database: Database, patience: str, work: Callable[[Connection], Awaitable[None]]) -> None:
    """Do something in one transaction that waits for locks no longer than the statement `patience` says; again when
    somebody held one: a moment later they may not.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async with database.transaction() as connection:
                await execute(connection, query(patience))
                await work(connection)
        except DatabaseUnavailable:
            if attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(_PAUSE_S * attempt)
        else:
            return


async def _check_rights(connection: Connection) -> None:
    (allowed,) = await fetch(connection, query("may_make_partitions"), YesRow)
    if not allowed.yes:
        raise StartError(
            "the database user may not make partitions of `sample`, so that tomorrow's samples would have no place",
            hint="let it own the table and create in its schema: "
            "ALTER TABLE sample OWNER TO …; GRANT CREATE ON SCHEMA public TO …",
        )


async def _make(connection: Connection, day_at: int) -> None:
    day, partition = _EPOCH + timedelta(microseconds=day_at), _identifier(day_at)
    span = {
        "from_day": sql.Literal(f"{day:%F} 00:00+00"),
        "until_day": sql.Literal(f"{day + timedelta(1):%F} 00:00+00"),
    }
    await execute(connection, query("create_partition").format(partition=partition))
    await execute(connection, query("attach_partition").format(partition=partition, **span))


async def _drop(connection: Connection, *, day_at: int) -> None:
    partition = _identifier(day_at)
    await execute(connection, query("take_lock"), key=_LOCK_KEY)
    await execute(connection, query("detach_partition").format(partition=partition))
    await execute(connection, query("drop_partition").format(partition=partition))
    await job_state.advance(connection, RETIRED, max(day_at + DAY_US, await retired_until(connection)))


def _identifier(day_at: int) -> sql.Identifier:
    return sql.Identifier(f"{_EPOCH + timedelta(microseconds=day_at):{_NAME}}")


def _reach(wanted: Iterable[int], there: set[int]) -> int | None:
    """The last of the days in a row that are there; `None` when not even the first is."""
    last_at = None
    for day_at in wanted:
        if day_at not in there:
            break
        last_at = day_at
    return last_at
