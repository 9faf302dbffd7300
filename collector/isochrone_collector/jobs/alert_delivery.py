"""Alerts of all collectors on one database: raised and stored once, with a delivery to each receiver; and the
checks for absent vantages, second agents and lost batches. Changes come from `drift_detection`; `receiver_delivery`
delivers.

Without a receiver alerts are still raised, but they are not delivered later.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from isochrone_collector.alerts.absence import ABSENCE_KINDS, LastAlert, VantageHeartbeat, absence_alerts
from isochrone_collector.alerts.message import AlertMessage, of_collector, of_lost_batches, of_rival
from isochrone_collector.errors import Conflict, DatabaseUnavailable, UnknownName
from isochrone_collector.store import job_state, vantages
from isochrone_collector.store.alerting import alerts, deliveries
from isochrone_collector.store.notifications import Channel, notify
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.operations import alert_name

if TYPE_CHECKING:
    from isochrone_collector.jobs.receiver_delivery import ReceiverDelivery

ABSENCE_CHECK_EVERY_US = 10 * SECOND_US
# After a longer pause between checks this collector did not lead in between.
_MAX_CHECK_GAP_US = 3 * ABSENCE_CHECK_EVERY_US + MINUTE_US

_log = structlog.get_logger()


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
    """The alerts of all collectors on one database; `receivers` are the deliveries to each receiver."""

    def __init__(
        self, *, database: Database, clock: Callable[[], int], receivers: "Sequence[ReceiverDelivery]" = ()
    ) -> None:
        self._database = database
        self._clock = clock
        self._observation = _Observation()
        self.receivers = tuple(receivers)

    def wake(self) -> None:
        """Deliver now: alerts were raised."""
        for one in self.receivers:
            one.woken.set()

    async def raise_alert(self, connection: Connection, message: AlertMessage) -> None:
        """Raise an alert in the connection's current transaction, unless it is raised already."""
        if not await alerts.record(connection, message):
            return
        names = [one.name for one in self.receivers if one.wants(message)]
        await deliveries.add(connection, message, names, next_attempt_at=message.raised_at)
        await notify(connection, Channel.ALERTS)
        _log.warning("alert.raised", id=alert_name(message.id), kind=message.kind.value, subject=message.subject)

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

    async def test(self, receiver: str = "") -> Alert:
        """Raise a test alert, send it once to one receiver or to all, and return it with the results. Raises
        `Conflict` without a receiver, and `UnknownName`.
        """
        names = [one.name for one in self.receivers]
        if not names:
            raise Conflict("this collector has no receiver: set one with `isochrone-collector serve --alert-url URL`")
        if receiver and receiver not in names:
            raise UnknownName.among("receiver", receiver, names)
        chosen = [one for one in self.receivers if receiver in ("", one.name)]
        message = of_collector(AlertKind.TEST, raised_at=self._clock())
        async with self._database.transaction() as connection:
            await alerts.record(connection, message)
            await deliveries.add(connection, message, [one.name for one in chosen], next_attempt_at=None)
        await asyncio.gather(*(one.test(message) for one in chosen))
        async with self._database.connection() as connection:
            return await alerts.by_id(connection, message.id)
