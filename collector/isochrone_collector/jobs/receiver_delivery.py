"""Delivery of alerts to one receiver.

The laws:

1. An alert is stored with a delivery for each receiver before it is sent, and stays there.
2. Delivery is at least once: the leader retries at increasing intervals until the receiver accepts the alert, for up to
   a day, and the end of a problem that the receiver knows for up to a week. A repetition of an attempt has the same id.
3. Everything about one problem arrives in order. Each receiver has a job and connections of its own: none waits for
   another one.
4. Silences hold alerts (see `alerts.silences`); open incidents are repeated, unless they are silenced or acknowledged.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus

import structlog

from isochrone_collector.alerts import grouping
from isochrone_collector.alerts.formats import opsgenie, pagerduty, slack, standard, template
from isochrone_collector.alerts.formats.request import HttpRequest
from isochrone_collector.alerts.grouping import OpenProblem
from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.alerts.notification import Notification, State
from isochrone_collector.alerts.silences import Pending, sift, silences_alert
from isochrone_collector.alerts.topic import Action, topic_of
from isochrone_collector.jobs.alert_sender import AlertSender, Reply
from isochrone_collector.receivers import Format, Receiver
from isochrone_collector.store.alerting import alerts, deliveries, incidents, silences
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.operations import Silence, incident_name

GIVE_UP_US = DAY_US
GIVE_UP_END_US = 7 * DAY_US
# Pauses before the second, third, … attempt; the last pause repeats.
RETRY_PAUSES_US = tuple(
    seconds * SECOND_US for seconds in (5, 30, 2 * 60, 5 * 60, 15 * 60, 30 * 60, 60 * 60, 2 * 60 * 60, 4 * 60 * 60)
)

_MAX_CONCURRENT = 8
_REPEATS_EVERY_US = 10 * SECOND_US
_BAD_REQUEST, _UNPROCESSABLE = HTTPStatus.BAD_REQUEST.value, HTTPStatus.UNPROCESSABLE_ENTITY.value

_REQUEST: Mapping[Format, Callable[..., HttpRequest]] = {
    Format.STANDARD: standard.request,
    Format.SLACK: slack.request,
    Format.PAGERDUTY: pagerduty.request,
    Format.OPSGENIE: opsgenie.request,
    Format.TEMPLATE: template.request,
}
# The responses after which the same request never succeeds, besides 410.
_FINAL = {
    Format.SLACK: (_BAD_REQUEST,),
    Format.PAGERDUTY: (_BAD_REQUEST,),
    Format.OPSGENIE: (_BAD_REQUEST, _UNPROCESSABLE),
}

_log = structlog.get_logger()


def next_attempt_at(*, attempts: int, now_at: int, first_at: int, give_up_us: int = GIVE_UP_US) -> int | None:
    """Return the next attempt's instant after `attempts` failed ones; `None` if it is `give_up_us` or more after the
    first.
    """
    next_at = now_at + RETRY_PAUSES_US[min(attempts, len(RETRY_PAUSES_US)) - 1]
    return next_at if next_at < first_at + give_up_us else None


class ReceiverDelivery:
    """The deliveries to one receiver. `adopts` is true for the one that gets what earlier versions raised. `results`
    counts the alerts that were sent since the start, those that failed once for each attempt.
    """

    EVERY_US = 2 * SECOND_US
    """Interval of `run`, in microseconds, for attempts that are due later; `woken` is set when an alert is raised."""

    def __init__(
        self, receiver: Receiver, *, database: Database, clock: Callable[[], int], adopts: bool = False
    ) -> None:
        self.receiver = receiver
        self._database = database
        self._clock = clock
        self._adopts = adopts
        self._sender = AlertSender()
        self.woken = asyncio.Event()
        self.results = dict.fromkeys(("delivered", "failed", "given_up"), 0)
        self._paused_until = 0
        self._repeated_at = 0

    @property
    def name(self) -> str:
        """The name of the receiver."""
        return self.receiver.name

    def wants(self, message: AlertMessage) -> bool:
        """Return whether the receiver gets an alert of this kind."""
        kinds = self.receiver.kinds
        return kinds is None or message.kind is AlertKind.TEST or topic_of(message).kind in kinds

    async def close(self) -> None:
        """Close the connections."""
        await self._sender.close()

    async def run(self) -> None:
        """Send what is due. Raises `DatabaseUnavailable`."""
        now_at = self._clock()
        if self._adopts:
            await self._adopt()
        async with self._database.connection() as connection:
            pending = await deliveries.pending(connection, self.name)
            repeats = self._looks_for_repetitions(now_at)
            if not pending and not repeats:
                return
            known = await deliveries.open_problems(connection, self.name)
            in_force = await silences.at(connection, now_at)
            if repeats and await self._repeat(connection, known, in_force, now_at):
                pending = await deliveries.pending(connection, self.name)
            sifted = sift(pending, {one.topic.thread for one in known}, in_force, now_at=now_at)
            await deliveries.hold(connection, self.name, sifted.held)
            await deliveries.drop(connection, self.name, sifted.dropped)
        if now_at < self._paused_until:
            return
        due = list(grouping.due(sifted.eligible, known, window_us=self.receiver.group_us, now_at=now_at))
        open_threads = {one.topic.thread for one in known}
        await asyncio.gather(*(self._deliver(one, open_threads) for one in due[:_MAX_CONCURRENT]))

    async def test(self, message: AlertMessage) -> None:
        """Send a test alert once, and record the result; an alert that it opens is resolved at once."""
        one = Pending(message=message, next_attempt_at=message.raised_at)
        key = one.topic.thread
        reply = await self._send(Notification(key=key, state=State.TRIGGER, alerts=(one,)))
        if reply.accepted and self.receiver.format in (Format.PAGERDUTY, Format.OPSGENIE):
            reply = await self._send(Notification(key=key, state=State.RESOLVE, alerts=(one,)))
        await self._record(Notification(key=key, state=State.TRIGGER, alerts=(one,)), reply, retry=False)

    async def _adopt(self) -> None:
        async with self._database.transaction() as connection:
            for message in await alerts.adopt(connection):
                await deliveries.add(connection, message, [self.name], next_attempt_at=message.raised_at)

    def _looks_for_repetitions(self, now_at: int) -> bool:
        """Return whether this run looks for incidents to repeat: one in ten seconds, if the receiver wants any."""
        if not self.receiver.repeat_us or 0 <= now_at - self._repeated_at < _REPEATS_EVERY_US:
            return False
        self._repeated_at = now_at
        return True

    async def _repeat(
        self, connection: Connection, known: Sequence[OpenProblem], in_force: Sequence[Silence], now_at: int
    ) -> bool:
        """Schedule the incidents that are open, and of which the receiver has not heard for its repeat interval; return
        whether there are any.
        """
        silent = [one for one in known if not one.is_pending and now_at - one.delivered_at >= self.receiver.repeat_us]
        if not silent:
            return False
        still_open = {incident_name(one) for one in await incidents.open_ids(connection)}
        ids = [
            one.message.id
            for one in silent
            if one.topic.thread in still_open and not _is_quiet(one, in_force, now_at=now_at)
        ]
        await deliveries.repeat(connection, self.name, ids, at=now_at)
        return bool(ids)

    async def _deliver(self, notification: Notification, open_threads: Collection[str]) -> None:
        reply = await self._send(notification)
        is_final = reply.status in (HTTPStatus.GONE, *_FINAL.get(self.receiver.format, ()))
        await self._record(notification, reply, retry=not is_final, open_threads=open_threads)

    async def _send(self, notification: Notification) -> Reply:
        request = _REQUEST[self.receiver.format](notification, self.receiver, now_at=self._clock())
        reply = await self._sender.send(request)
        if reply.wait_us:
            self._paused_until = self._clock() + reply.wait_us
        return reply

    async def _record(
        self,
        notification: Notification,
        reply: Reply,
        *,
        retry: bool,
        open_threads: Collection[str] = (),
    ) -> None:
        now_at, messages = self._clock(), [one.message for one in notification.alerts]
        given_up = 0
        async with self._database.transaction() as connection:
            if reply.accepted:
                await deliveries.record_delivered(connection, self.name, messages, key=notification.key, at=now_at)
            for one in () if reply.accepted else notification.alerts:
                retry_at = self._retry_at(one, reply, now_at, open_threads) if retry else None
                given_up += retry_at is None
                await deliveries.record_failed(
                    connection, self.name, one.message.id, next_attempt_at=retry_at, error=reply.reason, at=now_at
                )
                if retry_at is None and one.topic.action is Action.END:
                    await deliveries.close(connection, self.name, [one.topic.thread])
        self.results["delivered" if reply.accepted else "failed"] += len(messages)
        self.results["given_up"] += given_up
        context = {
            "receiver": self.name,
            "id": notification.id,
            "kind": messages[0].kind.value,
            "alerts": len(messages),
            "attempts": notification.alerts[0].attempts + 1,
        }
        if reply.accepted:
            _log.info("alert.delivered", **context)
        else:
            _log.warning("alert.not_delivered", **context, reason=reply.reason, gives_up=bool(given_up))

    def _retry_at(self, one: Pending, reply: Reply, now_at: int, open_threads: Collection[str]) -> int | None:
        is_end = one.topic.action is Action.END and one.topic.thread in open_threads
        retry_at = next_attempt_at(
            attempts=one.attempts + 1,
            now_at=now_at,
            first_at=one.first_attempt_at or now_at,
            give_up_us=GIVE_UP_END_US if is_end else GIVE_UP_US,
        )
        return None if retry_at is None else max(retry_at, now_at + reply.wait_us)


def _is_quiet(one: OpenProblem, in_force: Sequence[Silence], *, now_at: int) -> bool:
    """Return whether a problem is acknowledged or silenced."""
    return any(
        silence.thread == one.topic.thread or silences_alert(silence, one.message, now_at=now_at)
        for silence in in_force
    )
