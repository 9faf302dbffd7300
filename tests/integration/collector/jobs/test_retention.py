"""Retention of samples, summaries and the ledger, against a real PostgreSQL."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fixtures.collector import StartCollector, run_command
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.postgres import opened, rows
from isochrone_collector.errors import DatabaseUnavailable, PartitionMissing, StartError
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.jobs.retention import LEDGER_SLACK_US, Retention
from isochrone_collector.settings import RetentionPeriods
from isochrone_collector.store import job_state, partitions, rollups
from isochrone_collector.store.partitions import DAYS_AHEAD, DAYS_BACK
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.postgres.values import Instant
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, Vantage

US = Vantage(name="us-1", region="us")
KEEP_US = 3 * DAY_US
KEEP = RetentionPeriods(samples_us=KEEP_US, hours_us=5 * DAY_US, days_us=8 * DAY_US)


def count(database_url: str, table: str) -> int:
    with psycopg.connect(database_url) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert found is not None
    return int(found[0])


@dataclass(frozen=True, slots=True)
class Delivering:
    """The retention of a fleet that delivers samples all the time."""

    local: InProcessCollector
    retention: Retention

    async def run(self) -> None:
        async with self.local.database.connection() as connection:
            await connection.execute("UPDATE vantage SET newest_sample_at = %s", (Instant(self.local.clock.at),))
        await self.retention.run()


def retention_of(local: InProcessCollector, periods: RetentionPeriods = KEEP) -> Delivering:
    return Delivering(local, Retention(database=local.database, clock=local.clock, periods=periods))


async def pass_days(local: InProcessCollector, at: int, periods: RetentionPeriods = KEEP) -> None:
    await local.turn_to(at, keep_us=periods.samples_us)
    await local.rollup.run()
    await retention_of(local, periods).run()


async def days_of(local: InProcessCollector) -> list[int]:
    async with local.database.connection() as connection:
        return await partitions.days(connection)


async def test_each_resolution_has_its_retention_period(local: InProcessCollector, database_url: str) -> None:
    """Samples are deleted first, then hours, then days; the remaining data gives the same answers as before."""
    await local.begin(DAY_AT + HOUR_US)
    await local.push(US, [local.sample(DAY_AT), local.sample(DAY_AT + MINUTE_US)])
    day = Window(from_at=DAY_AT, until_at=DAY_AT + DAY_US)
    for days in range(1, 11):
        await pass_days(local, DAY_AT + days * DAY_US + HOUR_US)
        samples, hours = count(database_url, "sample"), count(database_url, "outcome_summary")
        assert samples == (2 if days < 4 else 0), days
        assert hours == (2 if days < 5 else 1 if days < 9 else 0), days
        assert await local.count(day) == (2 if days < 9 else 0), days


async def test_nothing_is_deleted_unsummarised(local: InProcessCollector, database_url: str) -> None:
    """Samples are kept until their day is summarised, however old they are."""
    await local.begin(DAY_AT)
    await local.push(US, [local.sample(DAY_AT)])
    await local.turn_to(DAY_AT + 20 * DAY_US)
    await retention_of(local, RetentionPeriods(samples_us=KEEP_US)).run()
    assert count(database_url, "sample") == 1
    await local.rollup.run()
    await retention_of(local, RetentionPeriods(samples_us=KEEP_US)).run()
    assert count(database_url, "sample") == 0
    assert await local.count(Window(from_at=DAY_AT, until_at=DAY_AT + DAY_US)) == 1


async def test_a_clock_that_is_ahead_deletes_nothing(local: InProcessCollector, database_url: str) -> None:
    """Periods count from the newest samples: 36 days ahead, everything stays, and 36 days later it is deleted."""
    await local.begin(DAY_AT)
    await local.push(US, [local.sample(DAY_AT)])
    await local.turn_to(DAY_AT + 36 * DAY_US)
    await local.rollup.run()
    await Retention(database=local.database, clock=local.clock, periods=KEEP).run()
    kept = {table: count(database_url, table) for table in ("sample", "ingest_batch", "outcome_summary")}
    assert kept == {"sample": 1, "ingest_batch": 1, "outcome_summary": 2}
    await retention_of(local).run()
    assert (count(database_url, "sample"), count(database_url, "ingest_batch")) == (0, 0)


async def test_no_hour_is_deleted_before_its_day(local: InProcessCollector, database_url: str) -> None:
    """Hours are kept until their day is summarised, also if no day has been summarised yet."""
    await local.begin(DAY_AT + 5 * HOUR_US)
    await local.push(US, [local.sample(DAY_AT), local.sample(DAY_AT + 5 * HOUR_US)])
    for hour_at in (DAY_AT, DAY_AT + 5 * HOUR_US):
        await rollups.summarise_hour(local.database, hour_at)
    await local.turn_to(DAY_AT + 20 * DAY_US)
    await retention_of(local).run()
    assert (count(database_url, "outcome_summary"), count(database_url, "sample")) == (2, 2)
    await rollups.summarise_day(local.database, DAY_AT)
    async with local.database.connection() as connection:
        for resolution in Resolution:
            await job_state.advance(connection, resolution.job, DAY_AT + DAY_US)
    await retention_of(local, replace(KEEP, days_us=None)).run()
    assert (count(database_url, "outcome_summary"), count(database_url, "sample")) == (1, 0)
    assert await local.count(Window(from_at=DAY_AT, until_at=DAY_AT + DAY_US)) == 2


async def test_a_retired_day_is_not_made_again(local: InProcessCollector, database_url: str) -> None:
    """If samples are then kept for longer, retired days stay retired, and their summaries unchanged."""
    await local.begin(DAY_AT + HOUR_US)
    await local.push(US, [local.sample(DAY_AT + k * MINUTE_US) for k in range(20)])
    later_at = DAY_AT + 10 * DAY_US + 2 * HOUR_US
    await pass_days(local, later_at, RetentionPeriods(samples_us=7 * DAY_US))
    assert (DAY_AT in await days_of(local), count(database_url, "sample")) == (False, 0)
    await pass_days(local, later_at + HOUR_US, RetentionPeriods())
    window = local.ingest.window
    assert window == await partitions.covered(local.database, now_at=later_at)
    assert window.from_at == min(await days_of(local)) == DAY_AT + 3 * DAY_US
    assert (await local.push(US, [local.sample(DAY_AT + MINUTE_US)])).stored == 1
    assert rows(database_url, "SELECT reason FROM sample_late") == [("too_old",)]
    await pass_days(local, later_at + 2 * HOUR_US, RetentionPeriods())
    hour, day = (Window(from_at=DAY_AT, until_at=DAY_AT + length_us) for length_us in (HOUR_US, DAY_US))
    assert (await local.count(hour), await local.count(day)) == (20, 20)


async def test_a_retired_day_made_again_is_not_summarised(local: InProcessCollector, database_url: str) -> None:
    """If a collector creates a retired day's partition again and stores samples there, the summaries stay."""
    await local.begin(DAY_AT + HOUR_US)
    await local.push(US, [local.sample(DAY_AT + k * MINUTE_US) for k in range(20)])
    later_at = DAY_AT + 10 * DAY_US
    await pass_days(local, later_at, RetentionPeriods(samples_us=7 * DAY_US))
    with psycopg.connect(database_url, autocommit=True) as connection:
        retired = connection.execute("DELETE FROM chore WHERE name = 'sample.retired' RETURNING *").fetchall()
        await local.turn_to(later_at)
        await local.push(US, [local.sample(DAY_AT + MINUTE_US)])
        connection.cursor().executemany("INSERT INTO chore VALUES (%s, %s, %s)", retired)
    assert (DAY_AT in await days_of(local), len(retired)) == (True, 1)
    assert (await partitions.covered(local.database, now_at=later_at)).from_at == DAY_AT + 3 * DAY_US
    local.clock.at = later_at + HOUR_US
    await local.rollup.run()
    assert await local.count(Window(from_at=DAY_AT, until_at=DAY_AT + HOUR_US)) == 20


async def test_unlimited_retention_deletes_nothing(local: InProcessCollector, database_url: str) -> None:
    """Without retention periods nothing is deleted, not even from the ledger or the late samples."""
    await local.begin(DAY_AT)
    await local.push(US, [local.sample(DAY_AT), local.sample(DAY_AT - 90 * DAY_US)])
    before = [count(database_url, table) for table in ("sample", "sample_late", "ingest_batch")]
    forever = RetentionPeriods(samples_us=None, hours_us=None, days_us=None)
    await pass_days(local, DAY_AT + 400 * DAY_US, forever)
    assert [count(database_url, table) for table in ("sample", "sample_late", "ingest_batch")] == before == [1, 1, 1]
    assert count(database_url, "outcome_summary") == 2


async def test_a_batch_is_known_while_its_samples_may_come_twice(local: InProcessCollector, database_url: str) -> None:
    """The ledger keeps a batch while it could be stored again; after that its samples are set aside as too old."""
    await local.begin(DAY_AT)
    newest_at = DAY_AT + (DAYS_AHEAD + 1) * DAY_US - 1
    batch = [local.sample(DAY_AT), local.sample(newest_at)]
    first = await local.push(US, batch, seq=5)
    assert (first.stored, first.duplicate) == (2, 0)
    late_from_at = 0
    for days in range(1, 12):
        await pass_days(local, DAY_AT + days * DAY_US)
        known = count(database_url, "ingest_batch") == 1
        again = await local.push(US, batch, seq=5)
        assert (again.stored, again.duplicate) == ((0, 2) if known else (2, 0))
        if not known:
            late_from_at = local.clock.at
            break
        assert known
    assert late_from_at == DAY_AT + KEEP_US + LEDGER_SLACK_US + DAY_US
    assert (count(database_url, "sample"), count(database_url, "sample_late")) == (0, 2)


async def test_late_samples_go_when_they_were_there_long_enough(local: InProcessCollector, database_url: str) -> None:
    """Late samples are kept as long as other samples, counted from their receipt."""
    await local.begin(DAY_AT)
    await local.push(US, [local.sample(DAY_AT - 90 * DAY_US)])
    await pass_days(local, DAY_AT + 3 * DAY_US)
    assert count(database_url, "sample_late") == 1
    await pass_days(local, DAY_AT + 3 * DAY_US + 1)
    assert count(database_url, "sample_late") == 0


@pytest.mark.parametrize("keep_days", [2, 3, 10, 31, 32, 33, 60, None])
def test_no_sample_is_taken_to_go_at_once(keep_days: int | None) -> None:
    """The oldest accepted round belongs to a day that is not retired within a day, for any retention period."""
    keep_us = None if keep_days is None else keep_days * DAY_US
    window = partitions.window(DAY_AT + 5 * HOUR_US, keep_us=keep_us)
    assert window.from_at <= DAY_AT
    assert window.from_at >= DAY_AT - DAYS_BACK * DAY_US
    if keep_us is not None:
        tomorrow_goes_until_at = DAY_AT + DAY_US - keep_us
        assert window.from_at >= tomorrow_goes_until_at


async def test_retiring_yields(local: InProcessCollector, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is read for long stays, pushes wait for one attempt at most, and it goes afterwards."""
    attempts, drop = 0, partitions._drop

    async def counted(connection: Connection, *, day_at: int) -> None:
        nonlocal attempts
        attempts += 1
        await drop(connection, day_at=day_at)

    monkeypatch.setattr(partitions, "_PAUSE_S", 0.2)
    monkeypatch.setattr(partitions, "_drop", counted)
    await local.begin(DAY_AT)
    await local.push(US, [local.sample(DAY_AT)])
    await local.turn_to(DAY_AT + 10 * DAY_US)
    await local.rollup.run()
    pushed = 0
    with psycopg.connect(database_url) as reader:
        reader.execute("SELECT count(*) FROM sample")
        retiring = asyncio.create_task(retention_of(local).run())
        while not retiring.done():
            assert (await local.push(US, [local.sample(local.clock.at)])).stored == 1
            pushed += 1
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            await retiring
    assert attempts == partitions._ATTEMPTS
    assert pushed >= attempts
    assert DAY_AT in await days_of(local)
    await retention_of(local).run()
    assert DAY_AT not in await days_of(local)


async def test_a_partition_that_went_is_noticed(local: InProcessCollector, database_url: str) -> None:
    """Ingest that expects a dropped partition asks for a retry, and then sets the samples aside."""
    await local.begin(DAY_AT)
    await partitions.retire(local.database, before_at=DAY_AT)
    old = local.sample(DAY_AT - DAY_US)
    with pytest.raises(PartitionMissing, match="sample"):
        await local.push(US, [old, local.sample(DAY_AT)], seq=3)
    receipt = await local.push(US, [old, local.sample(DAY_AT)], seq=3)
    assert receipt.stored == 2
    assert (count(database_url, "sample"), count(database_url, "sample_late")) == (1, 1)


async def test_without_any_partition_samples_are_set_aside(local: InProcessCollector, database_url: str) -> None:
    """Without partitions samples are stored in sample_late with the reason, and in sample again once there are some."""
    await local.begin(DAY_AT)
    local.clock.at = DAY_AT + 10 * DAY_US
    await local.ingest.refresh_window()
    assert (await local.push(US, [local.sample(local.clock.at)])).stored == 1
    assert rows(database_url, "SELECT reason FROM sample_late") == [("no_partition",)]
    await local.turn_to(local.clock.at)
    await local.push(US, [local.sample(local.clock.at)])
    assert count(database_url, "sample") == 1


async def test_the_window_ends_at_a_gap(local: InProcessCollector) -> None:
    """Only rounds with a partition are accepted, up to the first gap from today on."""
    await local.begin(DAY_AT)
    assert await partitions.covered(local.database, now_at=DAY_AT) == partitions.window(DAY_AT)
    await partitions.retire(local.database, before_at=DAY_AT - 4 * DAY_US)
    found = await partitions.covered(local.database, now_at=DAY_AT)
    assert found == Window(from_at=DAY_AT - 4 * DAY_US, until_at=DAY_AT + (DAYS_AHEAD + 1) * DAY_US)


@pytest.fixture
def restricted_url(database_url: str) -> Iterator[str]:
    """The same database for a user that may read and write everything but not create tables."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = f"restricted_{connection.info.dbname}"
        connection.execute(f'CREATE ROLE "{name}" LOGIN')
        connection.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{name}"')
        yield make_conninfo(database_url, user=name)
        connection.execute(f'DROP OWNED BY "{name}"; DROP ROLE "{name}"')


async def test_a_missing_privilege_is_reported(local: InProcessCollector, restricted_url: str) -> None:
    """A missing privilege is reported at once, even while today still has its partition."""
    await local.begin(DAY_AT)
    async with opened(restricted_url) as database:
        with pytest.raises(StartError, match="may not create partitions") as refused:
            await partitions.ensure(database, now_at=DAY_AT)
        assert "ALTER TABLE sample OWNER TO" in refused.value.hint
        assert await partitions.covered(database, now_at=DAY_AT) == partitions.window(DAY_AT)


def test_both_name_the_missing_right(database_url: str, restricted_url: str, start_collector: StartCollector) -> None:
    """`serve` does not start if it may not create partitions, and the doctor reports the reason."""
    start_collector(database_url=database_url).stop()
    served = run_command("serve", "--listen", "127.0.0.1:0", "--http-listen", "off", "--database-url", restricted_url)
    assert served.returncode == 1
    assert "may not create partitions" in served.stderr
    assert "GRANT CREATE ON SCHEMA" in served.stderr
    found = run_command("doctor", "--database-url", restricted_url, "--output", "json")
    (finding,) = (line for line in json.loads(found.stdout)["findings"] if line["check"] == "partitions")
    assert (finding["verdict"], finding["sentence"]) == ("fail", "this database user may not create any")


async def test_a_right_that_is_lost_does_not_stop_ingest(local: InProcessCollector, restricted_url: str) -> None:
    """Samples go into partitions while there are some, then into sample_late; each run of the job fails."""
    await local.begin(DAY_AT)
    database = Database(restricted_url)
    await database.open()
    window = await partitions.covered(database, now_at=DAY_AT)
    ingest = Ingest(database=database, plans=local.plans, window=window, clock=local.clock)
    own, local.ingest = local.ingest, ingest
    try:
        for days in range(6):
            local.clock.at = DAY_AT + days * DAY_US
            with pytest.raises(StartError):
                await partitions.ensure(database, now_at=local.clock.at)
            await ingest.refresh_window()
            receipt = await local.push(US, [local.sample(local.clock.at)])
            assert receipt.stored == 1
    finally:
        local.ingest = own
        await database.close()
    async with local.database.connection() as connection:
        for table, expected in (("sample", 4), ("sample_late", 2)):
            cursor = await connection.execute(f"SELECT count(*) FROM {table}")
            assert await cursor.fetchone() == (expected,)
