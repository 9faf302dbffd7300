"""Alerts, and the results of their delivery."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_wire.answers import Window
from isochrone_wire.insights import Alert, AlertKind

MAX_LISTED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRow:
    """An alert to be delivered now, with the number of attempts so far."""

    id: int
    kind: str
    subject: str
    sentence: str
    details: dict[str, Any]
    raised_at: int
    attempts: int

    @property
    def message(self) -> AlertMessage:
        """Return its message."""
        return AlertMessage(
            id=self.id,
            kind=AlertKind(self.kind),
            subject=self.subject,
            sentence=self.sentence,
            details=self.details,
            raised_at=self.raised_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRow:
    """The last alert of some kinds about a subject."""

    id: int
    kind: str
    subject: str
    raised_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _AlertRow:
    id: int
    kind: str
    subject: str
    sentence: str
    raised_at: int
    delivered_at: int | None
    attempts: int
    last_error: str

    @property
    def alert(self) -> Alert:
        return Alert(
            id=self.id,
            kind=AlertKind(self.kind),
            subject=self.subject,
            sentence=self.sentence,
            raised_at=self.raised_at,
            delivered_at=self.delivered_at,
            attempts=self.attempts,
            last_error=self.last_error,
        )


async def record(connection: Connection, message: AlertMessage, *, next_attempt_at: int | None) -> bool:
    """Raise an alert, to be delivered at an instant or never; return whether it was not raised before."""
    return await execute(
        connection,
        query("raise_alert"),
        id=message.id,
        kind=message.kind.value,
        subject=message.subject,
        sentence=message.sentence,
        details=Jsonb(dict(message.details)),
        raised_at=Instant(message.raised_at),
        next_attempt_at=_instant(next_attempt_at),
    )


async def due(connection: Connection, *, now_at: int, limit: int) -> list[DueRow]:
    """Return the alerts that are to be delivered now."""
    return await fetch(connection, query("due_alerts"), DueRow, now_at=Instant(now_at), limit=limit)


async def record_attempt(
    connection: Connection, alert_id: int, *, delivered_at: int | None, next_attempt_at: int | None, error: str
) -> None:
    """Record the result of an attempt to deliver an alert."""
    await execute(
        connection,
        query("record_attempt"),
        id=alert_id,
        delivered_at=_instant(delivered_at),
        next_attempt_at=_instant(next_attempt_at),
        last_error=error,
    )


async def of_window(connection: Connection, window: Window) -> tuple[Alert, ...]:
    """Return the newest alerts raised in a window, newest first."""
    parameters = {"from_at": Instant(window.from_at), "until_at": Instant(window.until_at), "limit": MAX_LISTED}
    return tuple(row.alert for row in await fetch(connection, query("alerts_of_window"), _AlertRow, **parameters))


async def by_id(connection: Connection, alert_id: int) -> Alert:
    """Return the current state of one alert. Raises `LookupError`."""
    rows = await fetch(connection, query("alert_by_id"), _AlertRow, id=alert_id)
    if not rows:
        raise LookupError(alert_id)
    return rows[0].alert


async def newest(connection: Connection, kinds: Iterable[AlertKind]) -> list[NewestRow]:
    """Return the last alert of some kinds about each subject."""
    return await fetch(connection, query("newest_alerts"), NewestRow, kinds=[kind.value for kind in kinds])


def _instant(at: int | None) -> Instant | None:
    return None if at is None else Instant(at)
