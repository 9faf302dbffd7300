"""Alerts. Their delivery is in `deliveries`."""

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.store.alerting import deliveries
from isochrone_collector.store.alerting.deliveries import MessageRow
from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_wire.answers import Window
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.operations import AlertDelivery, DeliveryState

MAX_LISTED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRow:
    """The last alert of some kinds about a subject."""

    id: int
    kind: str
    subject: str
    raised_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _AlertRow:
    """A stored alert; its delivery is that of a collector of an earlier version, to the webhook."""

    id: int
    kind: str
    subject: str
    sentence: str
    raised_at: int
    delivered_at: int | None
    attempts: int
    last_error: str

    def alert(self, delivered: tuple[AlertDelivery, ...]) -> Alert:
        worst = max(delivered, key=lambda one: (one.delivered_at is None, one.attempts), default=self)
        ends = [one.delivered_at or 0 for one in delivered if one.state is not DeliveryState.SILENCED]
        return Alert(
            id=self.id,
            kind=AlertKind(self.kind),
            subject=self.subject,
            sentence=self.sentence,
            raised_at=self.raised_at,
            delivered_at=(max(ends) if ends and all(ends) else None) if delivered else self.delivered_at,
            attempts=worst.attempts,
            last_error=worst.last_error,
            deliveries=delivered,
        )


async def record(connection: Connection, message: AlertMessage) -> bool:
    """Store an alert; return whether it was not raised before."""
    return await execute(
        connection,
        query("raise_alert"),
        id=message.id,
        kind=message.kind.value,
        subject=message.subject,
        sentence=message.sentence,
        details=Jsonb(dict(message.details)),
        raised_at=Instant(message.raised_at),
    )


async def of_window(connection: Connection, window: Window) -> tuple[Alert, ...]:
    """Return the newest alerts raised in a window, newest first."""
    parameters = {"from_at": Instant(window.from_at), "until_at": Instant(window.until_at), "limit": MAX_LISTED}
    return await _with_deliveries(
        connection, await fetch(connection, query("alerts_of_window"), _AlertRow, **parameters)
    )


async def by_id(connection: Connection, alert_id: int) -> Alert:
    """Return the current state of one alert. Raises `LookupError`."""
    rows = await _with_deliveries(connection, await fetch(connection, query("alert_by_id"), _AlertRow, id=alert_id))
    if not rows:
        raise LookupError(alert_id)
    return rows[0]


async def newest(connection: Connection, kinds: Iterable[AlertKind]) -> list[NewestRow]:
    """Return the last alert of some kinds about each subject."""
    return await fetch(connection, query("newest_alerts"), NewestRow, kinds=[kind.value for kind in kinds])


async def newest_of_thread(connection: Connection, thread: str, alert_id: int) -> AlertMessage | None:
    """Return the last alert about a problem: an incident, or the alert with this id, which began it."""
    rows = await fetch(connection, query("newest_of_thread"), MessageRow, thread=thread, id=alert_id)
    return rows[0].message if rows else None


async def _with_deliveries(connection: Connection, rows: list[_AlertRow]) -> tuple[Alert, ...]:
    found = await deliveries.of_alerts(connection, [row.id for row in rows])
    return tuple(row.alert(found.get(row.id, ())) for row in rows)
