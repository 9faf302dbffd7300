"""Owners of vantages: one agent delivers for a vantage, however many have its credential.

The laws:

1. An agent is known by the epoch of its newest start. The epochs of its spool are its history: an agent whose history
   has the epoch that delivered last is its successor, and takes over at once.
2. Any other agent waits until the one that delivers has been silent for `LEASE_US`. Its samples stay in its spool.
3. An agent that was refused for `DUPLICATE_US` while another one delivers is a duplicate: a cloned machine, or a
   restored snapshot. A restart never takes that long. It is reported, and refused with another status, so that it
   sends heartbeats only.
4. The database decides: neither the heartbeat nor the samples of another agent are recorded. Each collector remembers
   what it has read.
5. Every round is stored once. Samples of rounds up to the newest one that was stored before a takeover are compared
   with the stored ones, and set aside if these have the round (see below). Until the takeover is recorded, the
   transaction locks the vantage: no other agent stores a round between the comparison and the commit.
6. Instants more than `AHEAD_US` in the future are from a collector with a wrong clock, and count as long past.

Samples of rounds that are stored already: found before a batch is stored, and set aside. Pure.

The laws, for a sample of a batch and the stored samples of the same vantage, target and round:

1. If another agent, with an epoch that is not in the history, has stored one, the round is complete.
2. A stored sample of the same request is the sample itself: a restored snapshot has sealed it again.
3. A round of one sample has no second one. Of a burst, a restart may have left a part in the spool: it is stored.

Lost batches: batches that an agent delivered and the database does not have.

The database was restored from a backup or emptied, or a standby that had not yet received them was promoted. Agents
list the delivered batches of which they still have a copy, and push those that are missing again.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import structlog

from isochrone_collector.errors import Conflict, ResourceExhausted
from isochrone_collector.ingest.row_encoding import LATE_ORDER, ORDER
from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store import batches, job_state, vantages
from isochrone_collector.store.batches import EncodedBatch, EncodedRows, StoredRow, stored_rounds
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.postgres.values import POSTGRES_EPOCH_AT
from isochrone_collector.store.vantages import (
    AHEAD_US,
    LEASE_US,
    Deliverer,
    HeartbeatReport,
    LockedRow,
    OwnerRow,
    Recording,
)
from isochrone_wire.model import DAY_US, SECOND_US, BatchRange

DUPLICATE_US = 45 * SECOND_US
"""The time in microseconds after which an agent that is refused is reported."""

_RETRY_US = 5 * SECOND_US
_DELIVERED = "another agent delivered for this vantage a moment ago"

_log = structlog.get_logger()


def may_deliver(owner: OwnerRow, epoch: int, epoch_history: tuple[int, ...], *, now_at: int) -> bool:
    """Return whether the agent with this epoch may deliver for the vantage of `owner`."""
    is_silent = not -AHEAD_US <= now_at - owner.last_seen_at <= LEASE_US
    return owner.epoch is None or owner.epoch in (epoch, *epoch_history) or is_silent


def refused_since(owner: OwnerRow, epoch: int, *, now_at: int) -> int:
    """Return the instant since which the agent with this epoch has been refused without a longer pause."""
    if owner.duplicate_epoch != epoch or owner.duplicate_first_at is None or owner.duplicate_last_at is None:
        return now_at
    return owner.duplicate_first_at if -AHEAD_US <= now_at - owner.duplicate_last_at <= LEASE_US else now_at


class VantageOwners:
    """The agents that deliver for their vantages."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._owners: dict[int, Deliverer] = {}

    def load(self, deliverers: Mapping[int, Deliverer]) -> None:
        """Set the agents that deliver for these vantages, as the database has them."""
        self._owners |= {key: one for key, one in deliverers.items() if one.epoch is not None}

    def forget(self, vantage_ids: AbstractSet[int]) -> None:
        """Read these vantages from the database at their next push."""
        for vantage_id in vantage_ids:
            self._owners.pop(vantage_id, None)

    async def admit(self, batch: PushBatch) -> None:
        """Return if the agent of a push delivers for its vantage. Raises `ResourceExhausted` for an agent that has to
        wait, `Conflict` for a duplicate, and `DatabaseUnavailable`. Agents without a history are always admitted.
        """
        epoch, vantage = batch.heartbeat.epoch or batch.epoch, batch.vantage
        if not batch.epoch_history or self._known(vantage.id, epoch):
            return
        now_at = self._clock()
        async with self._database.connection() as connection:
            owner = await vantages.owner(connection, vantage.id)
            if owner is None or may_deliver(owner, epoch, batch.epoch_history, now_at=now_at):
                if owner is not None and owner.epoch == epoch:
                    until_at = owner.earlier_rounds_until
                    self._owners[vantage.id] = Deliverer(id=vantage.id, epoch=epoch, earlier_rounds_until=until_at)
                return
            since_at = refused_since(owner, epoch, now_at=now_at)
            await vantages.record_duplicate(connection, vantage.id, epoch, first_at=since_at, last_at=now_at)
        if now_at - since_at < DUPLICATE_US:
            raise ResourceExhausted(_DELIVERED, delay_us=_RETRY_US)
        _log.error("agent.duplicate", vantage=vantage.name, epoch=epoch, since_at=since_at)
        raise Conflict(
            f"another agent with the credential of {vantage.name!r} delivers: this machine is perhaps a clone or a "
            "restored snapshot; stop one of the two, or join with another name; the samples stay in the spool"
        )

    async def set_aside_stored(
        self, connection: Connection, pushes: Sequence[tuple[HeartbeatReport, EncodedBatch]]
    ) -> list[EncodedBatch]:
        """Return the batches of pushes; their samples of rounds that are stored already are set aside."""
        reports = [report for report, _ in pushes if report.epoch_history]
        taking_over = {one.vantage_id for one in reports if self._known(one.vantage_id, one.epoch) is None}
        locked = await vantages.lock(connection, taking_over) if taking_over else {}
        checked = []
        for report, batch in pushes:
            until_at = self._checked_until(report, locked.get(report.vantage_id)) if report.epoch_history else 0
            is_newer = batch.oldest_round_at is None or batch.oldest_round_at > until_at
            checked.append(batch if is_newer else await _without_stored(connection, report, batch))
        return checked

    async def require_owners(
        self, connection: Connection, reports: Sequence[HeartbeatReport], recording: Recording
    ) -> None:
        """Check, in the transaction of some pushes, that their agents deliver, and that none took over without a
        comparison, because this collector had not read that another one delivered meanwhile. Raises
        `ResourceExhausted`.
        """
        epochs: dict[int, set[int]] = defaultdict(set)
        for report in reports:
            epochs[report.vantage_id].add(report.epoch)
        doubtful = {key for key, found in epochs.items() if key in recording.unrecorded or len(found) > 1}
        owners = {**recording.deliverers, **(await vantages.deliverers(connection, doubtful) if doubtful else {})}
        for report in reports:
            owner = owners.get(report.vantage_id)
            if report.epoch_history and owner and not self._may_commit(report, owner):
                self.forget({report.vantage_id})
                raise ResourceExhausted(_DELIVERED, delay_us=_RETRY_US)

    def _may_commit(self, report: HeartbeatReport, owner: Deliverer) -> bool:
        known = self._known(report.vantage_id, report.epoch)
        is_compared = known is None or (known.earlier_rounds_until or 0) >= (owner.earlier_rounds_until or 0)
        return is_compared and owner.epoch in (report.epoch, *report.epoch_history)

    def _known(self, vantage_id: int, epoch: int) -> Deliverer | None:
        known = self._owners.get(vantage_id)
        return known if known and known.epoch == epoch else None

    def _checked_until(self, report: HeartbeatReport, locked: LockedRow | None) -> int:
        """Return the newest round that may have been stored before the agent of a push took over; 0 if none was."""
        if known := self._known(report.vantage_id, report.epoch):
            return known.earlier_rounds_until or 0
        if locked is None:
            return 0
        return (locked.earlier_rounds_until if locked.epoch == report.epoch else locked.stored_rounds_until) or 0


async def _without_stored(connection: Connection, report: HeartbeatReport, batch: EncodedBatch) -> EncodedBatch:
    rows = list(read_rows(batch.rows))
    stored = await stored_rounds(connection, report.vantage_id, {row.round for row in rows})
    places = repeated(rows, stored, {report.epoch, report.batch_epoch, *report.epoch_history})
    return set_aside(batch, rows, places) if places else batch


REASON = "already_stored"

_int16, _int32 = struct.Struct("!h"), struct.Struct("!i")
# `target_id`, `round_at` and `dispatched_at`: eight bytes each, behind their length.
_KEY = struct.Struct("!4xq4xq4xq")
_KEY_PLACE = ORDER.index("target_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A encoded row: its target and round, the instant of its request, and its bytes."""

    target_id: int
    round_at: int
    dispatched_at: int
    content: bytes

    @property
    def round(self) -> tuple[int, int]:
        """Return the target and the instant of its round."""
        return self.target_id, self.round_at


def read_rows(block: EncodedRows) -> Iterator[Row]:
    """Yield the rows of a block."""
    offset = 0
    for _ in range(block.rows):
        begin, key_at = offset, 0
        (columns,) = _int16.unpack_from(block.content, begin)
        offset += _int16.size
        for place in range(columns):
            if place == _KEY_PLACE:
                key_at = offset
            (length,) = _int32.unpack_from(block.content, offset)
            offset += _int32.size + max(length, 0)
        target_id, round_at, dispatched_at = _KEY.unpack_from(block.content, key_at)
        yield Row(
            target_id=target_id,
            round_at=round_at + POSTGRES_EPOCH_AT,
            dispatched_at=dispatched_at + POSTGRES_EPOCH_AT,
            content=block.content[begin:offset],
        )


def repeated(rows: Sequence[Row], stored: Iterable[StoredRow], epoch_history: AbstractSet[int]) -> set[int]:
    """Return the places of the rows that must not be stored beside the `stored` samples."""
    of_round: dict[tuple[int, int], list[StoredRow]] = defaultdict(list)
    for one in stored:
        of_round[one.target_id, one.round_at].append(one)
    counts = Counter(row.round for row in rows)
    return {
        place
        for place, row in enumerate(rows)
        if (others := of_round.get(row.round))
        and (
            any(other.epoch not in epoch_history or other.dispatched_at == row.dispatched_at for other in others)
            or len(others) == counts[row.round] == 1
        )
    }


def set_aside(batch: EncodedBatch, rows: Sequence[Row], places: AbstractSet[int]) -> EncodedBatch:
    """Return the batch with the rows at these places among the late ones."""
    kept = [row for place, row in enumerate(rows) if place not in places]
    reason = REASON.encode()
    columns, ending = _int16.pack(len(LATE_ORDER)), _int32.pack(len(reason)) + reason
    late = b"".join(columns + rows[place].content[_int16.size :] + ending for place in sorted(places))
    return replace(
        batch,
        rows=EncodedRows(ORDER, len(kept), b"".join(row.content for row in kept)),
        late_rows=EncodedRows(LATE_ORDER, batch.late_rows.rows + len(places), batch.late_rows.content + late),
        oldest_round_at=min((row.round_at for row in kept), default=None),
        newest_round_at=max((row.round_at for row in kept), default=None),
        probe_counts=None,
        records=None,
    )


MAX_MISSING = 1_000
"""The maximum number of ranges in one reply; the agent asks again."""
_MAX_RANGE = 1_000_000


async def find_lost_batches(database: Database, batch: PushBatch, *, at: int) -> tuple[BatchRange, ...]:
    """Return those of the batches which an agent keeps that are not in the ledger. Raises `DatabaseUnavailable`."""
    if not batch.kept:
        return ()
    missing = list[BatchRange]()
    async with database.connection() as connection:
        for kept in batch.kept:
            if 0 <= kept.last_seq - kept.first_seq < _MAX_RANGE:
                missing += await batches.missing(connection, batch.vantage.id, kept)
        # Once a day, for the alert.
        if missing and at - await job_state.batches_lost_at(connection) > DAY_US:
            await job_state.record_batches_lost(connection, at)
    if missing:
        count = sum(one.last_seq - one.first_seq + 1 for one in missing)
        _log.error("database.lost_batches", vantage=batch.vantage.name, batches=count)
    return tuple(missing[:MAX_MISSING])
