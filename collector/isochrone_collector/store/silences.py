from isochrone_collector.store.postgres.pool import Connection, execute, fetch, fetch_one
from isochrone_collector.store.postgres.values import fields_of
from isochrone_wire.operations import Silence

MAX_LISTED = 1_000


async def add(connection: Connection, silence: Silence) -> None:
    """Store a silence."""
    await execute(connection, "add_silence", **fields_of(silence))


async def end(connection: Connection, silence_id: int, *, by: str, at: int) -> bool:
    """End a silence before its time; return false if there is none in force with this id."""
    return await execute(connection, "end_silence", id=silence_id, by=by, at=at)


async def by_id(connection: Connection, silence_id: int) -> Silence | None:
    """Return one silence, if there is one with this id."""
    return await fetch_one(connection, "silence_by_id", Silence, id=silence_id)


async def at(connection: Connection, now_at: int, *, past: bool = False) -> tuple[Silence, ...]:
    """Return the silences and acknowledgements in force at an instant, or with `past` all, newest first."""
    return tuple(await fetch(connection, "silences_at", Silence, at=now_at, past=past, limit=MAX_LISTED))
