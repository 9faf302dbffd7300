"""Alerts, and their deliveries to receivers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from isochrone_collector.alerts.message import Action, AlertMessage, topic_of
from isochrone_collector.alerts.notifications import OpenProblem, Pending
from isochrone_collector.store.postgres.pool import Connection, execute, fetch
from isochrone_wire.answers import Window
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.operations import AlertDelivery, DeliveryState

_MAX_PENDING = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """A stored alert."""

    id: int
    kind: str
    subject: str
    sentence: str
    details: dict[str, Any]
    raised_at: int

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
class _PendingRow(MessageRow):
    next_attempt_at: int
    first_attempt_at: int | None
    attempts: int
    repeats: int
    is_silenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRow(MessageRow):
    key: str
    delivered_at: int
    is_pending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overdue:
    receiver: str
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeliveryRow:
    alert_id: int
    receiver: str
    is_pending: bool
    delivered_at: int | None
    attempts: int
    last_error: str
    is_silenced: bool

    @property
    def delivery(self) -> AlertDelivery:
        state = DeliveryState.GIVEN_UP
        if self.is_silenced:
            state = DeliveryState.SILENCED
        elif self.delivered_at is not None:
            state = DeliveryState.DELIVERED
        elif self.is_pending:
            state = DeliveryState.PENDING
        return AlertDelivery(
            receiver=self.receiver,
            state=state,
            delivered_at=self.delivered_at,
            attempts=self.attempts,
            last_error=self.last_error,
        )


async def schedule(
    connection: Connection, message: AlertMessage, receivers: Collection[str], *, next_attempt_at: int | None
) -> None:
    """Schedule the delivery of an alert to receivers, at an instant or never."""
    thread = topic_of(message).dedup_key
    for receiver in receivers:
        await execute(
            connection,
            "add_delivery",
            alert_id=message.id,
            receiver=receiver,
            thread=thread,
            next_attempt_at=next_attempt_at,
        )


async def pending(connection: Connection, receiver: str) -> list[Pending]:
    """Return the alerts that a receiver is to get, oldest first."""
    rows = await fetch(connection, "pending_deliveries", _PendingRow, receiver=receiver, limit=_MAX_PENDING)
    return [
        Pending(
            message=row.message,
            next_attempt_at=row.next_attempt_at,
            first_attempt_at=row.first_attempt_at,
            attempts=row.attempts,
            repeats=row.repeats,
            is_silenced=row.is_silenced,
        )
        for row in rows
    ]


async def count_overdue(connection: Connection, due_by: Mapping[str, int]) -> dict[str, int]:
    """Return the number of alerts that each of some receivers should have: those that were due by its instant, or have
    been tried, without those that a silence holds.
    """
    rows = await fetch(connection, "count_overdue", _Overdue, receivers=list(due_by), due_at=list(due_by.values()))
    return dict.fromkeys(due_by, 0) | {row.receiver: row.n for row in rows}


async def open_problems(connection: Connection, receiver: str) -> list[OpenProblem]:
    """Return what a receiver knows of problems whose end it has not got, with the newest of their beginnings."""
    found: dict[str, OpenProblem] = {}
    for row in await fetch(connection, "open_deliveries", _OpenRow, receiver=receiver):
        message = row.message
        topic = topic_of(message)
        is_acknowledged = topic.action is Action.ACKNOWLEDGE
        known = found.get(topic.dedup_key)
        found[topic.dedup_key] = OpenProblem(
            message=known.message if known and is_acknowledged else message,
            key=row.key,
            delivered_at=row.delivered_at,
            is_acknowledged=is_acknowledged,
            is_pending=row.is_pending or bool(known and known.is_pending),
        )
    return list(found.values())


async def record_delivered(
    connection: Connection, receiver: str, messages: Sequence[AlertMessage], *, key: str, at: int
) -> None:
    """Record that a receiver accepted some alerts, which do the same to their problems."""
    topics = [topic_of(message) for message in messages]
    await execute(
        connection,
        "record_delivered",
        receiver=receiver,
        alert_ids=[message.id for message in messages],
        key=key,
        is_open=topics[0].action in (Action.BEGIN, Action.ACKNOWLEDGE),
        at=at,
    )
    if topics[0].action is Action.END:
        await close(connection, receiver, [topic.dedup_key for topic in topics])


async def record_failed(
    connection: Connection, receiver: str, alert_id: int, *, next_attempt_at: int | None, error: str, at: int
) -> None:
    """Record an attempt that failed, and when the next one is, if any."""
    await execute(
        connection,
        "record_failed",
        receiver=receiver,
        alert_id=alert_id,
        next_attempt_at=next_attempt_at,
        last_error=error,
        at=at,
    )


async def close(connection: Connection, receiver: str, threads: Sequence[str]) -> None:
    """Record that a receiver has the end of some problems, or will never get it."""
    await execute(connection, "close_problems", receiver=receiver, threads=list(threads))


async def hold(connection: Connection, receiver: str, held: Collection[Pending]) -> None:
    """Record that a silence holds some alerts."""
    if new := [one.message.id for one in held if not one.is_silenced]:
        await execute(connection, "hold_deliveries", receiver=receiver, alert_ids=new)


async def drop(connection: Connection, receiver: str, dropped: Collection[Pending]) -> None:
    """Record that some alerts are never sent."""
    if dropped:
        ids = [one.message.id for one in dropped]
        await execute(connection, "drop_deliveries", receiver=receiver, alert_ids=ids)


async def repeat(connection: Connection, receiver: str, alert_ids: Sequence[int], *, at: int) -> None:
    """Schedule delivered alerts once more."""
    await execute(connection, "repeat_deliveries", receiver=receiver, alert_ids=list(alert_ids), at=at)


async def of_alerts(connection: Connection, alert_ids: Sequence[int]) -> dict[int, tuple[AlertDelivery, ...]]:
    """Return the deliveries of some alerts, by alert id."""
    found: dict[int, tuple[AlertDelivery, ...]] = {}
    for row in await fetch(connection, "deliveries_of_alerts", _DeliveryRow, alert_ids=list(alert_ids)):
        found[row.alert_id] = (*found.get(row.alert_id, ()), row.delivery)
    return found


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
    id: int
    kind: str
    subject: str
    sentence: str
    raised_at: int

    def alert(self, delivered: tuple[AlertDelivery, ...]) -> Alert:
        worst = max(delivered, key=lambda one: (one.delivered_at is None, one.attempts), default=None)
        ends = [one.delivered_at or 0 for one in delivered if one.state is not DeliveryState.SILENCED]
        return Alert(
            id=self.id,
            kind=AlertKind(self.kind),
            subject=self.subject,
            sentence=self.sentence,
            raised_at=self.raised_at,
            delivered_at=max(ends) if ends and all(ends) else None,
            attempts=worst.attempts if worst else 0,
            last_error=worst.last_error if worst else "",
            deliveries=delivered,
        )


async def record(connection: Connection, message: AlertMessage) -> bool:
    """Store an alert; return whether it was not raised before."""
    return await execute(
        connection,
        "raise_alert",
        id=message.id,
        kind=message.kind.value,
        subject=message.subject,
        sentence=message.sentence,
        details=Jsonb(dict(message.details)),
        raised_at=message.raised_at,
    )


async def of_window(connection: Connection, window: Window) -> tuple[Alert, ...]:
    """Return the newest alerts raised in a window, newest first."""
    parameters = {"from_at": window.from_at, "until_at": window.until_at, "limit": MAX_LISTED}
    return await _with_deliveries(connection, await fetch(connection, "alerts_of_window", _AlertRow, **parameters))


async def by_id(connection: Connection, alert_id: int) -> Alert:
    """Return the current state of one alert. Raises `LookupError`."""
    rows = await _with_deliveries(connection, await fetch(connection, "alert_by_id", _AlertRow, id=alert_id))
    if not rows:
        raise LookupError(alert_id)
    return rows[0]


async def newest(connection: Connection, kinds: Iterable[AlertKind]) -> list[NewestRow]:
    """Return the last alert of some kinds about each subject."""
    return await fetch(connection, "newest_alerts", NewestRow, kinds=[kind.value for kind in kinds])


async def newest_of_thread(connection: Connection, thread: str, alert_id: int) -> AlertMessage | None:
    """Return the last alert about a problem: an incident, or the alert with this id, which began it."""
    rows = await fetch(connection, "newest_of_thread", MessageRow, thread=thread, id=alert_id)
    return rows[0].message if rows else None


async def _with_deliveries(connection: Connection, rows: list[_AlertRow]) -> tuple[Alert, ...]:
    found = await of_alerts(connection, [row.id for row in rows])
    return tuple(row.alert(found.get(row.id, ())) for row in rows)
