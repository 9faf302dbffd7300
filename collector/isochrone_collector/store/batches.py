"""Exactly-once storage of batches: each is claimed in the ledger and its samples are copied in one transaction."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from psycopg import sql
from psycopg.errors import CheckViolation
from psycopg.types.json import Jsonb

from isochrone_collector.analysis.probe_totals import BatchCounts
from isochrone_collector.errors import PartitionMissing
from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.rows import BatchKey, ClaimedRow, LedgerRow, Origin
from isochrone_wire.model import BatchRange

MAX_ROWS = 10_000
"""Maximum number of rows stored at once: a longer COPY is no faster in PostgreSQL and its relatives."""

COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER = b"\xff\xff"


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows in the binary format of COPY, without its header and trailer, and the order of their columns."""

    columns: tuple[str, ...]
    rows: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch:
    """A batch ready to be stored: packed rows for `sample`, those with a reason for `sample_late`, and the rejected
    samples as (index, reason). The rounds are the oldest and the newest of the rows for `sample`, if there are any.
    `probe_counts` and `records` (`analysis.probe_records`) are of these rows, if they are known.
    """

    origin: Origin
    samples: int
    content_hash: bytes
    rows: PackedRows
    late_rows: PackedRows
    rejections: Sequence[tuple[int, str]]
    oldest_round_at: int | None = None
    newest_round_at: int | None = None
    probe_counts: BatchCounts | None = None
    records: bytes | None = None

    @property
    def key(self) -> BatchKey:
        """Return its key in the ledger."""
        return BatchKey(vantage_id=self.origin.vantage_id, epoch=self.origin.epoch, seq=self.origin.seq)

    @property
    def stored(self) -> int:
        """Return the number of samples that are stored with it."""
        return self.rows.rows + self.late_rows.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountRow:
    """A number of batches."""

    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _NumberRow:
    """The number of one batch in its epoch."""

    seq: int


async def store(connection: Connection, batches: Sequence[PackedBatch]) -> list[LedgerRow | None]:
    """Store batches inside the caller's transaction. Return for each `None` if it was stored now, else its ledger
    entry.

    If the same batch occurs twice, the first one is stored, and the second one counts as a repetition.
    """
    first = {batch.key: batch for batch in reversed(batches)}
    claimed = await _claim(connection, first)
    stored = [batch for key, batch in first.items() if key in claimed]
    await copy(connection, "sample", [batch.rows for batch in stored])
    await copy(connection, "sample_late", [batch.late_rows for batch in stored])
    ledger = {batch.key: _as_ledger(batch) for batch in stored}
    ledger |= await _earlier(connection, [key for key in first if key not in claimed])
    return [None if batch is first[batch.key] and batch.key in claimed else ledger[batch.key] for batch in batches]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A stored sample: its target and round, the epoch of its batch, and the instant of its request."""

    target_id: int
    round_at: int
    epoch: int
    dispatched_at: int


async def stored_rounds(
    connection: Connection, vantage_id: int, rounds: Collection[tuple[int, int]]
) -> list[StoredRow]:
    """Return the stored samples of a vantage in some rounds, each a target id and an instant."""
    instants = [round_at for _, round_at in rounds]
    return await fetch(
        connection,
        query("stored_rounds"),
        StoredRow,
        vantage_id=vantage_id,
        target_id=[target_id for target_id, _ in rounds],
        round_at=list(map(Instant, instants)),
        from_at=Instant(min(instants)),
        until_at=Instant(max(instants)),
    )


async def _claim(connection: Connection, batches: Mapping[BatchKey, PackedBatch]) -> set[BatchKey]:
    # Batches are claimed in one order, or two collectors could wait for each other.
    ordered = [batches[key] for key in sorted(batches)]
    keys = _arrays(batch.key for batch in ordered)
    return set(await fetch(connection, query("claim_batches"), BatchKey, **keys, **_ledger_arrays(ordered)))


def _ledger_arrays(batches: Sequence[PackedBatch]) -> dict[str, list[Any]]:
    return {
        "samples": [batch.samples for batch in batches],
        "stored": [batch.stored for batch in batches],
        "late": [batch.late_rows.rows for batch in batches],
        "rejections": [Jsonb(batch.rejections) if batch.rejections else None for batch in batches],
        "received_at": [Instant(batch.origin.received_at) for batch in batches],
        "oldest_round_at": [_instant(batch.oldest_round_at) for batch in batches],
        "newest_round_at": [_instant(batch.newest_round_at) for batch in batches],
        "content_hash": [batch.content_hash for batch in batches],
    }


async def is_claimed(connection: Connection, key: BatchKey) -> bool:
    """Return whether a batch is in the ledger."""
    return bool(await _earlier(connection, [key]))


async def missing(connection: Connection, vantage_id: int, asked: BatchRange) -> list[BatchRange]:
    """Return the batches of a range that are not in the ledger, in ranges."""
    parameters = {"vantage_id": vantage_id, **asdict(asked)}
    (counted,) = await fetch(connection, query("count_batches"), _CountRow, **parameters)
    if counted.batches == asked.last_seq - asked.first_seq + 1:
        return []
    known = [row.seq for row in await fetch(connection, query("batches_of_range"), _NumberRow, **parameters)]
    gaps = pairwise((asked.first_seq - 1, *known, asked.last_seq + 1))
    return [
        BatchRange(epoch=asked.epoch, first_seq=before + 1, last_seq=after - 1)
        for before, after in gaps
        if after - before > 1
    ]


def _instant(at: int | None) -> Instant | None:
    return None if at is None else Instant(at)


async def _earlier(connection: Connection, keys: Sequence[BatchKey]) -> dict[BatchKey, LedgerRow]:
    if not keys:
        return {}
    found = await fetch(connection, query("claimed_batches"), ClaimedRow, **_arrays(keys))
    # A server that was restarted during their commit shows rows that the synchronous standby does not have yet.
    await execute(connection, query("write_to_log"))
    return {row.key: row.ledger for row in found}


def _arrays(keys: Iterable[BatchKey]) -> dict[str, list[int]]:
    listed = list(keys)
    return {
        "vantage_id": [key.vantage_id for key in listed],
        "epoch": [key.epoch for key in listed],
        "seq": [key.seq for key in listed],
    }


def _as_ledger(batch: PackedBatch) -> LedgerRow:
    return LedgerRow(
        samples=batch.samples,
        stored=batch.stored,
        rejections=list(batch.rejections),
        content_hash=batch.content_hash,
    )


async def copy(connection: Connection, table: str, blocks: Sequence[PackedRows]) -> None:
    """Copy blocks of packed rows, all with the same columns, into a table. Raises `PartitionMissing`."""
    filled = [block for block in blocks if block.rows]
    if not filled:
        return
    statement = _copy_statement(table, filled[0].columns)
    try:
        async with connection.cursor() as cursor, cursor.copy(statement) as stream:
            await stream.write(b"".join([COPY_HEADER, *(block.content for block in filled), COPY_TRAILER]))
    except CheckViolation as error:
        raise PartitionMissing(
            f"{table} has no partition for some of these rounds: {error.diag.message_primary}"
        ) from error


@cache
def _copy_statement(table: str, columns: tuple[str, ...]) -> bytes:
    # As bytes, because psycopg would quote sixty names again for each commit.
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return query("copy_samples").format(table=sql.Identifier(table), columns=names).as_bytes()
