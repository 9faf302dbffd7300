"""A push, from the parcel to the receipt. The receipt leaves after the commit and never before."""

from collections.abc import Callable

import structlog

from isochrone_collector.admission import Admitted, Parcel, admit, check_parcel, trimmed
from isochrone_collector.errors import BadRequest, Conflict
from isochrone_collector.plans import Plans
from isochrone_collector.store import batches, vantages
from isochrone_collector.store.batches import SealedBatch
from isochrone_collector.store.pool import Database
from isochrone_collector.store.rows import LedgerRow, Origin, sample_row
from isochrone_wire.answers import Window
from isochrone_wire.model import Receipt, Rejection, Vantage

_log = structlog.get_logger()


class Ingest:
    """Takes pushes into the database. `window` is moved on by whoever makes the partitions."""

    def __init__(self, *, database: Database, plans: Plans, window: Window, clock: Callable[[], int]) -> None:
        self.window = window
        self._database = database
        self._plans = plans
        self._clock = clock
        self._regions: dict[str, str] = {}

    async def push(self, parcel: Parcel) -> Receipt:
        """Store a parcel once, however often it comes. Raises `BadRequest`, `Conflict` and `DatabaseUnavailable`."""
        received_at = self._clock()
        check_parcel(parcel)
        await self._recognise(parcel.vantage, received_at)
        receipt = await (self._heartbeat if parcel.is_heartbeat else self._batch)(parcel, received_at)
        _log.info(
            "batch.ingested",
            vantage=parcel.vantage.name,
            seq=parcel.seq,
            stored=receipt.stored,
            duplicate=receipt.duplicate,
            rejected=receipt.rejected,
            reasons=sorted({rejection.reason.partition(":")[0] for rejection in receipt.rejections}),
            took_us=self._clock() - received_at,
        )
        return receipt

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

    async def _heartbeat(self, parcel: Parcel, received_at: int) -> Receipt:
        async with self._database.connection() as connection:
            await vantages.note_vitals(connection, parcel.vantage, trimmed(parcel.vitals), seen_at=received_at)
        return self._receipt()

    async def _batch(self, parcel: Parcel, received_at: int) -> Receipt:
        admitted = await self._admit(parcel, received_at)
        batch = _seal(parcel, admitted, received_at)
        async with self._database.transaction() as connection:
            earlier = await batches.store(connection, batch)
            await vantages.note_vitals(connection, parcel.vantage, trimmed(parcel.vitals), seen_at=received_at)
        if earlier is not None:
            return self._repeated(parcel, earlier)
        return self._receipt(stored=len(batch.rows) + len(batch.late_rows), rejections=admitted.rejections)

    async def _admit(self, parcel: Parcel, received_at: int) -> Admitted:
        named = {sample.target_id for sample in parcel.samples if not isinstance(sample, str)}
        if not named <= self._plans.known_targets:
            # Another collector may have applied the plan that names them.
            await self._plans.refresh()
        return admit(parcel, now_at=received_at, known_targets=self._plans.known_targets, window=self.window)

    def _repeated(self, parcel: Parcel, earlier: LedgerRow) -> Receipt:
        """What the ledger says of this batch, whatever we would say of it today."""
        if earlier.samples != len(parcel.samples):
            raise BadRequest(
                f"batch {parcel.seq} of this epoch was stored with {earlier.samples} samples and now has "
                f"{len(parcel.samples)}; a sealed batch never changes"
            )
        rejections = tuple(Rejection(index=index, reason=reason) for index, reason in earlier.rejections or ())
        return self._receipt(duplicate=earlier.stored, rejections=rejections)

    def _receipt(self, *, stored: int = 0, duplicate: int = 0, rejections: tuple[Rejection, ...] = ()) -> Receipt:
        return Receipt(
            stored=stored,
            duplicate=duplicate,
            rejected=len(rejections),
            rejections=rejections,
            plan_version=self._plans.version,
            server_at=self._clock(),
        )


def _seal(parcel: Parcel, admitted: Admitted, received_at: int) -> SealedBatch:
    origin = Origin(
        vantage_id=parcel.vantage.id,
        region=parcel.vantage.region,
        epoch=parcel.epoch,
        seq=parcel.seq,
        received_at=received_at,
    )
    return SealedBatch(
        origin=origin,
        samples=len(parcel.samples),
        rows=[sample_row(sample, index, origin) for index, sample in admitted.fresh],
        late_rows=[(*sample_row(sample, index, origin), reason) for index, sample, reason in admitted.late],
        rejections=[(rejection.index, rejection.reason) for rejection in admitted.rejections],
    )
