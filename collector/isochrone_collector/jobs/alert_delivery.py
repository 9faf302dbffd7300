"""Delivery of alerts to the webhook, and the check for absent vantages; changes come from `drift_detection`.

The laws:

1. An alert is stored in the database before it is delivered, and stays there.
2. Delivery is at least once: the leader retries at increasing intervals until the webhook accepts the alert, for up to
   a day. The receiver recognises repetitions by the id.
3. Without a webhook alerts are still raised, but they are not delivered later.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from isochrone_collector.alerts.absence import ABSENCE_KINDS, LastAlert, VantageHeartbeat, absence_alerts
from isochrone_collector.alerts.message import AlertMessage, name_of, of_collector, of_lost_batches, of_rival
from isochrone_collector.errors import Conflict, DatabaseUnavailable
from isochrone_collector.store import alerts, job_state, vantages
from isochrone_collector.store.alerts import DueRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from isochrone_collector.jobs.webhook import Reply, Webhook

ABSENCE_CHECK_EVERY_US = 10 * SECOND_US
DELIVER_EVERY_US = 2 * SECOND_US
GIVE_UP_US = DAY_US
# Pauses before the second, third, … attempt; the last pause repeats.
RETRY_PAUSES_US = tuple(
    seconds * SECOND_US for seconds in (5, 30, 2 * 60, 5 * 60, 15 * 60, 30 * 60, 60 * 60, 2 * 60 * 60, 4 * 60 * 60)
)

_MAX_CONCURRENT = 8
# After a longer pause between checks this collector did not lead in between.
_MAX_CHECK_GAP_US = 3 * ABSENCE_CHECK_EVERY_US + MINUTE_US

_log = structlog.get_logger()


def next_attempt_at(*, attempts: int, now_at: int, raised_at: int) -> int | None:
    """Return the next attempt's instant after `attempts` failed ones; `None` if it is a day or more after the alert."""
    next_at = now_at + RETRY_PAUSES_US[min(attempts, len(RETRY_PAUSES_US)) - 1]
    return next_at if next_at < raised_at + GIVE_UP_US else None


@dataclass(slots=True, kw_only=True)
class _Observation:
    """The period over which this collector has checked for absences without a gap, and its last check."""

    since_at: int = 0
    checked_at: int = 0

    def extend(self, now_at: int) -> None:
        """Add a check; begin a new period after a gap, or after the clock was set back."""
        if not 0 <= now_at - self.checked_at <= _MAX_CHECK_GAP_US:
            self.since_at = now_at
        self.checked_at = now_at


class AlertDelivery:
    """The alerts of all collectors on one database; `webhook` is `None` if none is set."""

    def __init__(self, *, database: Database, webhook: "Webhook | None", clock: Callable[[], int]) -> None:
        self._database = database
        self._webhook = webhook
        self._clock = clock
        self._observation = _Observation()

    async def raise_alert(self, connection: Connection, message: AlertMessage) -> None:
        """Raise an alert in the connection's current transaction, unless it is raised already."""
        due_at = message.raised_at if self._webhook else None
        if await alerts.record(connection, message, next_attempt_at=due_at):
            _log.warning("alert.raised", id=name_of(message.id), kind=message.kind.value, subject=message.subject)

    async def try_raise(self, message: AlertMessage) -> bool:
        """Raise an alert in a transaction of its own, and return whether the database could record it."""
        try:
            async with self._database.connection() as connection:
                await self.raise_alert(connection, message)
        except DatabaseUnavailable as error:
            _log.warning("alert.not_raised", reason=str(error))
            return False
        return True

    async def last_alerts(self, connection: Connection, kinds: Iterable[AlertKind]) -> dict[str, LastAlert]:
        """Return the last alert of these kinds about each subject."""
        newest = await alerts.newest(connection, kinds)
        return {
            row.subject: LastAlert(kind=AlertKind(row.kind), alert_id=row.id, raised_at=row.raised_at) for row in newest
        }

    async def check_absences(self) -> None:
        """Raise alerts for vantages that are absent or back."""
        async with self._database.connection() as connection:
            states = await vantages.states(connection, now_at=self._clock())
            last_alerts = await self.last_alerts(connection, ABSENCE_KINDS)
        now_at = self._clock()
        self._observation.extend(now_at)
        heartbeats = [
            VantageHeartbeat(
                name=row.name,
                region=row.region,
                last_seen_at=row.last_seen_at,
                next_heartbeat_at=row.next_heartbeat_at,
            )
            for row in states
        ]
        for message in absence_alerts(heartbeats, last_alerts, now_at=now_at, since_at=self._observation.since_at):
            async with self._database.connection() as connection:
                await self.raise_alert(connection, message)

    async def check_rivals(self) -> None:
        """Raise an alert for each vantage with a second agent."""
        async with self._database.connection() as connection:
            for row in await vantages.rivals(connection, now_at=self._clock()):
                since_at, raised_at = row.rival_first_at, self._clock()
                message = of_rival(row.name, row.region, epoch=row.rival_epoch, since_at=since_at, raised_at=raised_at)
                await self.raise_alert(connection, message)

    async def check_lost_batches(self) -> None:
        """Raise an alert if delivered batches are missing in the database."""
        async with self._database.connection() as connection:
            if lost_at := await job_state.batches_lost_at(connection):
                await self.raise_alert(connection, of_lost_batches(lost_at=lost_at, raised_at=self._clock()))

    async def deliver(self) -> None:
        """Send the alerts that are due to the webhook."""
        if self._webhook is None:
            return
        async with self._database.connection() as connection:
            rows = await alerts.due(connection, now_at=self._clock(), limit=_MAX_CONCURRENT)
        await asyncio.gather(*(self._deliver_one(self._webhook, row) for row in rows))

    async def test(self) -> Alert:
        """Raise a test alert, send it once, and return it with the result. Raises `Conflict` without a webhook."""
        if self._webhook is None:
            raise Conflict("this collector has no webhook: set one with `isochrone-collector serve --alert-url URL`")
        message = of_collector(AlertKind.TEST, raised_at=self._clock())
        async with self._database.connection() as connection:
            await alerts.record(connection, message, next_attempt_at=None)
        reply = await self._webhook.send(message, now_at=self._clock())
        await self._record_attempt(message, reply, attempts=1, retry=False)
        async with self._database.connection() as connection:
            return await alerts.by_id(connection, message.id)

    async def _deliver_one(self, webhook: "Webhook", row: DueRow) -> None:
        reply = await webhook.send(row.message, now_at=self._clock())
        await self._record_attempt(row.message, reply, attempts=row.attempts + 1, retry=not reply.is_final)

    async def _record_attempt(self, message: AlertMessage, reply: "Reply", *, attempts: int, retry: bool) -> None:
        now_at = self._clock()
        retry_at = None
        if retry and not reply.accepted:
            retry_at = next_attempt_at(attempts=attempts, now_at=now_at, raised_at=message.raised_at)
        async with self._database.connection() as connection:
            await alerts.record_attempt(
                connection,
                message.id,
                delivered_at=now_at if reply.accepted else None,
                next_attempt_at=retry_at,
                error=reply.reason,
            )
        context = {"id": name_of(message.id), "kind": message.kind.value, "attempts": attempts}
        if reply.accepted:
            _log.info("alert.delivered", **context)
        else:
            _log.warning("alert.not_delivered", **context, reason=reply.reason, gives_up=retry_at is None)
