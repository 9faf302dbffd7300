"""A partition of `sample` per day, UTC, made ahead of time, so that ingest never waits for one."""

import asyncio
from datetime import UTC, datetime, timedelta

from psycopg import sql

from isochrone_collector.errors import DatabaseUnavailable
from isochrone_collector.store.pool import Connection, Database, execute, fetch
from isochrone_collector.store.queries import query
from isochrone_collector.store.rows import NameRow
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, day_of

DAYS_BACK = 31
DAYS_AHEAD = 3

_LOCK_KEY = 4_600_003
_ATTEMPTS = 5
_PAUSE_S = 0.5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def window(now_at: int) -> Window:
    """The rounds that have a partition once `ensure` was called at `now_at`: whole days, UTC."""
    today_at = day_of(now_at)
    return Window(from_at=today_at - DAYS_BACK * DAY_US, until_at=today_at + (DAYS_AHEAD + 1) * DAY_US)


async def ensure(database: Database, *, now_at: int) -> Window:
    """Make the partitions that are missing and return the window they cover. Raises `DatabaseUnavailable`."""
    covered = window(now_at)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async with database.transaction() as connection:
                await _make_missing(connection, covered)
        except DatabaseUnavailable:
            # Most likely a lock that somebody holds for longer than we are willing to make ingest wait.
            if attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(_PAUSE_S * attempt)
        else:
            break
    return covered


async def _make_missing(connection: Connection, covered: Window) -> None:
    await execute(connection, query("wait_briefly_for_locks"))
    await execute(connection, query("take_lock"), key=_LOCK_KEY)
    there = {row.name for row in await fetch(connection, query("partitions"), NameRow)}
    for day_at in range(covered.from_at, covered.until_at, DAY_US):
        day = _EPOCH + timedelta(microseconds=day_at)
        name = f"sample_{day:%Y%m%d}"
        if name not in there:
            partition = sql.Identifier(name)
            span = {
                "from_day": sql.Literal(f"{day:%F} 00:00+00"),
                "until_day": sql.Literal(f"{day + timedelta(1):%F} 00:00+00"),
            }
            await execute(connection, query("create_partition").format(partition=partition))
            await execute(connection, query("attach_partition").format(partition=partition, **span))
