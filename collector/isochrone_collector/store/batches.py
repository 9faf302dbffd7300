"""Exactly once: a batch is claimed in the ledger and copied into the samples in one transaction, or neither happens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from psycopg import sql
from psycopg.types.json import Jsonb

from isochrone_collector.store.instants import Instant
from isochrone_collector.store.pool import Connection, execute, fetch
from isochrone_collector.store.queries import query
from isochrone_collector.store.rows import COLUMNS, LedgerRow, Origin, Row

MAX_ROWS_PER_COPY = 10_000

_LATE_COLUMNS = {**COLUMNS, "reason": "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBatch:
    """A batch ready to be stored: rows for `sample`, rows with a reason for `sample_late`, and what was rejected."""

    origin: Origin
    samples: int
    rows: Sequence[Row]
    late_rows: Sequence[Row]
    rejections: Sequence[tuple[int, str]]


async def store(connection: Connection, batch: SealedBatch) -> LedgerRow | None:
    """Store a batch inside the caller's transaction; or, when it was stored before, say what the ledger has of it."""
    if not await _claim(connection, batch):
        return await _claimed(connection, batch.origin)
    if batch.rows:
        await _copy(connection, "sample", COLUMNS, batch.rows)
    if batch.late_rows:
        await _copy(connection, "sample_late", _LATE_COLUMNS, batch.late_rows)
    return None


async def _claim(connection: Connection, batch: SealedBatch) -> bool:
    return await execute(
        connection,
        query("claim_batch"),
        vantage_id=batch.origin.vantage_id,
        epoch=batch.origin.epoch,
        seq=batch.origin.seq,
        samples=batch.samples,
        stored=len(batch.rows) + len(batch.late_rows),
        late=len(batch.late_rows),
        rejections=Jsonb(batch.rejections) if batch.rejections else None,
        received_at=Instant(batch.origin.received_at),
    )


async def _claimed(connection: Connection, origin: Origin) -> LedgerRow:
    found = await fetch(
        connection,
        query("claimed_batch"),
        LedgerRow,
        vantage_id=origin.vantage_id,
        epoch=origin.epoch,
        seq=origin.seq,
    )
    return found[0]


async def _copy(connection: Connection, table: str, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
    types = list(columns.values())
    ordered = sorted(rows)
    for start in range(0, len(ordered), MAX_ROWS_PER_COPY):
        async with connection.cursor() as cursor, cursor.copy(_copy_statement(table, tuple(columns))) as copy:
            copy.set_types(types)
            for row in ordered[start : start + MAX_ROWS_PER_COPY]:
                await copy.write_row(row)


@cache
def _copy_statement(table: str, columns: tuple[str, ...]) -> sql.Composed:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return query("copy_samples").format(table=sql.Identifier(table), columns=names)
