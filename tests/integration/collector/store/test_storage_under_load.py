"""PostgreSQL is killed while batches are pushed and jobs run: every batch is stored once, and work continues."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_collector.errors import DatabaseUnavailable
from isochrone_collector.jobs.registry import Job, Jobs
from isochrone_collector.jobs.rollup import GRACE_US, LATE_EVERY_US
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, SECOND_US, Vantage

US = Vantage(name="us-1", region="us")
_SOON_S = 60.0
_BATCHES, _SAMPLES, _PUSHERS = 40, 30, 4


@pytest.fixture
async def postgres(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A server for this test, with the newest schema."""
    server = EmbeddedPostgres(tmp_path)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(schema.migrate, server.conninfo)
    yield server
    await asyncio.to_thread(server.stop)


async def _push(local: InProcessCollector, seq: int) -> None:
    samples = [local.sample(DAY_AT + (seq * _SAMPLES + place) * SECOND_US) for place in range(_SAMPLES)]
    while True:
        with suppress(DatabaseUnavailable):
            await local.push(US, samples, seq=seq)
            return
        await asyncio.sleep(0.05)


async def test_postgres_restarted_under_load(postgres: EmbeddedPostgres) -> None:
    """No acknowledged batch is lost or stored twice, and a leader is elected on the restarted server."""
    database = Database(postgres.conninfo)
    await database.open()
    local = InProcessCollector(database)
    await local.begin(DAY_AT + DAY_US + GRACE_US)
    jobs = Jobs(database=database, clock=local.clock)
    jobs.add(Job(name="rollup", every_us=SECOND_US // 10, work=local.rollup.run))
    leading = asyncio.create_task(jobs.run())
    waiting = iter(range(1, _BATCHES + 1))

    async def pusher() -> None:
        for seq in waiting:
            await _push(local, seq)

    async with asyncio.timeout(_SOON_S), asyncio.TaskGroup() as pushers:
        for _ in range(_PUSHERS):
            pushers.create_task(pusher())
        await asyncio.sleep(0.3)
        assert postgres.pid is not None
        os.kill(postgres.pid, signal.SIGKILL)
        while not await asyncio.to_thread(postgres.restart_if_gone):
            await asyncio.sleep(0.02)

    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        told = "SELECT count(*), count(DISTINCT (seq, idx)), count(DISTINCT seq) FROM sample"
        assert connection.execute(told).fetchone() == (_BATCHES * _SAMPLES, _BATCHES * _SAMPLES, _BATCHES)
        assert connection.execute("SELECT ledgered FROM vantage").fetchall() == [(_BATCHES * _SAMPLES,)]
    # What came after its hour was summarised is late, and found when it is looked for.
    local.clock.at += LATE_EVERY_US
    async with asyncio.timeout(_SOON_S):
        day = Window(from_at=DAY_AT, until_at=DAY_AT + DAY_US)
        while await local.count(day) != _BATCHES * _SAMPLES:
            await asyncio.sleep(0.1)
    assert jobs.is_leader
    leading.cancel()
    with suppress(asyncio.CancelledError):
        await leading
    await database.close()
