"""Silences of alerts, and acknowledgements of problems."""

from dataclasses import dataclass

from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_wire.operations import Silence

MAX_LISTED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _SilenceRow:
    id: int
    targets: list[str]
    providers: list[str]
    regions: list[str]
    kinds: list[str]
    thread: str
    subject: str
    reason: str
    created_by: str
    created_at: int
    until_at: int
    ended_at: int | None
    ended_by: str

    @property
    def silence(self) -> Silence:
        return Silence(
            id=self.id,
            targets=tuple(self.targets),
            providers=tuple(self.providers),
            regions=tuple(self.regions),
            kinds=tuple(self.kinds),
            thread=self.thread,
            subject=self.subject,
            reason=self.reason,
            created_by=self.created_by,
            created_at=self.created_at,
            until_at=self.until_at,
            ended_at=self.ended_at,
            ended_by=self.ended_by,
        )


async def add(connection: Connection, silence: Silence) -> None:
    """Store a silence."""
    await execute(
        connection,
        "add_silence",
        id=silence.id,
        targets=list(silence.targets),
        providers=list(silence.providers),
        regions=list(silence.regions),
        kinds=list(silence.kinds),
        thread=silence.thread,
        subject=silence.subject,
        reason=silence.reason,
        created_by=silence.created_by,
        created_at=silence.created_at,
        until_at=silence.until_at,
    )


async def end(connection: Connection, silence_id: int, *, by: str, at: int) -> bool:
    """End a silence before its time; return false if there is none in force with this id."""
    return await execute(connection, "end_silence", id=silence_id, by=by, at=at)


async def by_id(connection: Connection, silence_id: int) -> Silence | None:
    """Return one silence, if there is one with this id."""
    rows = await fetch(connection, "silence_by_id", _SilenceRow, id=silence_id)
    return rows[0].silence if rows else None


async def at(connection: Connection, now_at: int, *, past: bool = False) -> tuple[Silence, ...]:
    """Return the silences and acknowledgements in force at an instant, or with `past` all, newest first."""
    rows = await fetch(connection, "silences_at", _SilenceRow, at=now_at, past=past, limit=MAX_LISTED)
    return tuple(row.silence for row in rows)
