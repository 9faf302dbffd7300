"""The ledger of batches: exactly-once storage, and a reader of new batches for jobs that look at each probe once.

Each batch is claimed in the ledger, and its samples are copied, in one transaction.

Theory of operation of the reader. The first read of fresh rows makes the server write their pages again, and so delays
commits. So the probes of the batches that a collector has committed stay in its memory for a short time. Each job has
a reader.

The laws:

1. A reader returns each batch of the ledger once, whichever collector has stored it, and no other one.
2. The order is that of the database's transactions, whatever the clocks of collectors show. A batch is new if its
   transaction has a higher number than those returned before, or was pending when they were read; so one that commits
   an hour later is returned, too.
3. On a Citus cluster, the transactions are those of the coordinator, and each shard may show a batch later: a minute
   later, if the coordinator has failed between. So what has ended within two minutes is read again.
4. Each read begins with the last batches of an earlier one. If they are missing, the database was set back: the reader
   raises `DatabaseSetBack`, and has to begin again.
5. Memory saves reading, and nothing else: what it lacks is read from the database, with the same result.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import pairwise

import numpy as np
from psycopg import sql
from psycopg.errors import CheckViolation
from psycopg.types.json import Jsonb

from isochrone_collector.analysis.probe_records import BLOCKED_SHIFT, RECORD, Records, joined, selected
from isochrone_collector.analysis.probe_totals import BatchCounts
from isochrone_collector.errors import DatabaseSetBack, PartitionMissing
from isochrone_collector.store.postgres.pool import Connection, execute, fetch, fetch_tuples, fetch_values, query
from isochrone_collector.store.postgres.values import POSTGRES_EPOCH_AT, columns_of, fields_of
from isochrone_collector.store.probe_queries import record_of
from isochrone_collector.store.vantages import AHEAD_US
from isochrone_wire.model import MINUTE_US, BatchRange, Quality


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BatchKey:
    """The key of a batch in the ledger."""

    vantage_id: int
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow(BatchKey):
    """A batch in the ledger: samples received and stored, (index, reason) of each rejected one, and its hash."""

    samples: int
    stored: int
    rejections: Sequence[tuple[int, str]] | None
    content_hash: bytes

    @property
    def key(self) -> BatchKey:
        """Return its key."""
        return BatchKey(vantage_id=self.vantage_id, epoch=self.epoch, seq=self.seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of the samples of one batch, and the instant at which it was received."""

    vantage_id: int
    region: str
    epoch: int
    seq: int
    received_at: int


MAX_ROWS = 10_000
"""Maximum number of rows stored at once: a longer COPY is no faster in PostgreSQL and its relatives."""

COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER = b"\xff\xff"


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows in the binary format of COPY, without its header and trailer, and the order of their columns."""

    columns: tuple[str, ...]
    rows: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A batch ready to be stored: encoded rows for `sample`, those with a reason for `sample_late`, and the rejected
    samples as (index, reason). The rounds are the oldest and the newest of the rows for `sample`, if there are any.
    `probe_counts` and `records` (`analysis.probe_records`) are of these rows, if they are known.
    """

    origin: Origin
    samples: int
    content_hash: bytes
    rows: EncodedRows
    late_rows: EncodedRows
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


_KEY = ("vantage_id", "epoch", "seq")


async def store(connection: Connection, batches: Sequence[EncodedBatch]) -> list[LedgerRow | None]:
    """Store batches inside the caller's transaction. Return for each `None` if it was stored now, else its ledger
    entry.

    If the same batch occurs twice, the first one is stored, and the second one counts as a repetition.
    """
    first = {batch.key: batch for batch in reversed(batches)}
    # Batches are claimed in one order, or two collectors could wait for each other.
    ordered = [first[key] for key in sorted(first)]
    columns = columns_of(ordered, "samples", "stored", "oldest_round_at", "newest_round_at", "content_hash") | {
        **columns_of((batch.origin for batch in ordered), *_KEY, "received_at"),
        "late": [batch.late_rows.rows for batch in ordered],
        "rejections": [Jsonb(batch.rejections) if batch.rejections else None for batch in ordered],
    }
    claimed = set(await fetch(connection, "claim_batches", BatchKey, **columns))
    stored = [batch for key, batch in first.items() if key in claimed]
    await copy(connection, "sample", [batch.rows for batch in stored])
    await copy(connection, "sample_late", [batch.late_rows for batch in stored])
    ledger = {
        batch.key: LedgerRow(
            **fields_of(batch.key),
            samples=batch.samples,
            stored=batch.stored,
            rejections=batch.rejections,
            content_hash=batch.content_hash,
        )
        for batch in stored
    }
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
    target_ids, instants = zip(*rounds, strict=True)
    asked = {"vantage_id": vantage_id, "target_id": target_ids, "round_at": instants}
    return await fetch(connection, "stored_rounds", StoredRow, **asked, from_at=min(instants), until_at=max(instants))


async def missing(connection: Connection, vantage_id: int, asked: BatchRange) -> list[BatchRange]:
    """Return the batches of a range that are not in the ledger, in ranges."""
    parameters = {"vantage_id": vantage_id, **asdict(asked)}
    (batches,) = await fetch_values(connection, "count_batches", **parameters)
    if batches == asked.last_seq - asked.first_seq + 1:
        return []
    known = await fetch_values(connection, "batches_of_range", **parameters)
    gaps = pairwise((asked.first_seq - 1, *known, asked.last_seq + 1))
    return [
        BatchRange(epoch=asked.epoch, first_seq=before + 1, last_seq=after - 1)
        for before, after in gaps
        if after - before > 1
    ]


async def _earlier(connection: Connection, keys: Sequence[BatchKey]) -> dict[BatchKey, LedgerRow]:
    if not keys:
        return {}
    found = await fetch(connection, "claimed_batches", LedgerRow, **columns_of(keys, *_KEY))
    # A server that was restarted during their commit shows rows that the synchronous standby does not have yet.
    await execute(connection, "write_to_log")
    return {row.key: row for row in found}


async def copy(connection: Connection, table: str, blocks: Sequence[EncodedRows]) -> None:
    """Copy blocks of encoded rows, all with the same columns, into a table. Raises `PartitionMissing`."""
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


MAX_BYTES = 64_000_000
"""Maximum size of the records kept in memory, those of a million probes."""
_KEEP_US = 2 * MINUTE_US
# On a cluster: longer than it takes to find a transaction whose coordinator has failed (`citus.recover_2pc_interval`).
_CLUSTER_LAG_US = 2 * MINUTE_US
# A batch may be in the ledger a moment before this collector has the answer of its commit.
_ANSWERED_WITHIN_S = 0.1

_BATCH = struct.Struct("!6q")
_TRANSACTION = struct.Struct("!q")

_TRAITS = f"traits | ((quality & {Quality.BLOCKED.value}) << {BLOCKED_SHIFT})"
_ALL = sql.SQL("true")
_OF_BATCHES = sql.SQL(
    "(vantage_id, epoch, seq) IN (SELECT * FROM unnest(%(vantage_ids)s::bigint[], %(epochs)s::bigint[],"
    " %(seqs)s::bigint[]))"
)

Key = tuple[int, int, int]
"""Vantage, epoch and number of a batch."""


@dataclass(frozen=True, slots=True, eq=False)
class NewBatch:
    """A batch of the ledger with its rounds and the number of its `stored` samples; `records` are `None` if this
    collector does not have them in memory.
    """

    key: Key
    region: str
    oldest_round_at: int
    newest_round_at: int
    stored: int
    transaction_id: int
    records: Records | None

    @property
    def vantage_id(self) -> int:
        """Its vantage."""
        return self.key[0]


class RecentBatches:
    """The records of the newest batches that this collector has committed: `max_bytes` at most, for two minutes."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._records: dict[Key, tuple[int, bytes]] = {}
        self._bytes = 0

    def add(self, batch: EncodedBatch) -> None:
        """Keep the records of a batch that was committed."""
        origin = batch.origin
        key = origin.vantage_id, origin.epoch, origin.seq
        if batch.records and key not in self._records:
            self._records[key] = origin.received_at, batch.records
            self._bytes += len(batch.records)
        while self._records:
            oldest = next(iter(self._records))
            at, records = self._records[oldest]
            if self._bytes <= self._max_bytes and at >= origin.received_at - _KEEP_US:
                break
            del self._records[oldest]
            self._bytes -= len(records)

    def find(self, key: Key) -> Records | None:
        """Return the records of a batch, if they are in memory."""
        found = self._records.get(key)
        return found and np.frombuffer(found[1], RECORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """The transactions so far: those before `until` have ended, except pending ones; `at` is the database's clock."""

    until: int
    pending: Sequence[int]
    at: int
    is_cluster: bool

    @property
    def first_pending(self) -> int:
        """Every transaction before this one has ended."""
        return min((self.until, *self.pending))


async def transactions(connection: Connection) -> Transactions:
    """Return the transactions so far."""
    return (await fetch(connection, "transactions", Transactions))[0]


Listing = Mapping[tuple[int, str], AbstractSet[bytes]]
"""Batches by vantage and region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """The end of a read: the newest transaction and its batches, and the earlier ones that were pending."""

    at: int = 0
    newest: int = 0
    pending: Sequence[int] = ()
    batches: Listing = field(default_factory=dict)


class NewBatches:
    """Reader of the batches that are stored from `begin` on; a job that loses what it read begins again."""

    def __init__(self, recent: RecentBatches | None = None) -> None:
        self._recent = recent
        self._marks = deque([_Mark()])
        self._seen: Listing = {}

    async def begin(self, connection: Connection, since_at: int | None = None) -> None:
        """Return the batches that are stored from now on, whether they were returned before or not; and those received
        since an instant, by a clock of any collector, with some earlier ones.
        """
        found = await transactions(connection)
        asked = {"until": found.until, "pending": found.pending}
        before_at = "infinity" if since_at is None else since_at - AHEAD_US
        (newest,) = await fetch_values(connection, "newest_transaction", **asked, received_before_at=before_at)
        mark = _Mark(at=found.at, newest=newest, pending=_before(newest, found.pending))
        listed, _ = await self._list(connection, replace(mark, pending=()), found, until=newest + 1)
        self._marks, self._seen = deque([replace(mark, batches=listed)]), listed

    async def read(self, connection: Connection, *, most: int | None = None) -> list[NewBatch]:
        """Return the batches that were stored since the last call, about `most` of them. Raises `DatabaseSetBack`."""
        found, mark = await transactions(connection), self._marks[0]
        until = found.until
        if most is not None:
            asked = {"newest": self._marks[-1].newest, "until": until, "most": most}
            (last,) = await fetch_values(connection, "last_transaction_of_next", **asked)
            until = until if last is None else last + 1
        listed, newest = await self._list(connection, mark, found, until=until)
        for known in self._marks:
            if any(not batches <= listed.get(vantage, set()) for vantage, batches in known.batches.items()):
                raise DatabaseSetBack(f"the database no longer has the batches of its transaction {known.newest}")
        # Only new ones are decoded, because on a cluster most were returned before.
        new = [
            self._decoded(*vantage, batch)
            for vantage, batches in listed.items()
            for batch in batches - self._seen.get(vantage, set())
        ]
        if self._recent is not None and any(batch.records is None for batch in new):
            await asyncio.sleep(_ANSWERED_WITHIN_S)
            new = [replace(batch, records=self._recent.find(batch.key)) for batch in new]
        # Set last, because a job that is cancelled meanwhile has not got them.
        end = _Mark(at=found.at, newest=newest, pending=_before(newest, found.pending), batches=_of(newest, listed))
        self._marks.append(end)
        settled_at = found.at - _CLUSTER_LAG_US if found.is_cluster else found.at
        while len(self._marks) > 1 and self._marks[1].at <= settled_at:
            self._marks.popleft()
        self._seen = listed
        return new

    async def _list(
        self, connection: Connection, mark: _Mark, found: Transactions, *, until: int
    ) -> tuple[Listing, int]:
        """Return the batches since a mark and before a transaction, and the newest transaction of both."""
        asked = {"newest": mark.newest, "pending_before": mark.pending, "until": until, "pending": found.pending}
        rows = await fetch_tuples(connection, "batches_since", **asked)
        size = _BATCH.size
        listed = {
            (vantage_id, region): {content[begin : begin + size] for begin in range(0, len(content), size)}
            for vantage_id, region, _, content in rows
        }
        return listed, max((mark.newest, *(newest for _, _, newest, _ in rows)))

    def _decoded(self, vantage_id: int, region: str, content: bytes) -> NewBatch:
        epoch, seq, oldest, newest, stored, transaction_id = _BATCH.unpack(content)
        key = vantage_id, epoch, seq
        rounds = oldest + POSTGRES_EPOCH_AT, newest + POSTGRES_EPOCH_AT
        records = self._recent.find(key) if self._recent is not None else None
        return NewBatch(key, region, *rounds, stored, transaction_id, records)


def _before(transaction_id: int, pending: Sequence[int]) -> Sequence[int]:
    return [one for one in pending if one < transaction_id]


def _of(transaction_id: int, listed: Listing) -> Listing:
    end = _TRANSACTION.pack(transaction_id)
    return {vantage: {one for one in batches if one.endswith(end)} for vantage, batches in listed.items()}


async def probes_of(
    connection: Connection, batches: Sequence[NewBatch], *, target_ids: Sequence[int], from_at: int
) -> Records:
    """Return the probes of some targets in new batches, of rounds since `from_at`."""
    parts = [batch.records for batch in batches if batch.records is not None]
    missing = [batch for batch in batches if batch.records is None and batch.newest_round_at >= from_at]
    if missing:
        vantage_ids, epochs, seqs = zip(*(batch.key for batch in missing), strict=True)
        asked = {"target_ids": target_ids, "vantage_ids": vantage_ids, "epochs": epochs, "seqs": seqs}
        span = {
            "from_at": max(from_at, min(batch.oldest_round_at for batch in missing)),
            "until_at": max(batch.newest_round_at for batch in missing),
        }
        parts.append(await _stored(connection, _OF_BATCHES, **asked, **span))
    return await asyncio.to_thread(_within, parts, target_ids, from_at)


def _within(parts: Sequence[Records], target_ids: Sequence[int], from_at: int) -> Records:
    records = joined(parts)
    return selected(records, (records["round_at"] >= from_at) & np.isin(records["target_id"], target_ids))


async def probes_so_far(connection: Connection, *, target_ids: Sequence[int], from_at: int) -> Records:
    """Return the probes of some targets, of rounds since `from_at`."""
    return await _stored(connection, _ALL, target_ids=target_ids, from_at=from_at, until_at="infinity")


async def _stored(connection: Connection, chosen: sql.SQL, **parameters: object) -> Records:
    record = record_of(RECORD, ttft_us="coalesce(ttft_us, timeout_us)", traits=_TRAITS)
    statement = query("probe_records").format(record=record, chosen=chosen)
    parts = await fetch_values(connection, statement, **parameters)
    records = np.frombuffer(b"".join(parts), RECORD.newbyteorder(">")).astype(RECORD)
    records["round_at"] += POSTGRES_EPOCH_AT
    return records
