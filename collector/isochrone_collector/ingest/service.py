"""Ingest of pushes: from the bytes of a request to its receipt.

The hops of a push, in order:

1. Decode (`raw_push`): everything but the samples.
2. Validate (`validation`): the batch as a whole, and that the vantage keeps its region.
3. Encode (`row_encoding`): decode the samples into columns, validate each, and encode the rows for COPY. Large ones are
   encoded in a process beside (`row_encoder`), and take turns with small ones (`group_commit.AdmissionQueue`).
4. Commit (`group_commit`): rows, ledger entries and heartbeats of all pushes that wait, in one transaction.

The receipt is sent after the commit, never before.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from isochrone_collector import errors
from isochrone_collector.analysis.probe_totals import ProbeTotals
from isochrone_collector.clock import AGREE_US
from isochrone_collector.disk_space import DiskLevel
from isochrone_collector.ingest.group_commit import BATCH_THRESHOLD, BUSY_DELAY_US, AdmissionQueue, GroupCommit
from isochrone_collector.ingest.raw_push import RawPush
from isochrone_collector.ingest.row_encoder import MAX_IN_FLIGHT, RowEncoder
from isochrone_collector.ingest.row_encoding import ValidationContext, encode
from isochrone_collector.ingest.validation import MIN_INSTANT_AT, PushBatch, check_batch, check_clock, trimmed
from isochrone_collector.ingest.vantage_owner import VantageOwners, find_lost_batches
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import batches, partitions, vantages
from isochrone_collector.store.batches import MAX_ROWS, EncodedBatch, LedgerRow, RecentBatches
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.vantages import HeartbeatReport
from isochrone_wire.answers import Window
from isochrone_wire.durations import MAX_INSTANT_AT
from isochrone_wire.model import MINUTE_US, BatchRange, Rejection, Vantage
from isochrone_wire.operations import Receipt

_log = structlog.get_logger()

# A hundred megabytes of encoded rows, and seconds of work for the database.
_MAX_WAITING_ROWS = 200_000
# The fixed cost of a commit is small beside the cost of this many rows.
_WORTH_ROWS = 2_000
# At half of the full load one commit after another takes three quarters of the time, so that many pushes would wait.
_LARGE_AT_ONCE = 2
_ATTEMPTS = 3
# The pushes of an agent without a backlog are small. They have a group commit of their own and are encoded in the event
# loop, and large pushes yield to them.
_SMALL_SAMPLES = 100
_YIELD_US = 10_000
# A batch whose newest round is older is a backlog.
_BACKLOG_US = 10 * MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The database work of one push: its heartbeat, and its encoded batch if it has samples."""

    heartbeat: HeartbeatReport
    encoded: EncodedBatch | None


_Commits = GroupCommit[_Work, LedgerRow | None]


@dataclass(eq=False, kw_only=True)
class Ingest:
    """Stores pushes in the database.

    Rounds in the `window` have a partition; `refresh_window` updates it. Those ahead of the collector's clock are set
    aside. Samples are kept for `keep_us` microseconds,
    without limit if `None`. The clock is the same for all collectors on the database: agents of one vantage take turns
    by it. `hear_vantage` gets the id and the wall clock of the vantage of each push.
    `disk_level` is the room on the disk of the database; `on_stored` is called after each commit of new samples with
    the number of those that wait for the next one, and must be quick. `recent` gets the probes that were committed.
    """

    database: Database
    plans: Plans
    window: Window
    clock: Callable[[], int]
    hear_vantage: Callable[[int, int], None] | None = None
    disk_level: Callable[[], DiskLevel] = lambda: DiskLevel.ENOUGH
    on_stored: Callable[[int], None] = lambda _waiting: None
    recent: RecentBatches = field(default_factory=RecentBatches)
    keep_us: int | None = None
    encoder: RowEncoder = field(default_factory=RowEncoder)

    def __post_init__(self) -> None:
        self.probe_totals = ProbeTotals(lambda: self.plans.current)
        self._regions: dict[int, str] = {}
        self._owners_of_vantages = VantageOwners(database=self.database, clock=self.clock)
        self._large = _Commits(
            self._commit,
            group_rows=MAX_ROWS,
            waiting_rows=_MAX_WAITING_ROWS,
            worth_rows=_WORTH_ROWS,
            batch_threshold=BATCH_THRESHOLD,
            at_once=_LARGE_AT_ONCE,
        )
        self._small = _Commits(self._commit, group_rows=MAX_ROWS, waiting_rows=_MAX_WAITING_ROWS)
        self._admission = AdmissionQueue()
        self._encoder_slots = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def load(self) -> None:
        """Read all vantages at once, for a fleet that reconnects. Raises `DatabaseUnavailable`."""
        async with self.database.connection() as connection:
            self._regions = {row.id: row.region for row in await vantages.vantages(connection)}
            self._owners_of_vantages.load(await vantages.deliverers(connection, self._regions))

    async def push(self, raw_push: RawPush, received_at: int) -> Receipt:
        """Store a push that arrived at `received_at` of the collector's clock, once, however often it arrives.

        Raises `CodecError`, `BadRequest`, `Conflict`, `SequenceConflict`, `ResourceExhausted`, `ClockSkew` and
        `DatabaseUnavailable`.
        """
        batch = raw_push.batch(received_at)
        check_batch(batch)
        await self._check_region(batch.vantage)
        await self._owners_of_vantages.admit(batch)
        if self.hear_vantage is not None and MIN_INSTANT_AT <= batch.sent_at <= MAX_INSTANT_AT:
            self.hear_vantage(batch.vantage.id, batch.sent_at)
        receipt = await (self._heartbeat if batch.is_heartbeat else self._ingest)(batch)
        _log.info(
            "batch.ingested",
            vantage=batch.vantage.name,
            seq=batch.seq,
            stored=receipt.stored,
            duplicate=receipt.duplicate,
            rejected=receipt.rejected,
            reasons=sorted({rejection.reason.partition(":")[0] for rejection in receipt.rejections}),
            took_us=receipt.server_at - received_at,
        )
        return receipt

    async def refresh_window(self) -> None:
        """Set the window to the rounds that have a partition now. Raises `DatabaseUnavailable`."""
        window = await partitions.covered(self.database, now_at=self.clock(), keep_us=self.keep_us)
        if window.from_at == window.until_at != self.window.until_at:
            _log.error("partition.missing", hint="new samples are set aside in sample_late until today has a partition")
        self.window = window

    async def _check_region(self, vantage: Vantage) -> None:
        """Register a new vantage, and require that a known one is in its region."""
        if vantage.id not in self._regions:
            async with self.database.connection() as connection:
                row = await vantages.register(connection, vantage, seen_at=self.clock())
            self._regions[vantage.id] = row.region
        known = self._regions[vantage.id]
        if known != vantage.region:
            raise errors.Conflict(
                f"vantage {vantage.name!r} is in region {known!r}, and this push is from {vantage.region!r}; "
                "a vantage keeps its region, so give the agent another name"
            )

    async def _heartbeat(self, batch: PushBatch) -> Receipt:
        if self._small.is_full or self.disk_level() is DiskLevel.FULL:
            # Dropped, and the next one delayed: samples that wait matter more than heartbeats.
            return self._receipt(batch, delay_us=BUSY_DELAY_US)
        await self._small.submit(_Work(heartbeat=self._heartbeat_of(batch), encoded=None), rows=0)
        return self._receipt(batch, missing=await find_lost_batches(self.database, batch, at=self.clock()))

    async def _ingest(self, batch: PushBatch) -> Receipt:
        check_clock(batch)
        if self.disk_level() is DiskLevel.FULL:
            raise errors.DiskLow("disk_low: the disk of the database is nearly full; the samples stay in the spool")
        if batch.sample_count <= _SMALL_SAMPLES:
            self._admission.note_small()
            return await self._encode_and_commit(batch, self._small)
        async with self._admission.large():
            return await self._encode_and_commit(batch, self._large)

    async def _encode_and_commit(self, batch: PushBatch, commits: _Commits) -> Receipt:
        with commits.announce(batch.sample_count):
            encoded = await self._encode(batch)
            if encoded is None:
                # Another collector may have applied the plan that has these targets.
                await self.plans.refresh_after_now()
                if unknown := batch.decode_columns().targets() - self.plans.known_targets:
                    raise errors.UnknownTargets(unknown)
                encoded = await self._encode(batch)
                assert encoded is not None
        is_current = (encoded.newest_round_at or 0) > batch.received_at - _BACKLOG_US
        if self.disk_level() >= DiskLevel.NO_BACKLOG and not is_current:
            # There is room for current samples only.
            raise errors.DiskLow(
                "disk_low: the disk of the database has no room for old rounds; they stay in the spool"
            )
        earlier = await commits.submit(_Work(heartbeat=self._heartbeat_of(batch), encoded=encoded), rows=encoded.stored)
        if earlier is not None:
            return self._receipt_of_duplicate(batch, encoded, earlier)
        return self._receipt(batch, stored=encoded.stored, rejections=_rejections(encoded.rejections))

    async def _encode(self, batch: PushBatch) -> EncodedBatch | None:
        # Rounds of a clock that is ahead would count as the newest ones until their time has come.
        until_at = min(self.window.until_at, batch.received_at + AGREE_US)
        window = replace(self.window, until_at=max(self.window.from_at, until_at))
        context = ValidationContext(targets=self.plans.known_targets, window=window)
        if batch.sample_count <= _SMALL_SAMPLES:
            return encode(batch, context)
        async with self._encoder_slots:
            await self._small.wait_idle(timeout_us=_YIELD_US)
            return await self.encoder.encode(batch, context)

    async def _commit(self, group: Sequence[_Work]) -> list[LedgerRow | None]:
        """Commit a group, with retries; return each push's ledger row if it was stored before, or `None`."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._commit_once(group)
            except errors.PartitionMissing as error:
                # Agents push these batches again; rounds that still lack a partition are set aside then.
                _log.warning("partition.missing", reason=str(error))
                await self.refresh_window()
                raise
            except errors.DatabaseUnavailable as error:
                if not error.at_once:
                    raise
                _log.warning("commit.retried", pushes=len(group), reason=str(error))
        return await self._commit_once(group)

    async def _commit_once(self, group: Sequence[_Work]) -> list[LedgerRow | None]:
        async with self.database.transaction() as connection:
            pushes = [(work.heartbeat, work.encoded) for work in group if work.encoded]
            checked = await self._owners_of_vantages.set_aside_stored(connection, pushes)
            in_ledger = await batches.store(connection, checked)
            earlier = iter(in_ledger)
            found = [next(earlier) if work.encoded else None for work in group]
            reports = list(map(_heartbeat_report, group, found))
            recording = await vantages.record_heartbeat(connection, reports)
            await self._owners_of_vantages.require_owners(connection, reports, recording)
        _log_set_aside([given for _, given in pushes], checked, in_ledger)
        for batch, known in zip(checked, in_ledger, strict=True):
            if known is None:
                self.probe_totals.add(batch.origin.region, batch.probe_counts, samples=batch.rows.rows)
                self.recent.add(batch)
        self._owners_of_vantages.load(recording.deliverers)
        # Another agent delivers for these, or a restored database does not have them.
        self._owners_of_vantages.forget(recording.unrecorded)
        for vantage_id in recording.unrecorded:
            self._regions.pop(vantage_id, None)
        if any(work.encoded for work in group):
            self.on_stored(self._small.rows + self._large.rows)
        return found

    def _heartbeat_of(self, batch: PushBatch) -> HeartbeatReport:
        return HeartbeatReport(
            vantage_id=batch.vantage.id,
            batch_epoch=batch.epoch,
            seen_at=self.clock(),
            heartbeat=trimmed(batch.heartbeat),
            epoch_history=batch.epoch_history,
        )

    def _receipt_of_duplicate(self, batch: PushBatch, encoded: EncodedBatch, earlier: LedgerRow) -> Receipt:
        """Return the ledger's result of this batch, even if validation differs today. Raises `SequenceConflict`."""
        if earlier.samples != batch.sample_count:
            raise errors.SequenceConflict(
                f"batch {batch.seq} of this epoch was stored with {earlier.samples} samples, and this one has "
                f"{batch.sample_count}; seal its samples under another epoch"
            )
        if earlier.content_hash != encoded.content_hash:
            raise errors.SequenceConflict(
                f"batch {batch.seq} of this epoch was stored with other samples; seal these under another epoch"
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
        missing: tuple[BatchRange, ...] = (),
    ) -> Receipt:
        return Receipt(
            stored=stored,
            duplicate=duplicate,
            rejected=len(rejections),
            rejections=rejections,
            plan_version=self.plans.version,
            server_at=self.clock(),
            delay_us=delay_us,
            received_at=batch.received_at,
            plan_hash=self.plans.content_hash,
            missing=missing,
        )


def _log_set_aside(
    given: Sequence[EncodedBatch], checked: Sequence[EncodedBatch], in_ledger: Sequence[LedgerRow | None]
) -> None:
    """Log which batches had samples of stored rounds, except repetitions after a lost reply, which are not stored."""
    for before, after, earlier in zip(given, checked, in_ledger, strict=True):
        if earlier is None and (samples := before.rows.rows - after.rows.rows):
            key = before.key
            _log.warning("rounds.already_stored", vantage_id=key.vantage_id, seq=key.seq, samples=samples)


def _heartbeat_report(work: _Work, earlier: LedgerRow | None) -> HeartbeatReport:
    """Return the heartbeat of a push with the number of samples that this commit stored, and their newest round."""
    if work.encoded is None or earlier is not None:
        return work.heartbeat
    return replace(work.heartbeat, stored=work.encoded.stored, newest_round_at=work.encoded.newest_round_at)


def _rejections(recorded: Iterable[tuple[int, str]]) -> tuple[Rejection, ...]:
    return tuple(Rejection(index=index, reason=reason) for index, reason in recorded)
