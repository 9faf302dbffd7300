from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from isochrone_collector.alerts.conditions import LastAlert
from isochrone_collector.alerts.message import Action, AlertMessage, topic_of
from isochrone_collector.alerts.notifications import OpenProblem, Pending
from isochrone_collector.store.postgres.pool import Connection, execute, fetch, fetch_one, fetch_records, fetch_tuples
from isochrone_collector.store.postgres.values import fields_of
from isochrone_wire.answers import Window
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.operations import AlertDelivery, DeliveryState

_MAX_PENDING = 5_000


def _message(row: dict[str, Any]) -> AlertMessage:
    """Take the alert out of a row."""
    own = {one.name: row.pop(one.name) for one in fields(AlertMessage)}
    return AlertMessage(**own | {"kind": AlertKind(own["kind"])})


async def schedule(
    connection: Connection, message: AlertMessage, receivers: Collection[str], *, next_attempt_at: int | None
) -> None:
    """Schedule the delivery of an alert to receivers, at an instant or never."""
    own = {"alert_id": message.id, "thread": topic_of(message).dedup_key, "next_attempt_at": next_attempt_at}
    for receiver in receivers:
        await execute(connection, "add_delivery", receiver=receiver, **own)


async def pending(connection: Connection, receiver: str) -> list[Pending]:
    """Return the alerts that a receiver is to get, oldest first."""
    rows = await fetch_records(connection, "pending_deliveries", receiver=receiver, limit=_MAX_PENDING)
    return [Pending(message=_message(row), **row) for row in rows]


async def count_overdue(connection: Connection, due_by: Mapping[str, int]) -> dict[str, int]:
    """Return the number of alerts of each receiver that were due by its instant or tried, and are not silenced."""
    asked = {"receivers": list(due_by), "due_at": list(due_by.values())}
    return dict.fromkeys(due_by, 0) | dict(await fetch_tuples(connection, "count_overdue", **asked))


async def open_problems(connection: Connection, receiver: str) -> list[OpenProblem]:
    """Return what a receiver knows of problems whose end it has not got, with the newest of their beginnings."""
    found: dict[str, OpenProblem] = {}
    for row in await fetch_records(connection, "open_deliveries", receiver=receiver):
        message = _message(row)
        topic = topic_of(message)
        is_acknowledged = topic.action is Action.ACKNOWLEDGE
        known = found.get(topic.dedup_key)
        found[topic.dedup_key] = OpenProblem(
            message=known.message if known and is_acknowledged else message,
            key=row["key"],
            delivered_at=row["delivered_at"],
            is_acknowledged=is_acknowledged,
            is_pending=row["is_pending"] or bool(known and known.is_pending),
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
    found = {"next_attempt_at": next_attempt_at, "last_error": error, "at": at}
    await execute(connection, "record_failed", receiver=receiver, alert_id=alert_id, **found)


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
    for row in await fetch_records(connection, "deliveries_of_alerts", alert_ids=list(alert_ids)):
        alert_id, is_pending, is_silenced = (row.pop(name) for name in ("alert_id", "is_pending", "is_silenced"))
        state = DeliveryState.PENDING if is_pending else DeliveryState.GIVEN_UP
        if is_silenced or row["delivered_at"] is not None:
            state = DeliveryState.SILENCED if is_silenced else DeliveryState.DELIVERED
        found[alert_id] = (*found.get(alert_id, ()), AlertDelivery(**row, state=state))
    return found


MAX_LISTED = 1_000


def _with(alert: Alert, delivered: tuple[AlertDelivery, ...]) -> Alert:
    if not delivered:
        return alert
    worst = max(delivered, key=lambda one: (one.delivered_at is None, one.attempts))
    ends = [one.delivered_at or 0 for one in delivered if one.state is not DeliveryState.SILENCED]
    return replace(
        alert,
        delivered_at=max(ends) if ends and all(ends) else None,
        attempts=worst.attempts,
        last_error=worst.last_error,
        deliveries=delivered,
    )


async def record(connection: Connection, message: AlertMessage) -> bool:
    """Store an alert; return whether it was not raised before."""
    return await execute(connection, "raise_alert", **fields_of(message))


async def of_window(connection: Connection, window: Window) -> tuple[Alert, ...]:
    """Return the newest alerts raised in a window, newest first."""
    found = await fetch(connection, "alerts_of_window", Alert, **fields_of(window), limit=MAX_LISTED)
    deliveries = await of_alerts(connection, [alert.id for alert in found])
    return tuple(_with(alert, deliveries.get(alert.id, ())) for alert in found)


async def by_id(connection: Connection, alert_id: int) -> Alert:
    """Return the current state of one alert. Raises `LookupError`."""
    found = await fetch_one(connection, "alert_by_id", Alert, id=alert_id)
    if found is None:
        raise LookupError(alert_id)
    return _with(found, (await of_alerts(connection, [alert_id])).get(alert_id, ()))


async def newest(connection: Connection, kinds: Iterable[AlertKind]) -> dict[str, LastAlert]:
    """Return the last alert of some kinds about each subject."""
    rows = await fetch_tuples(connection, "newest_alerts", kinds=list(kinds))
    return {subject: LastAlert(AlertKind(kind), alert_id, at) for alert_id, kind, subject, at in rows}


async def newest_of_thread(connection: Connection, thread: str, alert_id: int) -> AlertMessage | None:
    """Return the last alert about a problem: an incident, or the alert with this id, which began it."""
    return await fetch_one(connection, "newest_of_thread", AlertMessage, thread=thread, id=alert_id)
