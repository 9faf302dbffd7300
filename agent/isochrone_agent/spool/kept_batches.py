"""Copies of acknowledged batches, in case that the collector's database is restored from a backup.

A copy is the sealed batch unchanged, so that the ledger of the collector recognises it. The copies are limited in size
and age, and are the first to go when the spool is full. The table is created at each opening, because spools of earlier
versions have none. All functions run inside a transaction of the caller, and raise `sqlite3.Error`.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

from isochrone_agent.spool.database import SealedBatch
from isochrone_wire.model import DAY_US, BatchRange

DEFAULT_LIMIT_BYTES = 20_000_000
MAX_AGE_US = 2 * DAY_US
"""The age in microseconds, since the acknowledgement, from which copies are deleted. The ledgers of collectors reach
back further, so that a batch that is sent again is never stored twice.
"""
MAX_RANGES = 64

_DROPPED_AT_ONCE = 16
# More than the one that is added.
_EXPIRED_AT_ONCE = 4

# A place is the number of bytes kept before the batch, so that places order and measure the table.
_SCHEMA = """
create table if not exists kept (
    place integer primary key, id integer not null, epoch integer not null, seq integer not null,
    samples integer not null, oldest_at integer not null, kept_at integer not null, dropped text not null,
    checksum integer not null, body blob not null
);
create unique index if not exists kept_number on kept (epoch, seq);
"""
_END = "select place + length(body) from kept order by place desc limit 1"
_SEALED = "id, epoch, seq, samples, oldest_at, checksum, body"


def create_table(db: sqlite3.Connection) -> None:
    """Create the table unless it exists."""
    for statement in _SCHEMA.split(";"):
        db.execute(statement)


def keep(
    db: sqlite3.Connection, batch: SealedBatch, dropped: Mapping[str, int], *, kept_at: int, limit_bytes: int
) -> None:
    """Copy a sealed batch, of whose samples those in `dropped`, by reason, were rejected. Delete older copies."""
    db.execute(
        f"insert or replace into kept ({_SEALED}, place, kept_at, dropped) "  # noqa: S608  # our own words
        f"select {_SEALED}, coalesce(({_END}), 0), ?, ? from sealed where id = ? and epoch = ? and seq = ?",
        (kept_at, json.dumps(dropped), batch.id, batch.epoch, batch.seq),
    )
    db.execute(f"delete from kept where place < ({_END}) - ?", (limit_bytes,))  # noqa: S608  # our own words
    oldest = "select place from kept order by place limit ?"
    expired = (_EXPIRED_AT_ONCE, kept_at - MAX_AGE_US)
    db.execute(f"delete from kept where place in ({oldest}) and kept_at < ?", expired)  # noqa: S608  # our own words


def ranges(db: sqlite3.Connection) -> tuple[BatchRange, ...]:
    """The numbers of the kept batches, in at most `MAX_RANGES` ranges: the newest."""
    rows = db.execute(
        "select epoch, min(seq), max(seq) "
        "from (select epoch, seq, place, seq - row_number() over (partition by epoch order by seq) as gap from kept) "
        "group by epoch, gap order by max(place) desc limit ?",
        (MAX_RANGES,),
    ).fetchall()
    return tuple(BatchRange(epoch=epoch, first_seq=first, last_seq=last) for epoch, first, last in rows)


def restore(db: sqlite3.Connection, missing: Sequence[BatchRange], *, epoch: int) -> int:
    """Seal the kept batches in these ranges again, and correct the counters; return the number of batches. `epoch` is
    the current one.
    """
    restored = 0
    for one in missing:
        rows = db.execute(
            "select place, samples, dropped from kept where epoch = ? and seq between ? and ?",
            (one.epoch, one.first_seq, one.last_seq),
        ).fetchall()
        for place, samples, dropped in rows:
            copy = f"insert or ignore into sealed ({_SEALED}) select {_SEALED} from kept where place = ?"  # noqa: S608  # our own words
            if db.execute(copy, (place,)).rowcount == 1:
                _uncount(db, samples, Counter(json.loads(dropped)), is_earlier=one.epoch != epoch)
                restored += 1
            db.execute("delete from kept where place = ?", (place,))
    return restored


def _uncount(db: sqlite3.Connection, samples: int, dropped: Counter[str], *, is_earlier: bool) -> None:
    stored = samples - dropped.total()
    db.execute("update spool set stored = stored - ?, earlier = earlier - ?", (stored, stored if is_earlier else 0))
    changes = [(count, reason) for reason, count in dropped.items()]
    db.executemany("update dropped set samples = samples - ? where reason = ?", changes)
    db.execute("delete from dropped where samples <= 0")


def drop_oldest(db: sqlite3.Connection) -> bool:
    """Delete the oldest copies; return whether there were any."""
    oldest = "select place from kept order by place limit ?"
    return db.execute(f"delete from kept where place in ({oldest})", (_DROPPED_AT_ONCE,)).rowcount > 0  # noqa: S608  # our own words
