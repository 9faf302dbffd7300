"""Sealing: recorded samples wait, and are sealed in batches with ascending numbers.

All functions run inside a transaction of the caller, and raise `sqlite3.Error` and `SpoolDamaged`.
"""

import sqlite3
from collections.abc import Container, Iterable

from isochrone_agent.spool import database
from isochrone_agent.spool.database import SealedBatch
from isochrone_wire.v1 import sample_pb2

MAX_BATCH_BYTES = 1 << 20
MAX_BATCH_SAMPLES = 500


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
    fitting = count_fitting(bodies)
    first_id, oldest_at = rows[0][:2]
    last_id = rows[fitting - 1][0]
    # In this order, because the batch reuses the pages of the deleted samples.
    db.execute("delete from waiting where id <= ?", (last_id,))
    insert_batch(db, epoch, number=first_id, oldest_at=oldest_at, bodies=bodies[:fitting])
    db.execute("update spool set sealed_to = ?", (last_id,))


def insert_batch(db: sqlite3.Connection, epoch: int, *, number: int, oldest_at: int, bodies: list[bytes]) -> None:
    """Seal samples in a batch with the next number of the epoch; `number` is its id."""
    batch = SealedBatch(
        id=number,
        epoch=epoch,
        seq=database.value(db, "select next_seq from spool"),
        samples=len(bodies),
        oldest_at=oldest_at,
        content=database.join_content(bodies),
    )
    database.insert_sealed(db, batch)
    db.execute("update spool set next_seq = next_seq + 1")


def delete_batch(db: sqlite3.Connection, batch: SealedBatch) -> bool:
    """Delete a sealed batch; return whether it still existed."""
    key = (batch.id, batch.epoch, batch.seq)
    return db.execute("delete from sealed where id = ? and epoch = ? and seq = ?", key).rowcount == 1


def count_fitting(bodies: list[bytes]) -> int:
    """Return how many of the bodies fit into one batch; at least one."""
    total = 0
    for count, body in enumerate(bodies[:MAX_BATCH_SAMPLES]):
        total += len(body)
        if count and total > MAX_BATCH_BYTES:
            return count
    return min(len(bodies), MAX_BATCH_SAMPLES)


def split_by_target(bodies: Iterable[bytes], targets: Container[int]) -> tuple[list[bytes], list[bytes]]:
    """Split encoded samples into those of `targets` and the others."""
    of_targets, others = list[bytes](), list[bytes]()
    for body in bodies:
        (of_targets if sample_pb2.Sample.FromString(body).target_id in targets else others).append(body)
    return of_targets, others
