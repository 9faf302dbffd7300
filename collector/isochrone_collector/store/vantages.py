from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from psycopg.types.json import Jsonb

from isochrone_collector.fleet_state import Spender, VantageState, reported
from isochrone_collector.store.postgres.pool import Connection, execute, fetch, fetch_one, fetch_tuples, fetch_values
from isochrone_collector.store.postgres.values import fields_of
from isochrone_wire.model import MINUTE_US, SECOND_US, Heartbeat, Vantage


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageRow:
    """A vantage, with the instants of its first and last push."""

    id: int
    name: str
    region: str
    first_seen_at: int
    last_seen_at: int


LEASE_US = 30 * SECOND_US
"""The silence in microseconds after which any agent takes over; agents send a heartbeat every 15 s."""
AHEAD_US = 5 * MINUTE_US
"""The time in microseconds by which the clocks of two collectors may differ."""


async def register(connection: Connection, vantage: Vantage, *, seen_at: int) -> VantageRow:
    """Register a vantage and its region if they are new, and return the recorded row, which may have another region."""
    await execute(connection, "register_region", name=vantage.region)
    known = {"id": vantage.id, "name": vantage.name, "region": vantage.region}
    await execute(connection, "register_vantage", **known, seen_at=seen_at)
    return (await fetch(connection, "vantage_by_id", VantageRow, id=vantage.id))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReport:
    """The heartbeat of one push, with its vantage, the instant of its receipt and the number of samples `stored` with
    it.

    `batch_epoch` is the epoch of the push itself, `epoch` the one that the heartbeat counts. `epoch_history` are
    those of the agent's spool. `newest_round_at` is that of the stored samples.
    """

    vantage_id: int
    batch_epoch: int
    seen_at: int
    heartbeat: Heartbeat
    stored: int = 0
    epoch_history: tuple[int, ...] = ()
    newest_round_at: int | None = None

    @property
    def epoch(self) -> int:
        """Return the epoch that the heartbeat counts; by default that of the push. 0 means unknown."""
        return self.heartbeat.epoch or self.batch_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """The agent that delivers for the vantage `id`, by its epoch, and the newest round stored before it took over."""

    id: int
    epoch: int | None
    earlier_rounds_until: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedRow(Deliverer):
    """A vantage whose heartbeat was recorded, and whether it begins a new epoch."""

    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The ids of the vantages whose heartbeats were not recorded, and the agents that deliver for the other ones."""

    unrecorded: AbstractSet[int]
    deliverers: Mapping[int, Deliverer]


async def record_heartbeat(connection: Connection, reports: Iterable[HeartbeatReport]) -> Recording:
    """Record the heartbeats of agents, and add their stored samples to their accounts. One is not recorded if newer
    ones are, or if another agent delivers for the vantage.

    Runs inside the transaction that stored the samples; the heartbeats must fit their columns.
    """
    stored: Counter[tuple[int, int]] = Counter()
    newest: dict[int, HeartbeatReport] = {}
    samples_at: dict[int, int] = {}
    rounds: dict[int, int] = {}
    for report in sorted(reports, key=attrgetter("vantage_id", "seen_at")):
        newest[report.vantage_id] = report
        if report.stored:
            samples_at[report.vantage_id] = report.seen_at
            stored[report.vantage_id, report.batch_epoch] += report.stored
        if report.stored and report.newest_round_at:
            rounds[report.vantage_id] = max(rounds.get(report.vantage_id, 0), report.newest_round_at)
    rows = [
        {**_row_of(report, samples_at.get(vantage_id), stored), "newest_round_at": rounds.get(vantage_id)}
        for vantage_id, report in newest.items()
    ]
    if not rows:
        return Recording(unrecorded=frozenset(), deliverers={})
    recorded = await fetch(connection, "record_heartbeat", _RecordedRow, **_columns(rows))
    await _count_ledgers(connection, {row.id: newest[row.id].epoch for row in recorded if row.is_new})
    # A push that was received later may have been committed earlier.
    unrecorded = newest.keys() - {row.id for row in recorded}
    added = [
        {"id": vantage_id, "epoch": epoch, "ledgered": samples}
        for (vantage_id, epoch), samples in stored.items()
        if vantage_id in unrecorded
    ]
    if added:
        await execute(connection, "add_ledgered", **_columns(added))
    raised = [{"id": key, "newest_round_at": at} for key, at in rounds.items() if key in unrecorded]
    if raised:
        await execute(connection, "raise_newest_rounds", **_columns(raised))
    return Recording(unrecorded=unrecorded, deliverers={row.id: row for row in recorded})


async def _count_ledgers(connection: Connection, epochs: Mapping[int, int]) -> None:
    """Count the samples in the ledger of new epochs: there may be more than were stored just now."""
    if epochs:
        rows = await fetch_tuples(connection, "count_ledgers", id=list(epochs), epoch=list(epochs.values()))
        counts = dict.fromkeys(epochs, 0) | dict(rows)
        await execute(connection, "set_ledgered", id=list(counts), ledgered=list(counts.values()))


def _columns(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _row_of(
    report: HeartbeatReport, samples_at: int | None, stored: Mapping[tuple[int, int], int]
) -> dict[str, object]:
    heartbeat = report.heartbeat
    return {
        **fields_of(heartbeat),
        "id": report.vantage_id,
        "seen_at": report.seen_at,
        "epoch": report.epoch,
        "ledgered": stored.get((report.vantage_id, report.epoch), 0),
        "samples_at": samples_at,
        "spool_oldest_at": heartbeat.spool_oldest_at or None,
        "next_heartbeat_at": report.seen_at + heartbeat.next_heartbeat_us if heartbeat.next_heartbeat_us else None,
        "epoch_history": Jsonb(list(map(str, report.epoch_history))) if report.epoch_history else None,
        "silent_since_at": report.seen_at - LEASE_US,
        "future_at": report.seen_at + AHEAD_US,
        "spend": Jsonb([asdict(line) for line in heartbeat.spend]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRow:
    """The agent that delivers for a vantage, by its epoch, and the agent that was refused last, with the instants of
    the first and the last refusal. `earlier_rounds_until` is the newest round stored before the first one took over.
    """

    epoch: int | None
    last_seen_at: int
    duplicate_epoch: int | None
    duplicate_first_at: int | None
    duplicate_last_at: int | None
    earlier_rounds_until: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedRow(Deliverer):
    """A locked vantage, with the newest round stored."""

    stored_rounds_until: int | None


async def deliverers(connection: Connection, vantage_ids: Iterable[int]) -> dict[int, Deliverer]:
    """Return the agents that deliver for some vantages, by vantage."""
    return {row.id: row for row in await fetch(connection, "deliverers", Deliverer, ids=list(vantage_ids))}


async def lock(connection: Connection, vantage_ids: Iterable[int]) -> dict[int, LockedRow]:
    """Prevent takeovers of some vantages by other transactions until this one ends; return them by id."""
    return {row.id: row for row in await fetch(connection, "lock_vantages", LockedRow, ids=sorted(vantage_ids))}


async def owner(connection: Connection, vantage_id: int) -> OwnerRow | None:
    """Return the agent that delivers for a vantage; `None` if the vantage is unknown."""
    return await fetch_one(connection, "owner", OwnerRow, id=vantage_id)


async def record_duplicate(connection: Connection, vantage_id: int, epoch: int, *, first_at: int, last_at: int) -> None:
    """Record that an agent was refused because another one delivers for its vantage."""
    await execute(connection, "record_duplicate", id=vantage_id, epoch=epoch, first_at=first_at, last_at=last_at)


async def duplicates(connection: Connection, *, now_at: int) -> list[tuple[Any, ...]]:
    """Return name and region of the vantages with a second agent that was refused a moment ago, and for longer than a
    restart takes; the epoch of that agent, and the instant since when.
    """
    return await fetch_tuples(connection, "duplicates", now_at=now_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestReceipts:
    """The instants of the newest push and of the newest push with samples; `None` before the first."""

    push_at: int | None
    samples_at: int | None


async def newest_receipts(connection: Connection) -> NewestReceipts:
    """Return the instants of the newest pushes of all vantages."""
    return (await fetch(connection, "newest_receipts", NewestReceipts))[0]


async def vantages(connection: Connection) -> list[VantageRow]:
    """Return all vantages, by name."""
    return await fetch(connection, "vantages", VantageRow)


async def states(connection: Connection, *, now_at: int) -> list[VantageState]:
    """Return all vantages with their heartbeats and their accounts in the ledger, by region and name."""
    return await fetch(connection, "vantage_states", VantageState, now_at=now_at)


async def spenders(connection: Connection) -> list[Spender]:
    """Return all vantages with the spend they reported, by region and name."""
    rows = await fetch_tuples(connection, "spenders")
    return [Spender(vantage=name, region=region, reported=reported(spend)) for name, region, spend in rows]


async def regions(connection: Connection) -> list[str]:
    """Return the names of all regions of vantages and plans."""
    return await fetch_values(connection, "regions")
