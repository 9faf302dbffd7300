"""Who pushes: vantages, their regions and their vitals."""

from psycopg.types.json import Jsonb

from isochrone_collector.store.instants import Instant
from isochrone_collector.store.pool import Connection, execute, fetch
from isochrone_collector.store.queries import query
from isochrone_collector.store.rows import NameRow, VantageRow
from isochrone_wire.model import Vantage, Vitals


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


async def note_vitals(connection: Connection, vantage: Vantage, vitals: Vitals, *, seen_at: int) -> None:
    """Record how an agent is doing, unless something newer is recorded already."""
    await execute(
        connection,
        query("note_vitals"),
        id=vantage.id,
        seen_at=Instant(seen_at),
        agent_version=vitals.agent_version,
        plan_version=vitals.plan_version,
        spool_depth=vitals.spool_depth,
        spool_oldest_at=Instant(vitals.spool_oldest_at) if vitals.spool_oldest_at else None,
        dropped=Jsonb(dict(vitals.dropped)),
        next_heartbeat_at=Instant(seen_at + vitals.next_heartbeat_us) if vitals.next_heartbeat_us else None,
    )


async def vantages(connection: Connection) -> list[VantageRow]:
    """All vantages, by name."""
    return await fetch(connection, query("vantages"), VantageRow)


async def regions(connection: Connection) -> list[str]:
    """The names of all regions ever mentioned by a vantage or a plan."""
    return [row.name for row in await fetch(connection, query("regions"), NameRow)]
