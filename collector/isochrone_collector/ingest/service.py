"""A push, from the batch to the receipt. The receipt leaves after the commit and never before."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from isochrone_collector.errors import BadRequest, Conflict, DatabaseUnavailable, PartitionMissing
from isochrone_collector.ingest.fair_queue import BATCH_THRESHOLD, FairQueue
from isochrone_collector.ingest.group_commit import BUSY_DELAY_US, GroupCommit
from isochrone_collector.ingest.packer import Packer
from isochrone_collector.ingest.packer_process import MAX_IN_FLIGHT
from isochrone_collector.ingest.packing import Criteria, pack
from isochrone_collector.ingest.validation import PushBatch, check_batch
from isochrone_collector.ingest.vitals import trimmed
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import batches, partitions, vantages
from isochrone_collector.store.batches import MAX_ROWS, PackedBatch
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.rows import LedgerRow
from isochrone_collector.store.vantages import VitalsReport
from isochrone_wire.answers import Window
from isochrone_wire.model import Receipt, Rejection, Vantage

_log = structlog.get_logger()

# A hundred megabytes of packed rows, and seconds of work for the database.
_MAX_WAITING_ROWS = 200_000
# Enough for what a commit costs to be little beside what its rows cost.
_WORTH_ROWS = 2_000
_ATTEMPTS = 3
# Pushes of an agent that keeps up. They go past the backlogs of others: not in line with them for a commit, not worth a
# way to another thread, and given way to.
_SMALL_SAMPLES = 100
_YIELD_US = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Push:
    """What one push leaves in the database: a sign of life, and unless it is a heartbeat a packed batch."""

    sign: VitalsReport
    packed: PackedBatch | None


class Ingest:
    """Takes pushes into the database: rounds of the `window` with the others, until `refresh_window` finds another one.

    Samples are kept for `keep_us` microseconds, or for good.
    """

    def __init__(
        self,
        *,
        database: Database,
        plans: Plans,
        window: Window,
        clock: Callable[[], int],
        keep_us: int | None = None,
        packer: Packer | None = None,
    ) -> None:
        self.window = window
        self.stored: Callable[[], None] = lambda: None
        """Called after each commit of new samples; must be quick."""
        self._keep_us = keep_us
        self._database = database
        self._plans = plans
        self._clock = clock
        self._regions: dict[str, str] = {}
        self._large: GroupCommit[_Push, LedgerRow | None] = GroupCommit(
            self._commit,
            group_rows=MAX_ROWS,
            waiting_rows=_MAX_WAITING_ROWS,
            worth_rows=_WORTH_ROWS,
            batch_threshold=BATCH_THRESHOLD,
        )
        self._small: GroupCommit[_Push, LedgerRow | None] = GroupCommit(
            self._commit, group_rows=MAX_ROWS, waiting_rows=_MAX_WAITING_ROWS
        )
        self._fair_queue = FairQueue()
        self._packer_slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._packer = packer or Packer()

    async def push(self, batch: PushBatch) -> Receipt:
        """Store a batch once, however often it comes.

        Raises `BadRequest`, `Conflict`, `TooMany` and `DatabaseUnavailable`.
        """
        check_batch(batch)
        await self._register(batch.vantage, batch.received_at)
        receipt = await (self._heartbeat if batch.is_heartbeat else self._store_batch)(batch)
        _log.info(
            "batch.ingested",
            vantage=batch.vantage.name,
            seq=batch.seq,
            stored=receipt.stored,
            duplicate=receipt.duplicate,
            rejected=receipt.rejected,
            reasons=sorted({rejection.reason.partition(":")[0] for rejection in receipt.rejections}),
            took_us=receipt.server_at - batch.received_at,
        )
        return receipt

    async def refresh_window(self) -> None:
        """Take the rounds that have a partition now. Raises `DatabaseUnavailable`."""
        window = await partitions.covered(self._database, now_at=self._clock(), keep_us=self._keep_us)
        if window.from_at == window.until_at != self.window.until_at:
            _log.error(
                "partition.missing", hint="new samples are set aside in sample_late until there is one for today"
            )
        self.window = window

    async def _register(self, vantage: Vantage, seen_at: int) -> None:
        if vantage.name not in self._regions:
            async with self._database.connection() as connection:
                self._regions[vantage.name] = (await vantages.register(connection, vantage, seen_at=seen_at)).region
        known = self._regions[vantage.name]
        if known != vantage.region:
            raise Conflict(
                f"vantage {vantage.name!r} is in region {known!r} and now says {vantage.region!r}; "
                "a vantage keeps its region, so give the agent another name"
            )

    async def _heartbeat(self, batch: PushBatch) -> Receipt:
        if self._small.is_full:
            # It may be late with the next one; how the agent is matters less than samples that wait.
            return self._receipt(batch, delay_us=BUSY_DELAY_US)
        await self._small.submit(_Push(sign=_sign(batch), packed=None), rows=0)
        return self._receipt(batch)

    async def _store_batch(self, batch: PushBatch) -> Receipt:
        if batch.sample_count <= _SMALL_SAMPLES:
            self._fair_queue.note_small()
            return await self._store(batch, self._small)
        async with self._fair_queue.large():
            return await self._store(batch, self._large)

    async def _store(self, batch: PushBatch, groups: GroupCommit[_Push, LedgerRow | None]) -> Receipt:
        with groups.announce(batch.sample_count):
            packed = await self._pack(batch, final=False)
            if packed is None:
                # Another collector may have applied the plan that names them.
                await self._plans.refresh_since_asked()
                packed = await self._pack(batch, final=True)
        assert packed is not None
        earlier = await groups.submit(_Push(sign=_sign(batch), packed=packed), rows=packed.stored)
        if earlier is not None:
            return self._repeated(batch, earlier)
        return self._receipt(batch, stored=packed.stored, rejections=_rejections(packed.rejections))

    async def _pack(self, batch: PushBatch, *, final: bool) -> PackedBatch | None:
        """The packed batch, or `None` when it names targets that nobody here has heard of, unless that is `final`."""
        criteria = Criteria(targets=self._plans.known_targets, window=self.window, final=final)
        if batch.sample_count <= _SMALL_SAMPLES:
            return pack(batch, criteria)
        async with self._packer_slots:
            await self._small.wait_idle(timeout_us=_YIELD_US)
            return await self._packer.pack(batch, criteria)

    async def _commit(self, pushes: Sequence[_Push]) -> list[LedgerRow | None]:
        """Store a group of pushes in one transaction; again when it failed for a reason that may be gone already."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._commit_once(pushes)
            except PartitionMissing as error:
                # The agents bring these batches again, and what has no place then is set aside.
                _log.warning("partition.missing", reason=str(error))
                await self.refresh_window()
                raise
            except DatabaseUnavailable as error:
                if not error.at_once:
                    raise
                _log.warning("group.again", pushes=len(pushes), reason=str(error))
        return await self._commit_once(pushes)

    async def _commit_once(self, pushes: Sequence[_Push]) -> list[LedgerRow | None]:
        async with self._database.transaction() as connection:
            earlier = iter(await batches.store(connection, [push.packed for push in pushes if push.packed]))
            found = [next(earlier) if push.packed else None for push in pushes]
            await vantages.record_vitals(connection, map(_as_seen, pushes, found))
        if any(push.packed for push in pushes):
            self.stored()
        return found

    def _repeated(self, batch: PushBatch, earlier: LedgerRow) -> Receipt:
        """What the ledger says of this packed, whatever we would say of it today."""
        if earlier.samples != batch.sample_count:
            raise BadRequest(
                f"packed {batch.seq} of this epoch was stored with {earlier.samples} samples and now has "
                f"{batch.sample_count}; a sealed packed never changes"
            )
        return self._receipt(batch, duplicate=earlier.stored, rejections=_rejections(earlier.rejections or ()))

    def _receipt(
        self,
        batch: PushBatch,
        *,
        stored: int = 0,
        duplicate: int = 0,
        rejections: tuple[Rejection, ...] = (),
        delay_us: int | None = None,
    ) -> Receipt:
        return Receipt(
            stored=stored,
            duplicate=duplicate,
            rejected=len(rejections),
            rejections=rejections,
            plan_version=self._plans.version,
            server_at=self._clock(),
            delay_us=delay_us,
            received_at=batch.received_at,
        )


def _sign(batch: PushBatch) -> VitalsReport:
    return VitalsReport(
        vantage_id=batch.vantage.id,
        batch_epoch=batch.epoch,
        seen_at=batch.received_at,
        vitals=trimmed(batch.vitals),
    )


def _as_seen(push: _Push, earlier: LedgerRow | None) -> VitalsReport:
    return replace(push.sign, stored=push.packed.stored if push.packed is not None and earlier is None else 0)


def _rejections(recorded: Iterable[tuple[int, str]]) -> tuple[Rejection, ...]:
    return tuple(Rejection(index=index, reason=reason) for index, reason in recorded)
