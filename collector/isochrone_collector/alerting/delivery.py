"""Delivery of alerts to one receiver.

The laws:

1. An alert is stored with a delivery for each receiver before it is sent, and stays there.
2. Delivery is at least once: the leader retries at increasing intervals until the receiver accepts the alert, for up to
   a day, and the end of a problem that the receiver knows for up to a week. A repetition of an attempt has the same id.
3. Everything about one problem arrives in order. Each receiver has its own job and connections: none waits for
   another one.
4. Silences hold alerts (see `alerts.notifications`); open incidents are repeated, unless they are silenced
   or acknowledged.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import httpx
import structlog

from isochrone_collector.alerts.formats import HttpRequest, request_of
from isochrone_collector.alerts.message import Action, AlertMessage, topic_of
from isochrone_collector.alerts.notifications import (
    Notification,
    OpenProblem,
    Pending,
    State,
    due_notifications,
    sift,
    silences_alert,
)
from isochrone_collector.receivers import Format, Receiver
from isochrone_collector.store import alerts, incidents, silences
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire import __version__
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.operations import Silence, incident_name

TIMEOUT_S = 5.0
_MAX_WAIT_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of an attempt, the status of a response, and how long the receiver wants no further request."""

    accepted: bool
    reason: str = ""
    status: int | None = None
    wait_us: int = 0


async def _post(client: httpx.AsyncClient, request: HttpRequest) -> Reply:
    """Send a request. Errors are returned in the reply, without anything of the address. Redirects are not followed; of
    a response only status and headers are read.
    """
    stream = client.stream("POST", request.url, content=request.body, headers=dict(request.headers))
    try:
        async with asyncio.timeout(TIMEOUT_S), stream as response:
            if response.is_success:
                return Reply(accepted=True, status=response.status_code)
            reason = f"{response.status_code} {response.reason_phrase}".strip()
            if response.is_redirect:
                reason += "; redirects are not followed"
            # A date counts as none.
            retry_after = response.headers.get("retry-after", "")
            wait_us = min(int(retry_after), _MAX_WAIT_S) * SECOND_US if retry_after.isdecimal() else 0
            return Reply(accepted=False, reason=reason, status=response.status_code, wait_us=wait_us)
    except (TimeoutError, httpx.TimeoutException):
        return Reply(accepted=False, reason=f"no response within {TIMEOUT_S:g} s")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # The text of the error may quote the address.
        reason = next((words for kind, words in _KINDS if isinstance(error, kind)), type(error).__name__)
        return Reply(accepted=False, reason=reason)


_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectError, "no connection"),
    (httpx.RemoteProtocolError, "the response is not HTTP"),
    (httpx.NetworkError, "the connection was lost"),
    (httpx.ProxyError, "the proxy failed"),
)


GIVE_UP_US = DAY_US
GIVE_UP_END_US = 7 * DAY_US
# Pauses before the second, third, … attempt; the last pause repeats.
RETRY_PAUSES_US = tuple(
    seconds * SECOND_US for seconds in (5, 30, 2 * 60, 5 * 60, 15 * 60, 30 * 60, 60 * 60, 2 * 60 * 60, 4 * 60 * 60)
)

_MAX_CONCURRENT = 8
_REPEATS_EVERY_US = 10 * SECOND_US
_BAD_REQUEST, _UNPROCESSABLE = HTTPStatus.BAD_REQUEST.value, HTTPStatus.UNPROCESSABLE_ENTITY.value

# The responses after which the same request never succeeds, besides 410.
_FINAL = {
    Format.SLACK: (_BAD_REQUEST,),
    Format.PAGERDUTY: (_BAD_REQUEST,),
    Format.OPSGENIE: (_BAD_REQUEST, _UNPROCESSABLE),
}

_log = structlog.get_logger()


def next_attempt_at(*, attempts: int, now_at: int, first_at: int, give_up_us: int = GIVE_UP_US) -> int | None:
    """Return the next attempt's instant after `attempts` failed ones; `None` if that is too long after the first."""
    next_at = now_at + RETRY_PAUSES_US[min(attempts, len(RETRY_PAUSES_US)) - 1]
    return next_at if next_at < first_at + give_up_us else None


class ReceiverDelivery:
    """The deliveries to one receiver. `results` counts alerts sent since the start, failed ones once per attempt."""

    EVERY_US = 2 * SECOND_US
    """Interval of `run`, in microseconds, for attempts that are due later; `woken` is set when an alert is raised."""

    def __init__(self, receiver: Receiver, *, database: Database, clock: Callable[[], int]) -> None:
        self.receiver = receiver
        self._database = database
        self._clock = clock
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            timeout=TIMEOUT_S,
            headers={"user-agent": f"isochrone/{__version__}", "content-type": "application/json"},
        )
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
        await self._client.aclose()

    async def run(self) -> None:
        """Send what is due. Raises `DatabaseUnavailable`."""
        now_at = self._clock()
        async with self._database.connection() as connection:
            pending = await alerts.pending(connection, self.name)
            repeats = self._looks_for_repetitions(now_at)
            if not pending and not repeats:
                return
            known = await alerts.open_problems(connection, self.name)
            in_force = await silences.at(connection, now_at)
            if repeats and await self._repeat(connection, known, in_force, now_at):
                pending = await alerts.pending(connection, self.name)
            sifted = sift(pending, {one.topic.dedup_key for one in known}, in_force, now_at=now_at)
            await alerts.hold(connection, self.name, sifted.held)
            await alerts.drop(connection, self.name, sifted.dropped)
        if now_at < self._paused_until:
            return
        due = list(due_notifications(sifted.eligible, known, window_us=self.receiver.group_us, now_at=now_at))
        open_keys = {one.topic.dedup_key for one in known}
        await asyncio.gather(*(self._deliver(one, open_keys) for one in due[:_MAX_CONCURRENT]))

    async def test(self, message: AlertMessage) -> None:
        """Send a test alert once, and record the result; an alert that it opens is resolved at once."""
        one = Pending(message=message, next_attempt_at=message.raised_at)
        key = one.topic.dedup_key
        reply = await self._send(Notification(key=key, state=State.TRIGGER, alerts=(one,)))
        if reply.accepted and self.receiver.format in (Format.PAGERDUTY, Format.OPSGENIE):
            reply = await self._send(Notification(key=key, state=State.RESOLVE, alerts=(one,)))
        await self._record(Notification(key=key, state=State.TRIGGER, alerts=(one,)), reply, retry=False)

    def _looks_for_repetitions(self, now_at: int) -> bool:
        """Return whether this run looks for incidents to repeat: one in ten seconds, if the receiver wants any."""
        if not self.receiver.repeat_us or 0 <= now_at - self._repeated_at < _REPEATS_EVERY_US:
            return False
        self._repeated_at = now_at
        return True

    async def _repeat(
        self, connection: Connection, known: Sequence[OpenProblem], in_force: Sequence[Silence], now_at: int
    ) -> bool:
        """Schedule the open incidents without news for the repeat interval; return whether there are any."""
        silent = [one for one in known if not one.is_pending and now_at - one.delivered_at >= self.receiver.repeat_us]
        if not silent:
            return False
        still_open = {incident_name(one) for one in await incidents.open_ids(connection)}
        ids = [
            one.message.id
            for one in silent
            if one.topic.dedup_key in still_open
            and not any(
                silence.thread == one.topic.dedup_key or silences_alert(silence, one.message, now_at=now_at)
                for silence in in_force
            )
        ]
        await alerts.repeat(connection, self.name, ids, at=now_at)
        return bool(ids)

    async def _deliver(self, notification: Notification, open_keys: Collection[str]) -> None:
        reply = await self._send(notification)
        is_final = reply.status in (HTTPStatus.GONE, *_FINAL.get(self.receiver.format, ()))
        await self._record(notification, reply, retry=not is_final, open_keys=open_keys)

    async def _send(self, notification: Notification) -> Reply:
        reply = await _post(self._client, request_of(notification, self.receiver, now_at=self._clock()))
        if reply.wait_us:
            self._paused_until = self._clock() + reply.wait_us
        return reply

    async def _record(
        self, notification: Notification, reply: Reply, *, retry: bool, open_keys: Collection[str] = ()
    ) -> None:
        now_at, messages = self._clock(), [one.message for one in notification.alerts]
        given_up = 0
        async with self._database.transaction() as connection:
            if reply.accepted:
                await alerts.record_delivered(connection, self.name, messages, key=notification.key, at=now_at)
            for one in () if reply.accepted else notification.alerts:
                retry_at = self._retry_at(one, reply, now_at, open_keys) if retry else None
                given_up += retry_at is None
                await alerts.record_failed(
                    connection, self.name, one.message.id, next_attempt_at=retry_at, error=reply.reason, at=now_at
                )
                if retry_at is None and one.topic.action is Action.END:
                    await alerts.close(connection, self.name, [one.topic.dedup_key])
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

    def _retry_at(self, one: Pending, reply: Reply, now_at: int, open_keys: Collection[str]) -> int | None:
        is_end = one.topic.action is Action.END and one.topic.dedup_key in open_keys
        retry_at = next_attempt_at(
            attempts=one.attempts + 1,
            now_at=now_at,
            first_at=one.first_attempt_at or now_at,
            give_up_us=GIVE_UP_END_US if is_end else GIVE_UP_US,
        )
        return None if retry_at is None else max(retry_at, now_at + reply.wait_us)
