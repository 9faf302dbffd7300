"""Raises alerts and tells them: the absence of vantages is looked for here, changes come from `driftwatch`.

The laws:

1. An alert is in the database before anybody is told of it, and stays there.
2. It is told at least once: until the webhook takes it, for a day, at longer and longer intervals, whichever collector
   leads. The receiver knows repetitions by their id.
3. Without a webhook alerts are raised all the same; they are never told later.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from isochrone_collector.alerts.absence import LastAlert, VantageHeartbeat, absence_alerts
from isochrone_collector.alerts.message import AlertMessage, name_of, of_test
from isochrone_collector.errors import Conflict
from isochrone_collector.jobs.webhook import Reply, Webhook
from isochrone_collector.store import alerts, vantages
from isochrone_collector.store.alerts import DueRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

ABSENCE_CHECK_EVERY_US = 10 * SECOND_US
DELIVER_EVERY_US = 2 * SECOND_US
GIVE_UP_US = DAY_US
# Attempts are made after these pauses, and after the last of them again and again.
RETRY_PAUSES_US = tuple(
    seconds * SECOND_US for seconds in (5, 30, 2 * 60, 5 * 60, 15 * 60, 30 * 60, 60 * 60, 2 * 60 * 60, 4 * 60 * 60)
)

_AT_ONCE = 8
# Who looked so long ago did not watch in between.
_BROKE_OFF_US = 3 * ABSENCE_CHECK_EVERY_US + MINUTE_US

_log = structlog.get_logger()


def next_attempt_at(*, attempts: int, now_at: int, raised_at: int) -> int | None:
    """When an alert is told again that was told in vain `attempts` times; `None` when a day has passed."""
    again_at = now_at + RETRY_PAUSES_US[min(attempts, len(RETRY_PAUSES_US)) - 1]
    return again_at if again_at < raised_at + GIVE_UP_US else None


@dataclass(slots=True, kw_only=True)
class _Watch:
    """Since when somebody watches who is there, and when they last looked."""

    since_at: int = 0
    looked_at: int = 0

    def goes_on(self, now_at: int) -> None:
        if not 0 <= now_at - self.looked_at <= _BROKE_OFF_US:
            self.since_at = now_at
        self.looked_at = now_at


class AlertDelivery:
    """The alerts of all collectors on one database. `webhook` is `None` where none is set."""

    def __init__(self, *, database: Database, webhook: Webhook | None, clock: Callable[[], int]) -> None:
        self._database = database
        self._webhook = webhook
        self._clock = clock
        self._watch = _Watch()

    async def raise_alert(self, connection: Connection, message: AlertMessage) -> None:
        """Raise an alert within whatever transaction the connection is in, unless it is raised already."""
        due_at = message.raised_at if self._webhook else None
        if await alerts.record(connection, message, next_attempt_at=due_at):
            _log.warning("alert.raised", id=name_of(message.id), kind=message.kind.value, subject=message.subject)

    async def check_absences(self) -> None:
        """Raise alerts of who is missing and who is back."""
        async with self._database.connection() as connection:
            states = await vantages.states(connection)
            newest = await alerts.absences(connection)
        now_at = self._clock()
        self._watch.goes_on(now_at)
        heartbeats = [
            VantageHeartbeat(
                name=row.name,
                region=row.region,
                last_seen_at=row.last_seen_at,
                next_heartbeat_at=row.next_heartbeat_at,
            )
            for row in states
        ]
        last_alerts = {
            row.subject: LastAlert(kind=AlertKind(row.kind), alert_id=row.id, raised_at=row.raised_at) for row in newest
        }
        for message in absence_alerts(heartbeats, last_alerts, now_at=now_at, since_at=self._watch.since_at):
            async with self._database.connection() as connection:
                await self.raise_alert(connection, message)

    async def deliver(self) -> None:
        """Tell the webhook what is due."""
        if self._webhook is None:
            return
        async with self._database.connection() as connection:
            rows = await alerts.due(connection, now_at=self._clock(), limit=_AT_ONCE)
        await asyncio.gather(*(self._deliver_one(self._webhook, row) for row in rows))

    async def test(self) -> Alert:
        """Raise a test alert, tell it once, and return what became of it. Raises `Conflict` without a webhook."""
        if self._webhook is None:
            raise Conflict("no webhook is set at this collector: isochrone-collector serve --alert-url URL")
        message = of_test(raised_at=self._clock())
        async with self._database.connection() as connection:
            await alerts.record(connection, message, next_attempt_at=None)
        reply = await self._webhook.send(message, now_at=self._clock())
        await self._record_attempt(message, reply, attempts=1, again=False)
        async with self._database.connection() as connection:
            return await alerts.by_id(connection, message.id)

    async def _deliver_one(self, webhook: Webhook, row: DueRow) -> None:
        reply = await webhook.send(row.message, now_at=self._clock())
        await self._record_attempt(row.message, reply, attempts=row.attempts + 1, again=not reply.is_final)

    async def _record_attempt(self, message: AlertMessage, reply: Reply, *, attempts: int, again: bool) -> None:
        now_at = self._clock()
        again_at = None
        if again and not reply.taken:
            again_at = next_attempt_at(attempts=attempts, now_at=now_at, raised_at=message.raised_at)
        async with self._database.connection() as connection:
            await alerts.record_attempt(
                connection,
                message.id,
                delivered_at=now_at if reply.taken else None,
                next_attempt_at=again_at,
                error=reply.reason,
            )
        told = {"id": name_of(message.id), "kind": message.kind.value, "attempts": attempts}
        if reply.taken:
            _log.info("alert.told", **told)
        else:
            _log.warning("alert.not_told", **told, reason=reply.reason, gives_up=again_at is None)
