"""The spool: samples on disk until the collector has them.

The laws:

1. A sample counts as recorded when its insert is committed and fsynced (WAL, synchronous=FULL).
2. Sealing gives the next sequence number to the oldest unsealed samples in one transaction. A sealed batch never
   changes, so that a retry carries the same samples under the same number.
3. A batch is deleted only when the collector has acknowledged it.
4. The epoch is random and made with the spool: another spool of the same vantage never reuses a number.

Every method blocks; the runner calls them in one thread of their own, in order.
"""

import secrets
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isochrone_agent.errors import SpoolError
from isochrone_wire import codec
from isochrone_wire.model import Plan, Sample
from isochrone_wire.v1 import plan_pb2, sample_pb2

MAX_BATCH_BYTES = 1 << 20
MAX_BATCH_SAMPLES = 500
_SCHEMA = """
create table if not exists spool (
    epoch integer not null, next_seq integer not null, recorded integer not null default 0
);
create table if not exists waiting (
    id integer primary key, recorded_at integer not null, seq integer, size integer not null, body blob not null
);
create index if not exists waiting_seq on waiting (seq, id);
create table if not exists aside (
    seq integer not null, reason text not null, size integer not null, body blob not null
);
create table if not exists plan (only_one integer primary key check (only_one = 1), body blob not null);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBatch:
    """Samples that travel together under one sequence number."""

    epoch: int
    seq: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many samples wait, since when (microseconds since the epoch, 0 for none), how many lie aside because the
    collector would not take them, and how many were ever recorded.
    """

    waiting: int
    oldest_at: int
    aside: int
    recorded: int


class Spool:
    """Samples waiting in one SQLite file, which is made when missing."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            hint = "check that the folder is on a local disk, writable, with space left; see --data-dir"
            raise SpoolError(f"the spool {path} cannot be opened: {error}", hint=hint) from error
        self.epoch: int = self._value("select epoch from spool")

    def record(self, sample: Sample) -> None:
        """Keep `sample`; on return it survives a crash. Raises `SpoolError`."""
        body = codec.encode(sample).SerializeToString()
        try:
            with self._transaction():
                self._db.execute(
                    "insert into waiting (recorded_at, size, body) values (?, ?, ?)",
                    (time.time_ns() // 1000, len(body), body),
                )
                self._db.execute("update spool set recorded = recorded + 1")
        except sqlite3.Error as error:
            raise SpoolError(f"the spool cannot be written: {error}", hint="free some space on its disk") from error

    def next_batch(self) -> SealedBatch | None:
        """The oldest sealed batch, sealing a new one when there is none; `None` when nothing waits."""
        seq = self._value("select min(seq) from waiting") or self._seal()
        if seq is None:
            return None
        rows = self._db.execute("select body from waiting where seq = ? order by id", (seq,)).fetchall()
        samples = tuple(codec.decode(Sample, sample_pb2.Sample.FromString(body)) for (body,) in rows)
        return SealedBatch(epoch=self.epoch, seq=seq, samples=samples)

    def acknowledge(self, seq: int) -> None:
        """Forget the batch `seq`, which the collector has committed."""
        with self._transaction():
            self._db.execute("delete from waiting where seq = ?", (seq,))

    def set_aside(self, seq: int, reason: str) -> None:
        """Keep the batch `seq`, which the collector will never take, out of the way but on disk."""
        with self._transaction():
            self._db.execute(
                "insert into aside select seq, ?, size, body from waiting where seq = ? order by id", (reason, seq)
            )
            self._db.execute("delete from waiting where seq = ?", (seq,))

    def depth(self) -> Depth:
        """What waits, sealed or not."""
        waiting, oldest_at = self._db.execute("select count(*), min(recorded_at) from waiting").fetchone()
        return Depth(
            waiting=waiting,
            oldest_at=oldest_at or 0,
            aside=self._value("select count(*) from aside"),
            recorded=self._value("select recorded from spool"),
        )

    def keep_plan(self, plan: Plan) -> None:
        """Remember the plan, for a start without a collector."""
        with self._transaction():
            self._db.execute("insert or replace into plan values (1, ?)", (codec.encode(plan).SerializeToString(),))

    def last_plan(self) -> Plan | None:
        """The plan remembered last, if any."""
        body = self._value("select body from plan")
        return codec.decode(Plan, plan_pb2.Plan.FromString(body)) if body else None

    def close(self) -> None:
        """Close the file; what is recorded stays."""
        self._db.close()

    def _prepare(self) -> None:
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.executescript(_SCHEMA)
        with self._transaction():
            if self._value("select count(*) from spool") == 0:
                self._db.execute("insert into spool (epoch, next_seq) values (?, 1)", (secrets.randbits(62) + 1,))

    def _seal(self) -> int | None:
        with self._transaction():
            rows = self._db.execute(
                "select id, size from waiting where seq is null order by id limit ?", (MAX_BATCH_SAMPLES,)
            ).fetchall()
            last_id = _last_that_fits(rows)
            if last_id is None:
                return None
            seq: int = self._value("select next_seq from spool")
            self._db.execute("update waiting set seq = ? where seq is null and id <= ?", (seq, last_id))
            self._db.execute("update spool set next_seq = ?", (seq + 1,))
            return seq

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._db)

    def _value(self, query: str) -> Any:  # noqa: ANN401  # a column's value
        row = self._db.execute(query).fetchone()
        return row[0] if row else None


class _Transaction:
    """`begin immediate` … `commit`, or `rollback` when the block raises."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("begin immediate")

    def __exit__(self, failed: type[BaseException] | None, *_rest: object) -> None:
        self._db.execute("rollback" if failed else "commit")


def _last_that_fits(rows: list[tuple[int, int]]) -> int | None:
    """The id of the last row that still fits into one batch; the first always does. Rows are (id, size in bytes)."""
    total, last_id = 0, None
    for row_id, size in rows:
        total += size
        if last_id is not None and total > MAX_BATCH_BYTES:
            break
        last_id = row_id
    return last_id
