"""The store against a real PostgreSQL: columns, instants, partitions."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import fields

import psycopg
import pytest

from fixtures.postgres import opened
from isochrone_collector.errors import DatabaseUnavailable, DatabaseUnreachable
from isochrone_collector.store import partitions
from isochrone_collector.store.postgres import pool
from isochrone_collector.store.postgres.pool import Database, execute, query
from isochrone_collector.store.postgres.values import Instant
from isochrone_collector.store.samples import COLUMNS
from isochrone_wire.model import DAY_US, RateLimit, Sample

NOW_AT = 1_795_248_000_123_456
TYPE_NAMES = {
    "int8": "bigint",
    "int4": "integer",
    "float8": "double precision",
    "timestamptz": "timestamp with time zone",
}


def test_the_table_holds_every_field_of_the_wire(database_url: str) -> None:
    """`sample` has a column of the same name for each field of a Sample, of the type that COPY sends."""
    with psycopg.connect(database_url) as connection:
        listing = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s"
        for table, more in (("sample", {}), ("sample_late", {"reason": "text"})):
            found: dict[str, str] = dict(connection.execute(listing, [table]).fetchall())
            assert found == {name: TYPE_NAMES.get(kind, kind) for name, kind in COLUMNS.items()} | more
    measured = {field.name for field in fields(Sample)} - {"ratelimit"}
    assert measured | {f"ratelimit_{field.name}" for field in fields(RateLimit)} <= set(COLUMNS)


@pytest.mark.parametrize("at", [0, 1, NOW_AT, -1, 253_402_300_799_999_999])
async def test_instants_keep_every_microsecond(database: Database, at: int) -> None:
    """An instant is written and read as the same integer, and PostgreSQL shows the same instant."""
    async with database.connection() as connection:
        cursor = connection.cursor(binary=True)
        await cursor.execute("SELECT %(at)s::timestamptz, array[%(at)s::timestamptz]", {"at": Instant(at)})
        assert await cursor.fetchone() == (at, [at])
        await cursor.execute("SELECT (extract(epoch FROM %s::timestamptz) * 1000000)::bigint", [Instant(at)])
        assert await cursor.fetchone() == (at,)


async def test_partitions_are_made_ahead(database: Database, database_url: str) -> None:
    """A partition per day from a month back to three days ahead; a day later one more, and none twice."""
    window = await partitions.ensure(database, now_at=NOW_AT)
    assert window == partitions.window(NOW_AT)
    assert (window.until_at - window.from_at) // DAY_US == 35
    assert window.from_at <= NOW_AT - 31 * DAY_US
    assert window.until_at > NOW_AT + 3 * DAY_US
    assert await partitions.ensure(database, now_at=NOW_AT) == window
    moved = await partitions.ensure(database, now_at=NOW_AT + DAY_US)
    assert moved.until_at == window.until_at + DAY_US
    with psycopg.connect(database_url) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'sample'::regclass")
    assert count == 36


async def test_every_instant_of_the_window_has_its_partition(database: Database, database_url: str) -> None:
    """The first and the last microsecond of the window can be stored, and those outside cannot."""
    window = await partitions.ensure(database, now_at=NOW_AT)
    columns = "target_id, vantage_id, epoch, seq, idx, region, received_at, outcome, dispatched_at, late_us, chunks"
    insert = (
        f"INSERT INTO sample ({columns}, output_chars, quality, traits, round_at) VALUES"
        " (1, 1, 1, 1, 1, 'us', now(), 'ok', now(), 0, 0, 0, 0, 3, timestamptz 'epoch' + %s * interval '1 microsecond')"
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        for at in (window.from_at, window.until_at - 1):
            connection.execute(insert, [at])
        for at in (window.from_at - 1, window.until_at):
            with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
                connection.execute(insert, [at])


async def test_maintenance_ends(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock on the table prevents new partitions, but the collector continues."""
    monkeypatch.setattr(partitions, "_ATTEMPTS", 1)
    with psycopg.connect(database_url) as connection:
        connection.execute("LOCK TABLE sample IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            await partitions.ensure(database, now_at=NOW_AT)
    await partitions.ensure(database, now_at=NOW_AT)


async def test_commits_are_durable_whatever_the_default(database_url: str) -> None:
    """The collector's connections turn synchronous_commit on if the server's default is off."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    async with opened(database_url) as database, database.connection() as connection:
        cursor = await connection.execute("SHOW synchronous_commit")
        assert await cursor.fetchone() == ("on",)


@pytest.mark.parametrize(("timeout_us", "workers"), [(None, "0"), (1_000_000, "2")])
async def test_a_job_uses_one_core_a_query_more(database_url: str, timeout_us: int | None, workers: str) -> None:
    """Statements over the connections of pushes and jobs have no parallel workers; queries have the server's."""
    async with opened(database_url, statement_timeout_us=timeout_us) as database, database.connection() as connection:
        cursor = await connection.execute("SHOW max_parallel_workers_per_gather")
        assert await cursor.fetchone() == (workers,)


async def test_a_demoted_server_is_left(database: Database) -> None:
    """A read-only server is a transient error, and its connection is not reused."""
    async with database.connection() as connection:
        await connection.execute("SET default_transaction_read_only = on")
        pid = connection.info.backend_pid

    async def write() -> None:
        async with database.connection() as connection:
            assert connection.info.backend_pid == pid
            await execute(connection, query("register_region"), name="us")

    with pytest.raises(DatabaseUnavailable, match="read-only"):
        await write()
    async with database.connection() as connection:
        assert connection.info.backend_pid != pid


async def test_a_database_that_is_not_there(database_url: str) -> None:
    """Opening the pool without a server fails in seconds, with the collector's error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isochrone_collector.store.postgres.pool._WAIT_FOR_CONNECTION_S", 0.5)
        with pytest.raises(DatabaseUnreachable):
            await Database("postgresql://127.0.0.1:1/x").open()


async def test_a_cancellation_is_not_lost_in_the_pool(database: Database) -> None:
    """A task that is cancelled while it gets a connection ends."""
    entered: list[int] = []

    async def wait_for_one(ticks: int) -> None:
        async with database.connection():
            entered.append(ticks)
            await asyncio.sleep(60)

    for ticks in range(12):
        async with AsyncExitStack() as others:
            for _ in range(pool._MAX_CONNECTIONS - 1):
                await others.enter_async_context(database.connection())
            async with database.connection():
                waiting = asyncio.create_task(wait_for_one(ticks))
                await asyncio.sleep(0.01)
            for _ in range(ticks):
                await asyncio.sleep(0)
            had_entered = ticks in entered
            waiting.cancel()
            await asyncio.wait({waiting}, timeout=5)
            assert waiting.cancelled(), (ticks, had_entered)
