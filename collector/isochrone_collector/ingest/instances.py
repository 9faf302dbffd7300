"""Instances of agents: one agent delivers for a vantage, however many have its credential.

The laws:

1. An agent is known by the epoch of its newest start. The epochs of its spool are its lineage: an agent whose lineage
   has the epoch that delivered last is its successor, and takes over at once.
2. Any other agent waits until the one that delivers has been silent for `LEASE_US`. Its samples stay in its spool.
3. An agent that was refused for `RIVAL_US` while another one delivers is a rival: a cloned machine, or a restored
   snapshot. A restart never takes that long. It is reported, and refused with another status, so that it sends
   heartbeats only.
4. The database decides: neither the heartbeat nor the samples of another agent are recorded. Each collector remembers
   what it has read.
5. Every round is stored once. Samples of rounds up to the newest one that was stored before a takeover are compared
   with the stored ones, and set aside if these have the round (`stored_rounds`). Until the takeover is recorded, the
   transaction locks the vantage: no other agent stores a round between the comparison and the commit.
6. Instants more than `AHEAD_US` in the future are from a collector with a wrong clock, and count as long past.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import structlog

from isochrone_collector.errors import Conflict, ResourceExhausted
from isochrone_collector.ingest.stored_rounds import read_rows, repeated, set_aside
from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store import vantages
from isochrone_collector.store.batches import PackedBatch, stored_rounds
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.vantages import (
    AHEAD_US,
    LEASE_US,
    Deliverer,
    HeartbeatReport,
    LockedRow,
    OwnerRow,
    Recording,
)
from isochrone_wire.model import SECOND_US

RIVAL_US = 45 * SECOND_US
"""The time in microseconds after which an agent that is refused is reported."""

_RETRY_US = 5 * SECOND_US
_DELIVERED = "another agent delivered for this vantage a moment ago"

_log = structlog.get_logger()


def may_deliver(owner: OwnerRow, epoch: int, lineage: tuple[int, ...], *, now_at: int) -> bool:
    """Return whether the agent with this epoch may deliver for the vantage of `owner`."""
    is_silent = not -AHEAD_US <= now_at - owner.last_seen_at <= LEASE_US
    return owner.epoch is None or owner.epoch in (epoch, *lineage) or is_silent


def refused_since(owner: OwnerRow, epoch: int, *, now_at: int) -> int:
    """Return the instant since which the agent with this epoch has been refused without a longer pause."""
    if owner.rival_epoch != epoch or owner.rival_first_at is None or owner.rival_last_at is None:
        return now_at
    return owner.rival_first_at if -AHEAD_US <= now_at - owner.rival_last_at <= LEASE_US else now_at


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delivering:
    """The agent that delivers for a vantage, and the newest round stored before it took over, 0 if there was none."""

    epoch: int
    earlier_until: int


class Instances:
    """The agents that deliver for their vantages."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._owners: dict[int, _Delivering] = {}

    def load(self, deliverers: Mapping[int, Deliverer]) -> None:
        """Set the agents that deliver for these vantages, as the database has them."""
        self._owners |= {
            key: _Delivering(epoch=one.epoch, earlier_until=one.earlier_rounds_until or 0)
            for key, one in deliverers.items()
            if one.epoch is not None
        }

    def forget(self, vantage_ids: AbstractSet[int]) -> None:
        """Read these vantages from the database at their next push."""
        for vantage_id in vantage_ids:
            self._owners.pop(vantage_id, None)

    async def admit(self, batch: PushBatch) -> None:
        """Return if the agent of a push delivers for its vantage. Raises `ResourceExhausted` for an agent that has to
        wait, `Conflict` for a rival, and `DatabaseUnavailable`. Agents without a lineage are always admitted.
        """
        epoch, vantage = batch.heartbeat.epoch or batch.epoch, batch.vantage
        if not batch.lineage or self._known(vantage.id, epoch):
            return
        now_at = self._clock()
        async with self._database.connection() as connection:
            owner = await vantages.owner(connection, vantage.id)
            if owner is None or may_deliver(owner, epoch, batch.lineage, now_at=now_at):
                if owner is not None and owner.epoch == epoch:
                    self._owners[vantage.id] = _Delivering(epoch=epoch, earlier_until=owner.earlier_rounds_until or 0)
                return
            since_at = refused_since(owner, epoch, now_at=now_at)
            await vantages.record_rival(connection, vantage.id, epoch, first_at=since_at, last_at=now_at)
        if now_at - since_at < RIVAL_US:
            raise ResourceExhausted(_DELIVERED, delay_us=_RETRY_US)
        _log.error("agent.rival", vantage=vantage.name, epoch=epoch, since_at=since_at)
        raise Conflict(
            f"another agent with the credential of {vantage.name!r} delivers: this machine is perhaps a clone or a "
            "restored snapshot; stop one of the two, or join with another name; the samples stay in the spool"
        )

    async def set_aside_stored(
        self, connection: Connection, pushes: Sequence[tuple[HeartbeatReport, PackedBatch]]
    ) -> list[PackedBatch]:
        """Return the batches of pushes; their samples of rounds that are stored already are set aside."""
        reports = [report for report, _ in pushes if report.lineage]
        taking_over = {one.vantage_id for one in reports if self._known(one.vantage_id, one.epoch) is None}
        locked = await vantages.lock(connection, taking_over) if taking_over else {}
        checked = []
        for report, batch in pushes:
            until_at = self._checked_until(report, locked.get(report.vantage_id)) if report.lineage else 0
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
            if report.lineage and owner and not self._may_commit(report, owner):
                self.forget({report.vantage_id})
                raise ResourceExhausted(_DELIVERED, delay_us=_RETRY_US)

    def _may_commit(self, report: HeartbeatReport, owner: Deliverer) -> bool:
        known = self._known(report.vantage_id, report.epoch)
        is_compared = known is None or known.earlier_until >= (owner.earlier_rounds_until or 0)
        return is_compared and owner.epoch in (report.epoch, *report.lineage)

    def _known(self, vantage_id: int, epoch: int) -> _Delivering | None:
        known = self._owners.get(vantage_id)
        return known if known and known.epoch == epoch else None

    def _checked_until(self, report: HeartbeatReport, locked: LockedRow | None) -> int:
        """Return the newest round that may have been stored before the agent of a push took over; 0 if none was."""
        if known := self._known(report.vantage_id, report.epoch):
            return known.earlier_until
        if locked is None:
            return 0
        return (locked.earlier_rounds_until if locked.epoch == report.epoch else locked.stored_rounds_until) or 0


async def _without_stored(connection: Connection, report: HeartbeatReport, batch: PackedBatch) -> PackedBatch:
    rows = list(read_rows(batch.rows))
    stored = await stored_rounds(connection, report.vantage_id, {row.round for row in rows})
    places = repeated(rows, stored, {report.epoch, report.batch_epoch, *report.lineage})
    return set_aside(batch, rows, places) if places else batch
