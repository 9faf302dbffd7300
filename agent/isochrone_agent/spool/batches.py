"""Batches of a spool: sealing, the replay buffer and eviction.

Recorded samples wait, and are sealed in batches with ascending numbers. The replay buffer has copies of acknowledged
batches, unchanged so that the collector's ledger recognises them, in case its database is restored from a backup. It is
limited in size and age. When the spool has no room, the copies go first, then the quarantine, then batches that the
collector certainly does not have.

All functions run inside a transaction of the caller, and raise `sqlite3.Error`, and when sealing `SpoolDamaged`.
"""

import bz2
import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import accumulate

import structlog

from isochrone_agent.spool import database
from isochrone_agent.spool.database import SealedBatch
from isochrone_wire.model import DAY_US, BatchRange
from isochrone_wire.v1 import fleet_pb2, sample_pb2

MAX_BATCH_BYTES = 1 << 20
MAX_BATCH_SAMPLES = 500

MAX_AGE_US = 2 * DAY_US
"""The age in microseconds, since the acknowledgement, from which copies are deleted. The ledgers of collectors reach
back further, so that a batch that is sent again is never stored twice.
"""
MAX_RANGES = 64

# A batch has about 130 kB and fits in a block of 200 kB, which needs a quarter of the memory of the largest block size.
_BZ2_LEVEL = 2
_DROPPED_AT_ONCE = 16
# More than the one that is added.
_EXPIRED_AT_ONCE = 4

# A place in the replay buffer is the number of bytes before the batch, so that places order and measure the buffer.
_END = "select place + length(body) from replay order by place desc limit 1"
_SEALED = "id, epoch, seq, samples, oldest_at, checksum, body"


def record(db: sqlite3.Connection, epoch: int, recorded_at: int, body: bytes) -> None:
    """Insert a finished sample, and seal the waiting ones if they fill a batch."""
    db.execute("update spool set finished = finished + 1, last_id = last_id + 1")
    checksum = database.sample_checksum(body)
    db.execute("insert into waiting select last_id, ?, ?, ? from spool", (recorded_at, checksum, body))
    waiting, size = db.execute("select count(*), sum(length(body)) from waiting").fetchone()
    if waiting >= MAX_BATCH_SAMPLES or size >= MAX_BATCH_BYTES:
        seal(db, epoch)


def seal(db: sqlite3.Connection, epoch: int) -> None:
    """Seal the oldest waiting samples that fit into one batch, if there are any."""
    rows = db.execute("select id, recorded_at, checksum, body from waiting order by id").fetchall()
    if not rows:
        return
    bodies = [database.read_sample(checksum, body) for _, _, checksum, body in rows]
    fitting = max(sum(size <= MAX_BATCH_BYTES for size in accumulate(map(len, bodies[:MAX_BATCH_SAMPLES]))), 1)
    first_id, oldest_at = rows[0][:2]
    last_id = rows[fitting - 1][0]
    # In this order, because the batch reuses the pages of the deleted samples.
    db.execute("delete from waiting where id <= ?", (last_id,))
    insert_batch(db, epoch, number=first_id, oldest_at=oldest_at, bodies=bodies[:fitting])
    db.execute("update spool set sealed_to = ?", (last_id,))


def insert_batch(db: sqlite3.Connection, epoch: int, *, number: int, oldest_at: int, bodies: list[bytes]) -> None:
    """Seal samples in a batch with the next number of the epoch; `number` is its id."""
    seq, samples = database.value(db, "select next_seq from spool"), len(bodies)
    packed = bz2.compress(fleet_pb2.EncodedSamples(samples=bodies).SerializeToString(), _BZ2_LEVEL)
    checksum = database.batch_checksum(epoch=epoch, seq=seq, samples=samples, packed=packed)
    row = (number, epoch, seq, samples, oldest_at, checksum, packed)
    db.execute("insert into sealed values (?, ?, ?, ?, ?, ?, ?)", row)
    db.execute("update spool set next_seq = next_seq + 1")


def delete_batch(db: sqlite3.Connection, batch: SealedBatch) -> bool:
    """Delete a sealed batch; return whether it still existed."""
    key = (batch.id, batch.epoch, batch.seq)
    return db.execute("delete from sealed where id = ? and epoch = ? and seq = ?", key).rowcount == 1


def split_by_target(bodies: Iterable[bytes], targets: Container[int]) -> tuple[list[bytes], list[bytes]]:
    """Split encoded samples into those of `targets` and the others."""
    of_targets, others = list[bytes](), list[bytes]()
    for body in bodies:
        (of_targets if sample_pb2.Sample.FromString(body).target_id in targets else others).append(body)
    return of_targets, others


QUARANTINE_FULL = "quarantine_full"
UNKNOWN_TARGET = "unknown_target"
OTHER = "other"
MAX_REASONS = 50
"""The number of reasons from which on samples with another reason are counted as `OTHER`."""
MAX_PARKED_US = 7 * DAY_US
"""The age in microseconds from which samples of a target that the collector does not know are dropped."""

_REASON_CHARS = 40
# About the size of a batch, so that a large quarantine is not dropped in a thousand steps.
_QUARANTINED_AT_ONCE = 100

log = structlog.get_logger()


def evict_oldest(db: sqlite3.Connection, reason: str, *, leased: Collection[int], ever_leased: set[int]) -> bool:
    """Drop the oldest copies of delivered batches; else the oldest samples of the quarantine; else the oldest batch
    that is not `leased`, preferably one that is not in `ever_leased`; else the older half of the waiting samples.
    Return whether anything was dropped.

    Removes a dropped batch from `ever_leased`.
    """
    oldest = "select place from replay order by place limit ?"
    if db.execute(f"delete from replay where place in ({oldest})", (_DROPPED_AT_ONCE,)).rowcount > 0:  # noqa: S608  # our own words
        return True
    oldest = "select id from quarantine order by id limit ?"
    drop_quarantined = f"delete from quarantine where id in ({oldest})"  # noqa: S608  # our own words
    if samples := db.execute(drop_quarantined, (_QUARANTINED_AT_ONCE,)).rowcount:
        reason = QUARANTINE_FULL
    else:
        # Of the waiting ones the older half, but never the newest: it is the one being recorded.
        older_half = "select id from waiting order by id limit (select count(*) / 2 from waiting)"
        drop_waiting = f"delete from waiting where id in ({older_half})"  # noqa: S608  # our own words
        samples = _drop_sealed(db, leased, ever_leased) or db.execute(drop_waiting).rowcount
    if samples:
        count_dropped(db, {reason: samples})
        log.warning("samples.dropped", reason=reason, samples=samples)
    return bool(samples)


def count_dropped(db: sqlite3.Connection, reasons: Mapping[str, int]) -> None:
    """Add to the counts of dropped samples, by reason."""
    db.executemany(
        "insert into dropped values (?, ?) on conflict (reason) do update set samples = samples + excluded.samples",
        [(reason, samples) for reason, samples in reasons.items() if samples],
    )


def bounded_reasons(db: sqlite3.Connection, reasons: Mapping[str, int]) -> Counter[str]:
    """Cut reasons, and count further ones as `OTHER`: every push has them, and a collector may be hostile."""
    known = {name for (name,) in db.execute("select reason from dropped")} if reasons else set()
    bounded: Counter[str] = Counter()
    for reason, samples in reasons.items():
        name = reason[:_REASON_CHARS]
        if name not in known and len(known) >= MAX_REASONS:
            name = OTHER
        known.add(name)
        bounded[name] += samples
    return bounded


def _drop_sealed(db: sqlite3.Connection, leased: Collection[int], ever_leased: set[int]) -> int:
    in_flight, maybe_stored = ",".join(map(str, leased)), ",".join(map(str, ever_leased))
    oldest = f"select id from sealed where id not in ({in_flight}) order by id in ({maybe_stored}), id limit 1"  # noqa: S608  # our own numbers
    rows = db.execute(f"delete from sealed where id = ({oldest}) returning id, samples").fetchall()  # noqa: S608  # as above
    ever_leased.difference_update(number for number, _ in rows)
    return sum(samples for _, samples in rows)


def add_copy(
    db: sqlite3.Connection, batch: SealedBatch, dropped: Mapping[str, int], *, kept_at: int, limit_bytes: int
) -> None:
    """Copy a sealed batch, of whose samples those in `dropped`, by reason, were rejected. Delete older copies."""
    db.execute(
        f"insert or replace into replay ({_SEALED}, place, kept_at, dropped) "  # noqa: S608  # our own words
        f"select {_SEALED}, coalesce(({_END}), 0), ?, ? from sealed where id = ? and epoch = ? and seq = ?",
        (kept_at, json.dumps(dropped), batch.id, batch.epoch, batch.seq),
    )
    db.execute(f"delete from replay where place < ({_END}) - ?", (limit_bytes,))  # noqa: S608  # our own words
    oldest = "select place from replay order by place limit ?"
    expired = (_EXPIRED_AT_ONCE, kept_at - MAX_AGE_US)
    db.execute(f"delete from replay where place in ({oldest}) and kept_at < ?", expired)  # noqa: S608  # our own words


def replay_ranges(db: sqlite3.Connection) -> tuple[BatchRange, ...]:
    """The numbers of the copied batches, in at most `MAX_RANGES` ranges: the newest."""
    rows = db.execute(
        "select epoch, min(seq), max(seq) "
        "from (select epoch, seq, place, seq - row_number() over (partition by epoch order by seq) as gap from replay) "
        "group by epoch, gap order by max(place) desc limit ?",
        (MAX_RANGES,),
    ).fetchall()
    return tuple(BatchRange(epoch=epoch, first_seq=first, last_seq=last) for epoch, first, last in rows)


def restore_copies(db: sqlite3.Connection, missing: Sequence[BatchRange], *, epoch: int) -> int:
    """Seal the copied batches in these ranges again, and correct the counters; return the number of batches."""
    restored = 0
    for one in missing:
        rows = db.execute(
            "select place, samples, dropped from replay where epoch = ? and seq between ? and ?",
            (one.epoch, one.first_seq, one.last_seq),
        ).fetchall()
        for place, samples, dropped in rows:
            copy = f"insert or ignore into sealed ({_SEALED}) select {_SEALED} from replay where place = ?"  # noqa: S608  # our own words
            if db.execute(copy, (place,)).rowcount == 1:
                _uncount(db, samples, Counter(json.loads(dropped)), is_earlier=one.epoch != epoch)
                restored += 1
            db.execute("delete from replay where place = ?", (place,))
    return restored


def _uncount(db: sqlite3.Connection, samples: int, dropped: Counter[str], *, is_earlier: bool) -> None:
    stored = samples - dropped.total()
    db.execute("update spool set stored = stored - ?, earlier = earlier - ?", (stored, stored if is_earlier else 0))
    changes = [(count, reason) for reason, count in dropped.items()]
    db.executemany("update dropped set samples = samples - ? where reason = ?", changes)
    db.execute("delete from dropped where samples <= 0")
