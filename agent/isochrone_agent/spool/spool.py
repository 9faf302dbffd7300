"""The spool: samples on disk until the collector has stored them.

The laws:

1. A sample counts as recorded when its insert is committed and fsynced (WAL, synchronous=FULL).
2. Sealing assigns the next number to the oldest unsealed samples in one transaction. A sealed batch never changes, so
   that a retry carries the same samples under the same number.
3. A batch is deleted only when the collector has acknowledged it, when it was split into batches with new numbers, or
   when it is dropped to stay within the size limit, which is counted. No number is used twice.
4. Every opening draws a random epoch, so that neither another spool of the same vantage nor an older copy of the file,
   restored by hand or by a crash, reuses a number. Batches that were sealed before keep their epoch. A batch whose
   number the collector has stored with other samples gets a number of a new epoch.
5. A copy of an acknowledged batch is kept for a while, within a limit of size, because the collector's database may be
   restored from a backup. A batch that it no longer has is sealed again under its number (`redeliver`).
6. At every instant finished = stored + spooled + dropped by reason (`account`), because one transaction changes both
   sides.

On a full disk, the disk reserve is deleted, and then the oldest batch is dropped. If that cannot be written either, the
lost sample is counted in memory, and on disk with the next transaction that succeeds. A damaged file is salvaged
(`isochrone_agent.spool.recovery`) and the change is repeated in the new file; if that fails, the next call tries again.

Every method of `Spool` blocks; `AsyncSpool` calls them in a thread.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import structlog

from isochrone_agent.clock import OffsetEstimator, now_at, read_clocks
from isochrone_agent.errors import SpoolDamaged, SpoolError
from isochrone_agent.settings import REPLAY_BYTES, SPOOL_BYTES, Drain
from isochrone_agent.spool import batches, database, recovery
from isochrone_agent.spool.database import (
    PAGE_BYTES,
    DiskReserve,
    LockFile,
    SealedBatch,
    SpoolStats,
    read_stats,
    transaction,
)
from isochrone_wire import codec
from isochrone_wire.model import BatchRange, Plan, Quality, Sample, Spend
from isochrone_wire.v1 import plan_pb2

SPOOL_FULL = "spool_full"
DISK_FULL = "disk_full"
DISK_FAILED = "disk_failed"

# For the write-ahead log and the disk reserve, which count towards the limit.
_SIDE_FILES_BYTES = 5_000_000
_SPARE_PAGES = 256
_MAX_PAGES = 4_294_967_294
# By how much the file may grow on a full disk: less than half of the reserve; the rest is for the write-ahead log.
_DISK_FULL_PAGES = 200
_SHRINK_PAGES = 64

Result = TypeVar("Result")

log = structlog.get_logger()


class Spool:
    """A spool in one SQLite file of at most `limit_bytes`, which is created if missing and salvaged if damaged. Up to
    `keep_bytes` of it, but not more than a quarter, are copies of acknowledged batches.

    Raises `SpoolError` when it cannot be opened, or when another process has it open.
    """

    def __init__(
        self,
        path: Path,
        *,
        limit_bytes: int = SPOOL_BYTES,
        keep_bytes: int = REPLAY_BYTES,
        drain: Drain = Drain.NEWEST,
    ) -> None:
        self._path = path
        self._pages = max(limit_bytes - min(_SIDE_FILES_BYTES, limit_bytes // 4), 0) // PAGE_BYTES
        self._keep_bytes = min(keep_bytes, limit_bytes // 4)
        self._drain = drain
        self._newest_next = drain is Drain.NEWEST
        self._leased: set[int] = set()
        self._parked: set[int] = set()
        # The collector may have stored these.
        self._ever_leased: set[int] = set()
        self._uncounted: Counter[str] = Counter()
        # The newest epochs of this spool, newest first.
        self.epoch_history: tuple[int, ...] = ()
        self._disk_reserve = DiskReserve(path)
        self._disk_is_full = False
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = LockFile(path)
            try:
                try:
                    self._open()
                except sqlite3.OperationalError:
                    if not self._disk_reserve.is_needed:
                        raise
                    self._disk_reserve.release()
                    self._open()
                self._disk_reserve.allocate()
            except BaseException:
                self._lock.release()
                raise
        except (OSError, sqlite3.Error) as error:
            raise database.open_error(path, error) from error

    def record(self, sample: Sample, spends: Sequence[Spend] = ()) -> None:
        """Write `sample` and add `spends`; both then survive a crash. Raises `SpoolError`: lost and counted."""
        body = codec.encode(sample).SerializeToString()

        def change() -> None:
            batches.record(self._db, self.epoch, now_at(), body)
            database.add_spends(self._db, spends)
            while self._used_pages() > self._pages and self._drop_oldest(SPOOL_FULL):
                pass

        try:
            self._change(change)
        except (sqlite3.Error, OSError, SpoolDamaged) as error:
            self._uncounted[DISK_FULL if database.is_full(error) else DISK_FAILED] += 1
            raise SpoolError(
                f"the spool cannot be written: {error}", hint="check its disk: it may be full, read-only or unmounted"
            ) from error

    def lease(self, *, seal: bool = True) -> SealedBatch | None:
        """Lease a batch; `None` if there is none. Without `seal`, samples are sealed only if no other is left."""
        newest, self._newest_next = self._newest_next, self._drain is Drain.NEWEST and not self._newest_next
        if seal and self._drain is Drain.NEWEST:
            self._seal_waiting()
        batch = self._unleased(newest=newest)
        if batch is None and self._seal_waiting():
            batch = self._unleased(newest=newest)
        if batch is not None:
            self._leased.add(batch.id)
            self._ever_leased.add(batch.id)
        return batch

    def release(self, batch: SealedBatch) -> None:
        """Return a leased batch that was not delivered, so that it can be leased again."""
        self._leased.discard(batch.id)

    def acknowledge(self, batch: SealedBatch, *, rejected: Mapping[str, int] | None = None) -> None:
        """Delete a batch that the collector has committed. Samples that it `rejected`, by reason, count as dropped."""
        stored = batch.samples - sum((rejected or {}).values())

        def change() -> None:
            reasons = batches.bounded_reasons(self._db, rejected or {})
            if self._keep_bytes and not self._disk_is_full:
                batches.add_copy(self._db, batch, reasons, kept_at=now_at(), limit_bytes=self._keep_bytes)
            if batches.delete_batch(self._db, batch):
                earlier = 0 if batch.epoch == self.epoch else stored
                self._db.execute("update spool set stored = stored + ?, earlier = earlier + ?", (stored, earlier))
                batches.count_dropped(self._db, reasons)

        self._replace_batch(batch, change)
        # Return some free pages to the file system; only a few at a time, because samples wait meanwhile.
        if database.value(self._db, "pragma freelist_count") > _SPARE_PAGES:
            # Not with `execute`, which would stop after one page.
            self._db.executescript(f"pragma incremental_vacuum({_SHRINK_PAGES})")

    def split(self, batch: SealedBatch, reason: str) -> None:
        """Replace a refused batch by two halves with new numbers, or quarantine its one sample, if none is stored."""

        def change() -> None:
            if not batches.delete_batch(self._db, batch):
                return
            bodies = batch.bodies
            if len(bodies) == 1:
                row = (batch.id, batch.oldest_at, reason[:500], database.sample_checksum(bodies[0]), bodies[0])
                self._db.execute("insert or replace into quarantine values (?, ?, ?, ?, ?)", row)
                return
            half = len(bodies) // 2
            for offset, part in ((0, bodies[:half]), (half, bodies[half:])):
                self._insert_sealed(number=batch.id + offset, oldest_at=batch.oldest_at, bodies=part)

        self._replace_batch(batch, change)

    def park(self, batch: SealedBatch, targets: AbstractSet[int]) -> bool:
        """Seal the samples of `targets`, which the collector does not know, apart from the others, and lease them only
        after `unpark`; drop those that are too old. Return whether others remained. Allowed only as for `split`.
        """
        unknown, others = batches.split_by_target(batch.bodies, targets)
        number = batch.id + len(others)
        is_too_old = now_at() - batch.oldest_at > batches.MAX_PARKED_US

        def change() -> None:
            if not batches.delete_batch(self._db, batch):
                return
            if others:
                self._insert_sealed(number=batch.id, oldest_at=batch.oldest_at, bodies=others)
            if is_too_old:
                batches.count_dropped(self._db, {batches.UNKNOWN_TARGET: len(unknown)})
            elif unknown:
                self._insert_sealed(number=number, oldest_at=batch.oldest_at, bodies=unknown)

        self._replace_batch(batch, change)
        if unknown and not is_too_old:
            self._parked.add(number)
        return bool(others)

    def unpark(self) -> None:
        """Lease parked samples again: the collector may know their targets now."""
        self._parked.clear()

    def replay_ranges(self) -> tuple[BatchRange, ...]:
        """The numbers of the acknowledged batches of which there is a copy."""
        return self._change(lambda: batches.replay_ranges(self._db))

    def redeliver(self, ranges: Sequence[BatchRange]) -> int:
        """Seal the copied batches in these ranges again, under their numbers; return the number of batches."""
        return self._change(lambda: batches.restore_copies(self._db, ranges, epoch=self.epoch))

    def renumber(self, batch: SealedBatch) -> None:
        """Seal the samples of a batch in a new epoch: the collector has stored others under its number."""

        def change() -> None:
            if batches.delete_batch(self._db, batch):
                self._insert_sealed(number=batch.id, oldest_at=batch.oldest_at, bodies=batch.bodies)

        self.epoch, self._epoch_begun = database.new_epoch(), False
        self._replace_batch(batch, change)

    def retry_quarantine(self) -> int:
        """Seal each quarantined sample in a batch of one; return the number of samples."""

        def change() -> int:
            rows = self._db.execute("select id, recorded_at, checksum, body from quarantine order by id").fetchall()
            for number, recorded_at, checksum, body in rows:
                bodies = [database.read_sample(checksum, body)]
                self._insert_sealed(number=number, oldest_at=recorded_at, bodies=bodies)
            self._db.execute("delete from quarantine")
            return len(rows)

        return self._change(change)

    def stats(self) -> SpoolStats:
        """The numbers of samples in the spool, sealed or not, and the counters."""
        stats, lost = read_stats(self._db), self._uncounted
        # Lost samples that could not be counted on disk yet.
        return replace(stats, finished=stats.finished + lost.total(), dropped=dict(Counter(stats.dropped) + lost))

    def spend(self, day_at: int) -> tuple[Spend, ...]:
        """The cost so far of the day (UTC) that began at `day_at`, by provider."""
        return database.read_spend(self._db, day_at)

    def reserve(self, spends: Sequence[Spend]) -> None:
        """Charge costs before they arise; on return the charge survives a crash. `record` corrects it."""
        self._change(lambda: database.add_spends(self._db, spends))

    def save_plan(self, plan: Plan) -> None:
        """Store the plan, for a start without a collector."""
        body = codec.encode(plan).SerializeToString()
        self._change(lambda: self._db.execute("insert or replace into plan values (1, ?)", (body,)))

    def last_plan(self) -> Plan | None:
        """The plan stored last, if any."""
        body = database.value(self._db, "select body from plan")
        return codec.decode(Plan, plan_pb2.Plan.FromString(body)) if body else None

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        self._disconnect()
        self._lock.release()

    @property
    def _db(self) -> sqlite3.Connection:
        """The connection; opened again after a salvage that failed."""
        if self._connection is None:
            if self._closed:
                raise sqlite3.ProgrammingError("the spool is closed")
            self._open()
            assert self._connection is not None  # for mypy: `_open` sets it or raises
        return self._connection

    def _open(self) -> None:
        recovery.finish_salvage(self._path)
        try:
            recovery.check_log(self._path)
            self._connection = database.connect(self._path)
        except (sqlite3.DatabaseError, SpoolDamaged) as error:
            if not recovery.is_damage(error):
                raise
            recovery.salvage(self._path, str(error), make_room=self._disk_reserve.release)
            self._connection = database.connect(self._path)
        self.epoch = database.new_epoch()
        self._epoch_begun = self._disk_is_full = False
        try:
            self._attempt(lambda: None)
        except sqlite3.DatabaseError as error:
            # On a full disk, the epoch begins with the first transaction that succeeds.
            if not database.is_full(error):
                self._disconnect()
                raise

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _change(self, change: Callable[[], Result]) -> Result:
        """Make a change in a transaction. If the disk is full or the file damaged, handle that and try again."""
        try:
            return self._attempt(change)
        except (sqlite3.DatabaseError, SpoolDamaged) as error:
            if recovery.is_damage(error):
                self._salvage_and_reopen(error)
                return self._attempt(change)
            if not database.is_full(error):
                raise
            self._enter_disk_full_mode()

        def after_dropping() -> Result:
            self._drop_oldest(DISK_FULL)
            return change()

        try:
            return self._attempt(change)
        except sqlite3.DatabaseError as error:
            if not database.is_full(error):
                raise
            return self._attempt(after_dropping)

    def _enter_disk_full_mode(self) -> None:
        """Release the reserve and limit the file's growth, within which the log can always be checkpointed."""
        self._disk_reserve.release()
        try:
            self._db.execute("pragma wal_checkpoint(restart)").fetchall()
            if not self._disk_is_full:
                log.error("spool.disk_full", path=str(self._path))
                self._disk_is_full = True
                pages = database.value(self._db, "pragma page_count") + _DISK_FULL_PAGES
                self._db.execute(f"pragma max_page_count = {pages}").fetchall()
        except sqlite3.Error as error:
            log.warning("spool.checkpoint_failed", reason=str(error))

    def _attempt(self, change: Callable[[], Result]) -> Result:
        with transaction(self._db):
            if not self._epoch_begun:
                # All stored samples were stored under earlier epochs.
                self.epoch_history = database.write_epoch_history(self._db, self.epoch, self.epoch_history)
                self._db.execute("update spool set epoch = ?, next_seq = 1, earlier = stored", (self.epoch,))
            if self._uncounted:
                self._db.execute("update spool set finished = finished + ?", (self._uncounted.total(),))
                batches.count_dropped(self._db, self._uncounted)
            result = change()
        self._epoch_begun = True
        self._uncounted.clear()
        if self._disk_reserve.allocate() and self._disk_is_full:
            self._disk_is_full = False
            self._db.execute(f"pragma max_page_count = {_MAX_PAGES}").fetchall()
            log.info("spool.disk_has_room", path=str(self._path))
        return result

    def _salvage_and_reopen(self, error: Exception) -> None:
        log.error("spool.damaged", path=str(self._path), reason=str(error))
        self._disconnect()
        recovery.salvage(self._path, str(error), make_room=self._disk_reserve.release)
        self._open()

    def _seal_waiting(self) -> bool:
        if database.value(self._db, "select 1 from waiting limit 1") is None:
            return False
        self._change(lambda: batches.seal(self._db, self.epoch))
        return True

    def _insert_sealed(self, *, number: int, oldest_at: int, bodies: list[bytes]) -> None:
        batches.insert_batch(self._db, self.epoch, number=number, oldest_at=oldest_at, bodies=bodies)

    def _replace_batch(self, batch: SealedBatch, change: Callable[[], None]) -> None:
        """Make a change that ends the delivery of a batch under its number."""
        self._change(change)
        self._leased.discard(batch.id)
        self._ever_leased.discard(batch.id)

    def _unleased(self, *, newest: bool) -> SealedBatch | None:
        excluded = ",".join(map(str, self._leased | self._parked))
        query = f"select * from sealed where id not in ({excluded}) order by id {'desc' if newest else 'asc'} limit 1"  # noqa: S608  # our own numbers

        def read() -> SealedBatch | None:
            row = self._db.execute(query).fetchone()
            return database.read_sealed(row) if row else None

        try:
            return read()
        except (sqlite3.DatabaseError, SpoolDamaged) as error:
            if not recovery.is_damage(error):
                raise
            self._salvage_and_reopen(error)
            return read()

    def _used_pages(self) -> int:
        total: int = database.value(self._db, "pragma page_count")
        free: int = database.value(self._db, "pragma freelist_count")
        return total - free

    def _drop_oldest(self, reason: str) -> bool:
        return batches.evict_oldest(self._db, reason, leased=self._leased, ever_leased=self._ever_leased)


Params = ParamSpec("Params")


def _in_thread(
    function: Callable[Concatenate[Spool, Params], Result], *, wakes: bool = False
) -> "Callable[Concatenate[AsyncSpool, Params], Coroutine[Any, Any, Result]]":
    """Return the method of `AsyncSpool` that calls a method of `Spool` in its thread; `wakes` ends `wait_for_more`."""

    @wraps(function)
    async def call(spool: "AsyncSpool", /, *arguments: Params.args, **named: Params.kwargs) -> Result:
        # By name, so that a method that was replaced is called.
        method: Callable[Params, Result] = getattr(spool._spool, function.__name__)  # noqa: SLF001  # its methods
        result = await spool._call(method, *arguments, **named)  # noqa: SLF001  # as above
        if wakes:
            spool.wake()
        return result

    return call


class AsyncSpool:
    """A spool for asyncio; use `async with`. Its blocking calls run in one thread, in order, so that no fsync delays a
    probe. Every recorded sample gets the clock offset that `offset_estimator` estimates. Raises as `Spool`.
    """

    def __init__(self, path: Path, **options: Any) -> None:  # noqa: ANN401  # those of `Spool`
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool")
        try:
            self._spool = self._thread.submit(partial(Spool, path, **options)).result()
        except BaseException:
            self._thread.shutdown()
            raise
        self._more = asyncio.Event()
        self.offset_estimator = OffsetEstimator()

    reserve = _in_thread(Spool.reserve)
    spend = _in_thread(Spool.spend)
    lease = _in_thread(Spool.lease)
    acknowledge = _in_thread(Spool.acknowledge)
    replay_ranges = _in_thread(Spool.replay_ranges)
    stats = _in_thread(Spool.stats)
    save_plan = _in_thread(Spool.save_plan)
    last_plan = _in_thread(Spool.last_plan)
    split = _in_thread(Spool.split, wakes=True)
    park = _in_thread(Spool.park, wakes=True)
    unpark = _in_thread(Spool.unpark, wakes=True)
    redeliver = _in_thread(Spool.redeliver, wakes=True)
    renumber = _in_thread(Spool.renumber, wakes=True)

    @property
    def epoch(self) -> int:
        """The epoch under which samples are sealed now; every opening and every salvage begins a new one."""
        return self._spool.epoch

    @property
    def epoch_history(self) -> tuple[int, ...]:
        """The newest epochs of the spool, newest first."""
        return self._spool.epoch_history

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self._call(self._spool.close)
        self._thread.shutdown()

    async def record(self, sample: Sample, spends: Sequence[Spend] = ()) -> None:
        """As `Spool.record`, with the clock offset added to the sample; ends `wait_for_more`."""
        offset = self.offset_estimator.estimate(lead_us=read_clocks().lead_us)
        if offset is None:
            sample = replace(sample, quality=sample.quality | Quality.CLOCK_UNSYNCED)
        else:
            sample = replace(sample, clock_offset_us=offset.offset_us, clock_uncertainty_us=offset.uncertainty_us)
        await self._call(self._spool.record, sample, spends)
        self.wake()

    def release(self, batch: SealedBatch | None) -> None:
        """As `Spool.release`, without waiting for it; ends `wait_for_more`."""
        if batch is not None:
            self._thread.submit(self._spool.release, batch)
        self.wake()

    async def wait_for_more(self, seconds: float) -> bool:
        """Wait until there may be more to deliver than at the last call; `False` if `seconds` pass before that."""
        try:
            async with asyncio.timeout(seconds):
                await self._more.wait()
        except TimeoutError:
            return False
        self._more.clear()
        return True

    def wake(self) -> None:
        """End `wait_for_more`."""
        self._more.set()

    async def _call(self, function: Callable[Params, Result], *args: Params.args, **named: Params.kwargs) -> Result:
        call = partial(function, *args, **named)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except (sqlite3.Error, OSError) as error:
            hint = "check the disk: it may be full, read-only or unmounted"
            raise SpoolError(f"the spool failed: {error}", hint=hint) from error
