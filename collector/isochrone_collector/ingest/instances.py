"""Instances of agents: one agent delivers for a vantage, however many have its credential.

The laws:

1. An agent is known by the epoch of its newest start. The epochs of its spool are its lineage: an agent whose lineage
   has the epoch that delivered last is its successor, and takes over at once.
2. Any other agent waits until the one that delivers has been silent for `LEASE_US`. Its samples stay in its spool.
3. An agent that was refused for `RIVAL_US` while another one delivers is a rival: a cloned machine, or a restored
   snapshot. A restart never takes that long. It is reported, and refused with another status, so that it sends
   heartbeats only.
4. The database decides: the vitals of another agent are never recorded. Each collector remembers what it has read.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import structlog

from isochrone_collector.errors import Conflict, TooMany
from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store import vantages
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.vantages import OwnerRow
from isochrone_wire.model import SECOND_US

LEASE_US = 30 * SECOND_US
"""The silence in microseconds after which any agent takes over; agents send a heartbeat every 15 s."""
RIVAL_US = 45 * SECOND_US
"""The time in microseconds after which an agent that is refused is reported."""

_RETRY_US = 5 * SECOND_US

_log = structlog.get_logger()


def may_deliver(owner: OwnerRow, epoch: int, lineage: tuple[int, ...], *, now_at: int) -> bool:
    """Return whether the agent with this epoch may deliver for the vantage of `owner`."""
    return owner.epoch is None or owner.epoch in (epoch, *lineage) or now_at - owner.last_seen_at > LEASE_US


def refused_since(owner: OwnerRow, epoch: int, *, now_at: int) -> int:
    """Return the instant since which the agent with this epoch has been refused without a longer pause."""
    if owner.rival_epoch != epoch or owner.rival_first_at is None or owner.rival_last_at is None:
        return now_at
    return owner.rival_first_at if now_at - owner.rival_last_at <= LEASE_US else now_at


class Instances:
    """The agents that deliver for their vantages."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._owners: dict[int, int] = {}

    def forget(self, vantage_ids: AbstractSet[int]) -> None:
        """Read these vantages from the database at their next push."""
        for vantage_id in vantage_ids:
            self._owners.pop(vantage_id, None)

    async def admit(self, batch: PushBatch) -> None:
        """Return if the agent of a push delivers for its vantage. Raises `TooMany` for an agent that has to wait,
        `Conflict` for a rival, and `DatabaseUnavailable`. Agents without a lineage are always admitted.
        """
        epoch, vantage = batch.vitals.epoch or batch.epoch, batch.vantage
        if not batch.lineage or self._owners.get(vantage.id) == epoch:
            return
        now_at = self._clock()
        async with self._database.connection() as connection:
            owner = await vantages.owner(connection, vantage.id)
            if owner is None or may_deliver(owner, epoch, batch.lineage, now_at=now_at):
                self._owners[vantage.id] = epoch
                return
            since_at = refused_since(owner, epoch, now_at=now_at)
            await vantages.record_rival(connection, vantage.id, epoch, first_at=since_at, last_at=now_at)
        if now_at - since_at < RIVAL_US:
            raise TooMany(f"another agent delivered for {vantage.name!r} a moment ago", delay_us=_RETRY_US)
        _log.error("agent.rival", vantage=vantage.name, epoch=epoch, since_at=since_at)
        raise Conflict(
            f"another agent with the credential of {vantage.name!r} delivers: this machine is perhaps a clone or a "
            "restored snapshot; stop one of the two, or join with another name; the samples stay in the spool"
        )
