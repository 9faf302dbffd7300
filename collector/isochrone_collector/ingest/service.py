"""A push, from the parcel to the receipt. The receipt leaves after the commit and never before."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from isochrone_collector.errors import BadRequest, Conflict, DatabaseUnavailable, PartitionMissing
from isochrone_collector.ingest.fair_queue import FairQueue
from isochrone_collector.ingest.group_commit import BUSY_DELAY_US, GroupCommit
from isochrone_collector.ingest.packer import AT_ONCE, Packer
from isochrone_collector.ingest.packing import Criteria, seal
from isochrone_collector.ingest.validation import PushBatch, check_parcel
from isochrone_collector.ingest.vitals import trimmed
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import batches, partitions, vantages
from isochrone_collector.store.batches import MAX_ROWS, PackedBatch
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.rows import LedgerRow
from isochrone_collector.store.vantages import Sign
from isochrone_wire.answers import Window
from isochrone_wire.model import Receipt, Rejection, Vantage

_log = structlog.get_logger()

# A hundred megabytes of packed rows, and seconds of work for the database.
_MAX_WAITING_ROWS = 200_000
# Enough for what a commit costs to be little beside what its rows cost.
_WORTH_ROWS = 2_000
# Fewer than these are no sign that more comes in than can be made ready, and a receipt should not wait for them.
_CROWD = 4
_ATTEMPTS = 3
# Pushes of an agent that keeps up. They go past the backlogs of others: not in line with them for a commit, not worth a
# way to another thread, and given way to.
_SMALL_SAMPLES = 100
_GIVING_WAY_US = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Push:
    """What one push leaves in the database: a sign of life, and unless it is a heartbeat a batch."""

    sign: Sign
    batch: PackedBatch | None


class Ingest:
    """Takes pushes into the database: rounds of the `window` with the others, until `look_again` finds another one.

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
        sealer: Packer | None = None,
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
            crowd=_CROWD,
        )
        self._small: GroupCommit[_Push, LedgerRow | None] = GroupCommit(
            self._commit, group_rows=MAX_ROWS, waiting_rows=_MAX_WAITING_ROWS
        )
        self._courtesy = FairQueue()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._sealer = sealer or Packer()

    async def push(self, parcel: PushBatch) -> Receipt:
        """Store a parcel once, however often it comes.

        Raises `BadRequest`, `Conflict`, `TooMany` and `DatabaseUnavailable`.
        """
        check_parcel(parcel)
        await self._recognise(parcel.vantage, parcel.received_at)
        receipt = await (self._heartbeat if parcel.is_heartbeat else self._batch)(parcel)
        _log.info(
            "batch.ingested",
            vantage=parcel.vantage.name,
            seq=parcel.seq,
            stored=receipt.stored,
            duplicate=receipt.duplicate,
            rejected=receipt.rejected,
            reasons=sorted({rejection.reason.partition(":")[0] for rejection in receipt.rejections}),
            took_us=receipt.server_at - parcel.received_at,
        )
        return receipt

    async def look_again(self) -> None:
        """Take the rounds that have a partition now. Raises `DatabaseUnavailable`."""
        window = await partitions.covered(self._database, now_at=self._clock(), keep_us=self._keep_us)
        if window.from_at == window.until_at != self.window.until_at:
            _log.error(
                "partition.missing", hint="new samples are set aside in sample_late until there is one for today"
            )
        self.window = window

    async def _recognise(self, vantage: Vantage, seen_at: int) -> None:
        if vantage.name not in self._regions:
            async with self._database.connection() as connection:
                self._regions[vantage.name] = (await vantages.register(connection, vantage, seen_at=seen_at)).region
        known = self._regions[vantage.name]
        if known != vantage.region:
            raise Conflict(
                f"vantage {vantage.name!r} is in region {known!r} and now says {vantage.region!r}; "
                "a vantage keeps its region, so give the agent another name"
            )

    async def _heartbeat(self, parcel: PushBatch) -> Receipt:
        if self._small.is_full:
            # It may be late with the next one; how the agent is matters less than samples that wait.
            return self._receipt(parcel, delay_us=BUSY_DELAY_US)
        await self._small.submit(_Push(sign=_sign(parcel), batch=None), rows=0)
        return self._receipt(parcel)

    async def _batch(self, parcel: PushBatch) -> Receipt:
        if parcel.samples <= _SMALL_SAMPLES:
            self._courtesy.small_came()
            return await self._stored(parcel, self._small)
        async with self._courtesy.large():
            return await self._stored(parcel, self._large)

    async def _stored(self, parcel: PushBatch, groups: GroupCommit[_Push, LedgerRow | None]) -> Receipt:
        with groups.coming(parcel.samples):
            batch = await self._seal(parcel, final=False)
            if batch is None:
                # Another collector may have applied the plan that names them.
                await self._plans.refresh_since_asked()
                batch = await self._seal(parcel, final=True)
        assert batch is not None
        earlier = await groups.submit(_Push(sign=_sign(parcel), batch=batch), rows=batch.stored)
        if earlier is not None:
            return self._repeated(parcel, earlier)
        return self._receipt(parcel, stored=batch.stored, rejections=_rejections(batch.rejections))

    async def _seal(self, parcel: PushBatch, *, final: bool) -> PackedBatch | None:
        """The sealed batch, or `None` when it names targets that nobody here has heard of, unless that is `final`."""
        criteria = Criteria(targets=self._plans.known_targets, window=self.window, final=final)
        if parcel.samples <= _SMALL_SAMPLES:
            return seal(parcel, criteria)
        async with self._turns:
            await self._small.idle(at_most_us=_GIVING_WAY_US)
            return await self._sealer.seal(parcel, criteria)

    async def _commit(self, pushes: Sequence[_Push]) -> list[LedgerRow | None]:
        """Store a group of pushes in one transaction; again when it failed for a reason that may be gone already."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._commit_once(pushes)
            except PartitionMissing as error:
                # The agents bring these batches again, and what has no place then is set aside.
                _log.warning("partition.missing", reason=str(error))
                await self.look_again()
                raise
            except DatabaseUnavailable as error:
                if not error.at_once:
                    raise
                _log.warning("group.again", pushes=len(pushes), reason=str(error))
        return await self._commit_once(pushes)

    async def _commit_once(self, pushes: Sequence[_Push]) -> list[LedgerRow | None]:
        async with self._database.transaction() as connection:
            earlier = iter(await batches.store(connection, [push.batch for push in pushes if push.batch]))
            found = [next(earlier) if push.batch else None for push in pushes]
            await vantages.note_vitals(connection, map(_as_seen, pushes, found))
        if any(push.batch for push in pushes):
            self.stored()
        return found

    def _repeated(self, parcel: PushBatch, earlier: LedgerRow) -> Receipt:
        """What the ledger says of this batch, whatever we would say of it today."""
        if earlier.samples != parcel.samples:
            raise BadRequest(
                f"batch {parcel.seq} of this epoch was stored with {earlier.samples} samples and now has "
                f"{parcel.samples}; a sealed batch never changes"
            )
        return self._receipt(parcel, duplicate=earlier.stored, rejections=_rejections(earlier.rejections or ()))

    def _receipt(
        self,
        parcel: PushBatch,
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
            received_at=parcel.received_at,
        )


def _sign(parcel: PushBatch) -> Sign:
    return Sign(
        vantage_id=parcel.vantage.id,
        batch_epoch=parcel.epoch,
        seen_at=parcel.received_at,
        vitals=trimmed(parcel.vitals),
    )


def _as_seen(push: _Push, earlier: LedgerRow | None) -> Sign:
    return replace(push.sign, stored=push.batch.stored if push.batch is not None and earlier is None else 0)


def _rejections(recorded: Iterable[tuple[int, str]]) -> tuple[Rejection, ...]:
    return tuple(Rejection(index=index, reason=reason) for index, reason in recorded)
