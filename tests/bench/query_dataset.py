"""A database in the state of a collector after a month: plan, vantages, samples with their ledger, and summaries.

Days are summarised from samples directly, by the code that otherwise summarises hours from samples and days from hours.
Merging adds counts, so the result is the same.
"""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from bench.result import log
from bench.synthetic_month import EVERY_US, PUSHED_AFTER_US, Month, RoundRows, Site
from isochrone_collector.jobs import rollup
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import job_state, partitions, rollups, vantages
from isochrone_collector.store.batches import COPY_HEADER, COPY_TRAILER
from isochrone_collector.store.postgres import schema, values
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.postgres.values import Instant
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.samples import COLUMNS
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, SECOND_US, Target, Vantage, day_of

BASELINE = "region-00"
# The maximum of one COPY of the collector.
ROWS_AT_ONCE = 9_000
LOG_EVERY_S = 10.0
WORKERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    regions: int
    targets: int
    days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    size: Size
    room: int


FULL = Scale(size=Size(regions=30, targets=100, days=30), room=9 * 2**30)
QUICK = Scale(size=Size(regions=30, targets=100, days=3), room=2 * 2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The number of samples, the summarised days (UTC), the end of the data, and the targets and regions."""

    samples: int
    days: Window
    until_at: int
    target_ids: tuple[int, ...]
    targets: tuple[str, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledDatabase:
    """A running PostgreSQL with a dataset, and a folder for what else is written."""

    conninfo: str
    dataset: Dataset
    folder: Path


@contextmanager
def filled_database(scale: Scale) -> Iterator[FilledDatabase]:
    """A database of this scale for the block. Raises `SystemExit` if there is no room for it."""
    with tempfile.TemporaryDirectory(prefix="isochrone-query-") as name:
        folder, free = Path(name), shutil.disk_usage(name).free
        if free < scale.room:
            raise SystemExit(f"{folder} has {free / 2**30:.1f} GiB free; this takes {scale.room / 2**30:.0f}")
        with EmbeddedPostgres(folder / "postgres") as postgres:
            dataset = asyncio.run(build_dataset(postgres.conninfo, scale.size, now_at=time.time_ns() // 1000))
            yield FilledDatabase(conninfo=postgres.conninfo, dataset=dataset, folder=folder)


async def build_dataset(conninfo: str, size: Size, *, now_at: int) -> Dataset:
    schema.migrate(conninfo)
    today_at = day_of(now_at)
    days = Window(from_at=today_at - size.days * DAY_US, until_at=today_at)
    database = Database(conninfo)
    await database.open()
    await partitions.ensure(database, now_at=now_at)
    targets = await _plan(database, size, begun_at=days.from_at)
    target_ids = tuple(target.id for target in targets)
    sites = await _join(database, size, begun_at=days.from_at)
    month = Month(sites, target_ids, from_at=days.from_at, until_at=now_at)
    samples = await asyncio.to_thread(_fill, conninfo, month, sites, len(target_ids))
    await _summarise(database, days, target_ids, now_at=now_at)
    await database.close()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        # The state after autovacuum in a database that was filled within a month.
        log("VACUUM, ANALYZE and CHECKPOINT")
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
    return Dataset(
        samples=samples,
        days=days,
        until_at=now_at,
        target_ids=target_ids,
        targets=tuple(target.name for target in targets),
        regions=tuple(site.region for site in sites),
    )


async def _plan(database: Database, size: Size, *, begun_at: int) -> tuple[Target, ...]:
    targets = [
        {"provider": f"p{n % 7}", "model": f"m{n:03}", "base_url": "http://h", "every": f"{EVERY_US // SECOND_US}s"}
        for n in range(size.targets)
    ]
    plans = Plans(database=database, clock=lambda: begun_at)
    document = json.dumps({"baseline": BASELINE, "targets": targets})
    change = await plans.apply(document, dry_run=False, applied_by="bench")
    if plans.current is None:
        raise SystemExit(f"the plan was refused: {change.problems}")
    return plans.current.targets


async def _join(database: Database, size: Size, *, begun_at: int) -> list[Site]:
    names = [Vantage(name=f"v-{n:02}", region=f"region-{n:02}") for n in range(size.regions)]
    async with database.transaction() as connection:
        rows = [await vantages.register(connection, vantage, seen_at=begun_at) for vantage in names]
    return [Site(vantage_id=row.id, region=row.region) for row in rows]


def _fill(conninfo: str, month: Month, sites: Sequence[Site], targets: int) -> int:
    """Insert all rounds with their ledger entries; return the number of samples."""
    begun, logged_at, samples = time.monotonic(), time.monotonic(), 0
    at_once = max(1, ROWS_AT_ONCE // (len(sites) * targets))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        values.register(connection)
        for rounds in _batched(month.rounds_of_rows(), at_once):
            with connection.transaction():
                _copy(connection, rounds)
                _enter(connection, rounds, sites, targets)
            samples += sum(round_rows.rows for round_rows in rounds)
            if time.monotonic() - logged_at > LOG_EVERY_S:
                logged_at = time.monotonic()
                log(f"{samples:11_} samples, {samples / (logged_at - begun):7.0f}/s")
    log(f"{samples:11_} samples in {time.monotonic() - begun:.0f} s")
    return samples


def _batched(rounds: Iterator[RoundRows], size: int) -> Iterator[list[RoundRows]]:
    while batch := list(islice(rounds, size)):
        yield batch


def _copy(connection: psycopg.Connection[Any], rounds: Sequence[RoundRows]) -> None:
    statement = f"COPY sample ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(COPY_HEADER + b"".join(round_rows.content for round_rows in rounds) + COPY_TRAILER)


def _enter(
    connection: psycopg.Connection[Any], rounds: Sequence[RoundRows], sites: Sequence[Site], targets: int
) -> None:
    statement = (
        "COPY ingest_batch (vantage_id, epoch, seq, samples, stored, late, received_at, oldest_round_at,"
        " newest_round_at, content_hash, transaction_id) FROM STDIN (FORMAT BINARY)"
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(["int8", "int8", "int8", "int4", "int4", "int4", *(["timestamptz"] * 3), "bytea", "int8"])
        for round_rows in rounds:
            received_at = Instant(round_rows.until_at + PUSHED_AFTER_US)
            span = (received_at, Instant(round_rows.from_at), Instant(round_rows.until_at))
            for site in sites:
                copy.write_row((site.vantage_id, 1, round_rows.seq, targets, targets, 0, *span, b"", 1))


async def _summarise(database: Database, days: Window, target_ids: tuple[int, ...], *, now_at: int) -> None:
    begun, until_at = time.monotonic(), now_at - now_at % HOUR_US
    due = [
        *(
            _summarise_samples(database, Resolution.DAY, day_at, target_ids)
            for day_at in range(days.from_at, days.until_at, DAY_US)
        ),
        *(rollups.summarise_hour(database, hour_at) for hour_at in range(days.until_at, until_at, HOUR_US)),
    ]
    waiting = iter(due)

    async def worker() -> None:
        for work in waiting:
            await work

    # While the server reads one day, another is packed.
    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    async with database.transaction() as connection:
        await job_state.advance(connection, Resolution.HOUR.job, until_at)
        await job_state.advance(connection, Resolution.DAY.job, days.until_at)
        # No sample arrived after its summary.
        await job_state.advance(connection, rollup.LATE, now_at)
    log(f"{len(due)} days and hours summarised in {time.monotonic() - begun:.0f} s")


async def summarise_hours(conninfo: str, window: Window, target_ids: Sequence[int]) -> None:
    """Summarise the hours of a window of some targets, of which only the days are summarised."""
    database = Database(conninfo)
    await database.open()
    for hour_at in range(window.from_at, window.until_at, HOUR_US):
        await _summarise_samples(database, Resolution.HOUR, hour_at, target_ids)
    await database.close()


async def _summarise_samples(
    database: Database, resolution: Resolution, begin_at: int, target_ids: Sequence[int]
) -> None:
    """Summarise an hour, or a day as if it were one long hour."""
    window = Window(from_at=begin_at, until_at=begin_at + resolution.size_us)
    async with database.connection() as connection:
        rows, endings = await rollups.from_samples(connection, Scope(window=window, target_ids=tuple(target_ids)))
    async with database.transaction() as connection:
        await rollups._write(connection, resolution, begin_at, rows, endings)
