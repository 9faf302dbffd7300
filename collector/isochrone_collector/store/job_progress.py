"""How far the chores have come that are done once for all collectors: instants by their names."""

from dataclasses import dataclass

from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_collector.store.postgres.queries import query


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRow:
    """One chore, done for everything before an instant."""

    name: str
    done_until: int


async def read(connection: Connection) -> dict[str, int]:
    """Until when each chore is done, in microseconds since the Unix epoch; those never done are not there."""
    return {row.name: row.done_until for row in await fetch(connection, query("progress"), ProgressRow)}


async def advance(connection: Connection, name: str, done_until: int) -> None:
    """Record until when a chore is done."""
    told = {"name": name, "done_until": Instant(done_until)}
    if not await execute(connection, query("advance"), **told):
        await execute(connection, query("begin"), **told)
