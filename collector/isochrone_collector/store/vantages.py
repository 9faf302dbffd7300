"""Who pushes: vantages, their regions and their vitals."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from operator import attrgetter

from psycopg.types.json import Jsonb

from isochrone_collector.store.instants import Instant
from isochrone_collector.store.pool import Connection, execute, fetch
from isochrone_collector.store.queries import query
from isochrone_collector.store.rows import NameRow, SpenderRow, VantageRow, VantageStateRow
from isochrone_wire.model import Vantage, Vitals

_AS_TOLD = (
    "agent_version",
    "plan_version",
    "spool_depth",
    "finished",
    "stored",
    "quarantined",
    "rounds_missed",
    "clock_offset_us",
    "clock_uncertainty_us",
    "loop_lag_us",
    "refused_plan_version",
    "refused_plan_reason",
)


async def register(connection: Connection, vantage: Vantage, *, seen_at: int) -> VantageRow:
    """Record a vantage and its region unless they are there, and return what is recorded: perhaps another region."""
    await execute(connection, query("register_region"), name=vantage.region)
    await execute(
        connection,
        query("register_vantage"),
        id=vantage.id,
        name=vantage.name,
        region=vantage.region,
        seen_at=Instant(seen_at),
    )
    return (await fetch(connection, query("vantage_by_id"), VantageRow, id=vantage.id))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A push as a sign of life: who, when, with which vitals, and whether samples of it were stored."""

    vantage_id: int
    epoch: int
    seen_at: int
    vitals: Vitals
    stored_samples: bool = False


async def note_vitals(connection: Connection, signs: Iterable[Sign]) -> None:
    """Record how agents are doing, unless something newer is recorded already. The vitals must fit their columns."""
    newest = _newest(signs)
    columns = {name: [row[name] for row in newest] for name in newest[0]} if newest else {}
    if columns:
        await execute(connection, query("note_vitals"), **columns)


def _newest(signs: Iterable[Sign]) -> list[dict[str, object]]:
    """One row per vantage, of its newest sign and the newest that brought samples, in the order of their ids."""
    newest: dict[int, Sign] = {}
    samples_at: dict[int, Instant] = {}
    for sign in sorted(signs, key=attrgetter("vantage_id", "seen_at")):
        newest[sign.vantage_id] = sign
        if sign.stored_samples:
            samples_at[sign.vantage_id] = Instant(sign.seen_at)
    return [_row_of(sign, samples_at.get(vantage_id)) for vantage_id, sign in newest.items()]


def _row_of(sign: Sign, samples_at: Instant | None) -> dict[str, object]:
    vitals = sign.vitals
    return {
        **{name: getattr(vitals, name) for name in _AS_TOLD},
        "id": sign.vantage_id,
        "seen_at": Instant(sign.seen_at),
        "epoch": sign.epoch,
        "samples_at": samples_at,
        "spool_oldest_at": Instant(vitals.spool_oldest_at) if vitals.spool_oldest_at else None,
        "next_heartbeat_at": Instant(sign.seen_at + vitals.next_heartbeat_us) if vitals.next_heartbeat_us else None,
        "dropped": Jsonb(dict(vitals.dropped)),
        "spend": Jsonb([asdict(line) for line in vitals.spend]),
    }


async def vantages(connection: Connection) -> list[VantageRow]:
    """All vantages, by name."""
    return await fetch(connection, query("vantages"), VantageRow)


async def states(connection: Connection) -> list[VantageStateRow]:
    """All vantages with their vitals and the ledger's account of them, by region and name."""
    return await fetch(connection, query("vantage_states"), VantageStateRow)


async def spenders(connection: Connection) -> list[SpenderRow]:
    """All vantages with what they reported spent, by region and name."""
    return await fetch(connection, query("spenders"), SpenderRow)


async def regions(connection: Connection) -> list[str]:
    """The names of all regions ever mentioned by a vantage or a plan."""
    return [row.name for row in await fetch(connection, query("regions"), NameRow)]
