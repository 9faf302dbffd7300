"""The spool: samples on disk until the collector has them.

The laws:

1. A sample counts as recorded when its insert is committed and fsynced (WAL, synchronous=FULL).
2. Sealing gives the next number to the oldest unsealed samples in one transaction. A sealed batch never changes, so
   that a retry carries the same samples under the same number.
3. A batch is forgotten only when the collector has acknowledged it, when it was split into batches under new numbers,
   or when the size limit takes it, counted. A number that was given up is never used again.
4. The epoch is random and made at every opening: neither another spool of the same vantage, nor a file that was put
   back to what it held before, by hand or by a crash, reuses a number. What was sealed before keeps its epoch.
5. At every instant finished = stored + spooled + dropped by reason (`account`), because every change of one of them
   is a transaction that changes the other.

Where the disk is full, a reserve is given up, and then the oldest batch; where even that cannot be written, what is
lost is counted in memory and written with whatever can be written next. Where the file is damaged, it is salvaged
(`isochrone_agent.spool.recovery`) and the change is made in the new one; where that fails, the next call tries again.

Every method blocks; the keeper calls them in one thread of their own, in order.
"""

import errno
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import structlog

from isochrone_agent.errors import SpoolDamaged, SpoolError
from isochrone_agent.spool import database, eviction, recovery, spending
from isochrone_agent.spool.database import MAX_BATCH_BYTES, MAX_BATCH_SAMPLES, PAGE_BYTES, SealedBatch, Transaction
from isochrone_agent.spool.disk_reserve import DiskReserve
from isochrone_agent.spool.lock_file import LockFile
from isochrone_agent.spool.stats import SpoolStats, read_stats, with_unwritten
from isochrone_wire import codec
from isochrone_wire.accounting import Account
from isochrone_wire.model import Plan, Sample, Spend
from isochrone_wire.v1 import plan_pb2

DEFAULT_LIMIT_BYTES = 100_000_000
FULL = "spool_full"
DISK_FULL = "disk_full"
DISK_FAILED = "disk_failed"

# The write-ahead log and the reserve lie beside the file, and count.
_BESIDE_BYTES = 5_000_000
_SPARE_PAGES = 256
_MOST_PAGES = 4_294_967_294
# Less than half of the reserve; the rest is for the log.
_TIGHT_PAGES = 200
_SHRINK_PAGES = 64

Result = TypeVar("Result")

log = structlog.get_logger()


class Drain(StrEnum):
    """What leaves first after an outage: the newest, with the backlog in every other batch, or the oldest."""

    NEWEST = "newest"
    OLDEST = "oldest"


class Spool:
    """Samples waiting in one SQLite file of at most `limit_bytes`, which is made when missing, and salvaged when
    damaged. Raises `SpoolError` when it cannot be opened, or is open elsewhere.
    """

    def __init__(self, path: Path, *, limit_bytes: int = DEFAULT_LIMIT_BYTES, drain: Drain = Drain.NEWEST) -> None:
        self._path = path
        self._pages = max(limit_bytes - min(_BESIDE_BYTES, limit_bytes // 4), 0) // PAGE_BYTES
        self._drain = drain
        self._newest_next = drain is Drain.NEWEST
        self._leased: set[int] = set()
        # Leased at some time, so that the collector may have them.
        self._tried: set[int] = set()
        self._unwritten: Counter[str] = Counter()
        self._reserve = DiskReserve(path)
        self._tight = False
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._padlock = LockFile(path)
            try:
                self._open_anyhow()
                self._reserve.keep()
            except BaseException:
                self._padlock.release()
                raise
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from error

    def __repr__(self) -> str:
        return f"<Spool {self._path} epoch={self.epoch}>"

    def record(self, sample: Sample, spends: Sequence[Spend] = ()) -> None:
        """Keep `sample`, and count the `spends` that come of it; on return all of it survives a crash.

        Raises `SpoolError` when it could not be written. The sample is lost then, and counted.
        """
        body = codec.encode(sample).SerializeToString()
        recorded_at = time.time_ns() // 1000

        def change() -> None:
            self._insert(recorded_at, body)
            for spend in spends:
                spending.add(self._db, spend)
            self._keep_within_limit()

        try:
            self._change(change)
        except (sqlite3.Error, OSError, SpoolDamaged) as error:
            self._unwritten[DISK_FULL if _is_full(error) else DISK_FAILED] += 1
            raise SpoolError(
                f"the spool cannot be written: {error}", hint="free some space on its disk, or look whether it is gone"
            ) from error

    def lease(self, *, seal: bool = True) -> SealedBatch | None:
        """A sealed batch that nobody has leased, or `None`. With `seal` what waits may be sealed for it; without, only
        when nothing else is there.
        """
        newest, self._newest_next = self._newest_next, self._drain is Drain.NEWEST and not self._newest_next
        if seal and newest:
            self._seal_waiting()
        batch = self._unleased(newest=newest)
        if batch is None and self._seal_waiting():
            batch = self._unleased(newest=newest)
        if batch is not None:
            self._leased.add(batch.id)
            self._tried.add(batch.id)
        return batch

    def release(self, batch: SealedBatch) -> None:
        """Let a leased batch be leased again: it was not delivered."""
        self._leased.discard(batch.id)

    def acknowledge(self, batch: SealedBatch, *, rejected: Mapping[str, int] | None = None) -> None:
        """Forget a batch that the collector has committed, but for the samples it `rejected`, by reason: those count as
        dropped.
        """
        reasons = dict(rejected or {})
        stored = batch.samples - sum(reasons.values())

        def change() -> None:
            if self._forget(batch):
                earlier = 0 if batch.epoch == self.epoch else stored
                self._db.execute("update spool set stored = stored + ?, earlier = earlier + ?", (stored, earlier))
                eviction.count_dropped(self._db, reasons)

        self._change(change)
        self._leased.discard(batch.id)
        self._tried.discard(batch.id)
        self._shrink()

    def split(self, batch: SealedBatch, reason: str) -> None:
        """Two batches under new numbers in the place of one that the collector would not take; a single sample goes
        into quarantine. Only right when the collector has stored nothing of it.
        """

        def change() -> None:
            if not self._forget(batch):
                return
            bodies = batch.bodies
            if len(bodies) == 1:
                row = (batch.id, batch.oldest_at, reason[:500], database.sample_checksum(bodies[0]), bodies[0])
                self._db.execute("insert or replace into quarantine values (?, ?, ?, ?, ?)", row)
                return
            half = len(bodies) // 2
            for offset, part in ((0, bodies[:half]), (half, bodies[half:])):
                self._insert_sealed(number=batch.id + offset, oldest_at=batch.oldest_at, bodies=part)

        self._change(change)
        self._leased.discard(batch.id)
        self._tried.discard(batch.id)

    def retry_quarantine(self) -> int:
        """Put what lies in quarantine back, each sample sealed by itself; how many there were."""

        def change() -> int:
            rows = self._db.execute("select id, recorded_at, checksum, body from quarantine order by id").fetchall()
            for number, recorded_at, checksum, body in rows:
                bodies = [database.read_sample(checksum, body)]
                self._insert_sealed(number=number, oldest_at=recorded_at, bodies=bodies)
            self._db.execute("delete from quarantine")
            return len(rows)

        return self._change(change)

    def stats(self) -> SpoolStats:
        """What lies here, sealed or not, and the counters."""
        return with_unwritten(read_stats(self._db), self._unwritten)

    def account(self) -> Account:
        """Where every sample is that was ever given to this spool. Holds at every instant."""
        return self.stats().account

    def spend(self, day_at: int) -> tuple[Spend, ...]:
        """What the day (UTC) that began at `day_at` has cost so far, by provider."""
        return spending.read(self._db, day_at)

    def reserve(self, spend: Spend) -> None:
        """Count what is about to be spent; on return that survives a crash. `record` takes it back."""
        self._change(lambda: spending.add(self._db, spend))

    def keep_plan(self, plan: Plan) -> None:
        """Remember the plan, for a start without a collector."""
        body = codec.encode(plan).SerializeToString()
        self._change(lambda: self._db.execute("insert or replace into plan values (1, ?)", (body,)))

    def last_plan(self) -> Plan | None:
        """The plan remembered last, if any."""
        body = database.value(self._db, "select body from plan")
        return codec.decode(Plan, plan_pb2.Plan.FromString(body)) if body else None

    def close(self) -> None:
        """Close the file; what is recorded stays."""
        self._closed = True
        self._shut()
        self._padlock.release()

    def _open_anyhow(self) -> None:
        try:
            self._open()
        except sqlite3.OperationalError:
            if not self._reserve.is_needed:
                raise
            self._reserve.give()
            self._open()

    @property
    def _db(self) -> sqlite3.Connection:
        """The open file; opened again after a salvage that failed."""
        if self._connection is None:
            if self._closed:
                raise sqlite3.ProgrammingError("the spool is closed")
            self._open()
            assert self._connection is not None  # for mypy: `_open` sets it or raises
        return self._connection

    def _open(self) -> None:
        recovery.finish(self._path)
        try:
            recovery.check_log(self._path)
            self._connection = database.connect(self._path)
        except (sqlite3.DatabaseError, SpoolDamaged) as error:
            if not recovery.is_damage(error):
                raise
            recovery.salvage(self._path, str(error), make_room=self._reserve.give)
            self._connection = database.connect(self._path)
        self.epoch = secrets.randbits(62) + 1
        self._epoch_begun = self._tight = False
        try:
            self._attempt(lambda: None)
        except sqlite3.DatabaseError as error:
            # The epoch begins with the first transaction that finds room.
            if not _is_full(error):
                self._shut()
                raise

    def _shut(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _change(self, change: Callable[[], Result]) -> Result:
        """Make a change in a transaction, and again after a full disk or a damaged file has been seen to."""
        try:
            return self._attempt(change)
        except (sqlite3.DatabaseError, SpoolDamaged) as error:
            if recovery.is_damage(error):
                self._renew(error)
                return self._attempt(change)
            if not _is_full(error):
                raise
            self._tighten()

        def at_a_price() -> Result:
            self._drop_oldest(DISK_FULL)
            return change()

        try:
            return self._attempt(change)
        except sqlite3.DatabaseError as error:
            if not _is_full(error):
                raise
            return self._attempt(at_a_price)

    def _tighten(self) -> None:
        """Make do with the pages there are and the place of the reserve: as long as the file does not outgrow them, the
        log can be written into it and begun anew, and everything can be changed on a full disk.
        """
        self._reserve.give()
        try:
            self._db.execute("pragma wal_checkpoint(restart)").fetchall()
            if not self._tight:
                log.error("spool.disk_full", path=str(self._path))
                self._tight = True
                pages = database.value(self._db, "pragma page_count") + _TIGHT_PAGES
                self._db.execute(f"pragma max_page_count = {pages}").fetchall()
        except sqlite3.Error as error:
            log.warning("spool.checkpoint_failed", reason=str(error))

    def _relax(self) -> None:
        if self._reserve.keep() and self._tight:
            self._tight = False
            self._db.execute(f"pragma max_page_count = {_MOST_PAGES}").fetchall()
            log.info("spool.disk_has_room", path=str(self._path))

    def _attempt(self, change: Callable[[], Result]) -> Result:
        with Transaction(self._db):
            self._begin_epoch()
            self._book_unwritten()
            result = change()
        self._epoch_begun = True
        self._unwritten.clear()
        self._relax()
        return result

    def _renew(self, error: Exception) -> None:
        log.error("spool.damaged", path=str(self._path), reason=str(error))
        self._shut()
        recovery.salvage(self._path, str(error), make_room=self._reserve.give)
        self._open()

    def _begin_epoch(self) -> None:
        if not self._epoch_begun:
            # Whatever was stored was stored under epochs that are over now.
            self._db.execute("update spool set epoch = ?, next_seq = 1, earlier = stored", (self.epoch,))

    def _book_unwritten(self) -> None:
        if self._unwritten:
            self._db.execute("update spool set finished = finished + ?", (self._unwritten.total(),))
            eviction.count_dropped(self._db, self._unwritten)

    def _insert(self, recorded_at: int, body: bytes) -> None:
        self._db.execute("update spool set finished = finished + 1, last_id = last_id + 1")
        self._db.execute(
            "insert into waiting select last_id, ?, ?, ? from spool",
            (recorded_at, database.sample_checksum(body), body),
        )
        waiting, size = self._db.execute("select count(*), sum(length(body)) from waiting").fetchone()
        if waiting >= MAX_BATCH_SAMPLES or size >= MAX_BATCH_BYTES:
            self._seal()

    def _seal_waiting(self) -> bool:
        """Whether anything waited, and is sealed now."""
        if database.value(self._db, "select 1 from waiting limit 1") is None:
            return False
        self._change(self._seal)
        return True

    def _seal(self) -> None:
        rows = self._db.execute("select id, recorded_at, checksum, body from waiting order by id").fetchall()
        if not rows:
            return
        bodies = [database.read_sample(checksum, body) for _, _, checksum, body in rows]
        fitting = _how_many_fit(bodies)
        first_id, oldest_at = rows[0][:2]
        last_id = rows[fitting - 1][0]
        # In this order, because the pages of the ones become the pages of the others.
        self._db.execute("delete from waiting where id <= ?", (last_id,))
        self._insert_sealed(number=first_id, oldest_at=oldest_at, bodies=bodies[:fitting])
        self._db.execute("update spool set sealed_to = ?", (last_id,))

    def _insert_sealed(self, *, number: int, oldest_at: int, bodies: list[bytes]) -> None:
        batch = SealedBatch(
            id=number,
            epoch=self.epoch,
            seq=database.value(self._db, "select next_seq from spool"),
            samples=len(bodies),
            oldest_at=oldest_at,
            content=database.join_content(bodies),
        )
        database.insert_sealed(self._db, batch)
        self._db.execute("update spool set next_seq = next_seq + 1")

    def _unleased(self, *, newest: bool) -> SealedBatch | None:
        leased = ",".join(map(str, self._leased))
        query = f"select * from sealed where id not in ({leased}) order by id {'desc' if newest else 'asc'} limit 1"  # noqa: S608  # our own numbers
        try:
            row = self._db.execute(query).fetchone()
            return database.read_sealed(row) if row else None
        except (sqlite3.DatabaseError, SpoolDamaged) as error:
            if not recovery.is_damage(error):
                raise
            self._renew(error)
            row = self._db.execute(query).fetchone()
            return database.read_sealed(row) if row else None

    def _forget(self, batch: SealedBatch) -> bool:
        """Whether it was still there."""
        key = (batch.id, batch.epoch, batch.seq)
        return self._db.execute("delete from sealed where id = ? and epoch = ? and seq = ?", key).rowcount == 1

    def _keep_within_limit(self) -> None:
        while self._used_pages() > self._pages and self._drop_oldest(FULL):
            pass

    def _used_pages(self) -> int:
        total: int = database.value(self._db, "pragma page_count")
        free: int = database.value(self._db, "pragma freelist_count")
        return total - free

    def _drop_oldest(self, reason: str) -> bool:
        return eviction.drop_oldest(self._db, reason, leased=self._leased, tried=self._tried)

    def _shrink(self) -> None:
        """Give pages back to the file system, a few at a time, so that no probe's sample waits for it."""
        if database.value(self._db, "pragma freelist_count") > _SPARE_PAGES:
            # As a script, because `execute` would stop after one page.
            self._db.executescript(f"pragma incremental_vacuum({_SHRINK_PAGES})")


def _is_full(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC


def _how_many_fit(bodies: list[bytes]) -> int:
    """How many fit into one batch; the first always does."""
    total = 0
    for count, body in enumerate(bodies[:MAX_BATCH_SAMPLES]):
        total += len(body)
        if count and total > MAX_BATCH_BYTES:
            return count
    return min(len(bodies), MAX_BATCH_SAMPLES)


def _unusable(path: Path, error: OSError | sqlite3.Error) -> SpoolError:
    """The error of a spool that cannot be opened, as a sentence and what to do."""
    hint = "check that the folder is on a local disk, writable, with space left; see --data-dir"
    if _is_full(error):
        return SpoolError(f"the spool {path} cannot be opened: its disk is full", hint="free some space on that disk")
    return SpoolError(f"the spool {path} cannot be opened: {error}", hint=hint)
