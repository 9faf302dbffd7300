"""New batches: every batch that any collector stores, for jobs that look at each probe once.

Theory of operation. The first read of fresh rows makes the server write their pages again, and so delays commits. So
the probes of the batches that a collector has committed stay in its memory for a short time. Each job has a reader.

The laws:

1. A reader returns each batch of the ledger once, whichever collector has stored it, and no other one.
2. A batch is in the ledger within `OVERLAP_US` of its receipt, by any collector's clock.
3. Memory saves reading, and nothing else: what it lacks is read from the database, with the same result.
"""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from psycopg import sql

from isochrone_collector.analysis.probe_records import OUTCOMES, RECORD, Records, joined, selected
from isochrone_collector.store.batches import PackedBatch
from isochrone_collector.store.postgres.instants import POSTGRES_EPOCH_AT, Instant
from isochrone_collector.store.postgres.pool import Connection, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import ANSWER_FROM, HAS_ANSWER_TIME, PUNCTUAL, VALID
from isochrone_wire.model import MINUTE_US

MAX_BYTES = 64_000_000
"""Maximum size of the records kept in memory, those of a million probes."""
OVERLAP_US = MINUTE_US
_KEEP_US = 2 * MINUTE_US
# A batch may be in the ledger a moment before this collector has the answer of its commit.
_ANSWERED_WITHIN_S = 0.1

_BATCH = struct.Struct("!4q")

_RECEIVED_BEFORE = sql.SQL("received_at < %(received_at)s")
_OF_BATCHES = sql.SQL(
    "(vantage_id, epoch, seq) IN (SELECT * FROM unnest(%(vantage_ids)s::bigint[], %(epochs)s::bigint[],"
    " %(seqs)s::bigint[]))"
)

Key = tuple[int, int, int]
"""Vantage, epoch and number of a batch."""


@dataclass(frozen=True, slots=True, eq=False)
class NewBatch:
    """A batch of the ledger with its rounds; `records` are `None` if this collector does not have them in memory."""

    key: Key
    region: str
    oldest_round_at: int
    newest_round_at: int
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

    def add(self, batch: PackedBatch) -> None:
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
class _LedgerRow:
    vantage_id: int
    region: str
    batches: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordsRow:
    records: bytes


class NewBatches:
    """Reader of the batches that are stored from now on; `begin` sets the beginning. If what it returned is lost, for
    example with a failed run of a job, the job begins again.
    """

    def __init__(self, recent: RecentBatches) -> None:
        self._recent = recent
        self._since_at = 0
        self._seen: dict[tuple[int, str], set[bytes]] = {}

    def begin(self, since_at: int) -> None:
        """Return the batches received since an instant, whether they were returned before or not."""
        self._since_at, self._seen = since_at, {}

    async def read(self, connection: Connection, at: int) -> list[NewBatch]:
        """Return the batches that were stored since the last call. `at` is now, and not before the last call."""
        rows = await fetch(connection, query("batches_since"), _LedgerRow, since_at=Instant(self._since_at))
        listed = {(row.vantage_id, row.region): set(_batches_of(row.batches)) for row in rows}
        # Only new ones are decoded, because most were returned before.
        new = [
            self._decoded(*vantage, batch)
            for vantage, batches in listed.items()
            for batch in batches - self._seen.get(vantage, set())
        ]
        if any(batch.records is None for batch in new):
            await asyncio.sleep(_ANSWERED_WITHIN_S)
            new = [replace(batch, records=self._recent.find(batch.key)) for batch in new]
        # No batch from before that the next call may list is missing from these. Set last, because a job that is
        # cancelled meanwhile has not got them.
        self._seen, self._since_at = listed, max(self._since_at, at - OVERLAP_US)
        return new

    def _decoded(self, vantage_id: int, region: str, content: bytes) -> NewBatch:
        epoch, seq, oldest, newest = _BATCH.unpack(content)
        key = vantage_id, epoch, seq
        return NewBatch(key, region, oldest + POSTGRES_EPOCH_AT, newest + POSTGRES_EPOCH_AT, self._recent.find(key))


def _batches_of(content: bytes) -> Iterator[bytes]:
    return (content[begin : begin + _BATCH.size] for begin in range(0, len(content), _BATCH.size))


async def probes_of(
    connection: Connection, batches: Sequence[NewBatch], *, target_ids: Sequence[int], from_at: int
) -> Records:
    """Return the probes of some targets in new batches, of rounds since `from_at`."""
    parts = [batch.records for batch in batches if batch.records is not None]
    missing = [batch for batch in batches if batch.records is None and batch.newest_round_at >= from_at]
    if missing:
        vantage_ids, epochs, seqs = zip(*(batch.key for batch in missing), strict=True)
        stored = await _stored(
            connection,
            _OF_BATCHES,
            target_ids=list(target_ids),
            from_at=Instant(max(from_at, min(batch.oldest_round_at for batch in missing))),
            until_at=Instant(max(batch.newest_round_at for batch in missing)),
            vantage_ids=list(vantage_ids),
            epochs=list(epochs),
            seqs=list(seqs),
        )
        parts.append(stored)
    return await asyncio.to_thread(_within, parts, target_ids, from_at)


def _within(parts: Sequence[Records], target_ids: Sequence[int], from_at: int) -> Records:
    records = joined(parts)
    return selected(records, (records["round_at"] >= from_at) & np.isin(records["target_id"], target_ids))


async def probes_before(
    connection: Connection, received_at: int, *, target_ids: Sequence[int], from_at: int
) -> Records:
    """Return the probes of some targets that were received before an instant, of rounds since `from_at`."""
    scope = {"target_ids": list(target_ids), "from_at": Instant(from_at), "until_at": "infinity"}
    return await _stored(connection, _RECEIVED_BEFORE, received_at=Instant(received_at), **scope)


async def _stored(connection: Connection, chosen: sql.SQL, **parameters: object) -> Records:
    statement = query("probe_records").format(
        valid=sql.SQL(VALID),
        punctual=sql.SQL(PUNCTUAL),
        has_answer_time=sql.SQL(HAS_ANSWER_TIME),
        answer_from=sql.SQL(ANSWER_FROM),
        chosen=chosen,
    )
    rows = await fetch(connection, statement, _RecordsRow, outcomes=[one.value for one in OUTCOMES], **parameters)
    records = np.frombuffer(b"".join(row.records for row in rows), RECORD.newbyteorder(">")).astype(RECORD)
    records["round_at"] += POSTGRES_EPOCH_AT
    return records
