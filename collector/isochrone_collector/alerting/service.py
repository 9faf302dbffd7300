"""Alerts of all collectors on one database: raised and stored once, with a delivery to each receiver; silences and
acknowledgements by operators; and the state of alerting for metrics.

Alerts without a receiver are still raised, but not delivered later.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from isochrone_collector.alerts.conditions import ABSENCE_KINDS, absence_alerts
from isochrone_collector.alerts.message import (
    Action,
    AlertMessage,
    alert,
    of_duplicate_agent,
    of_lost_batches,
    of_test,
    topic_of,
)
from isochrone_collector.errors import BadRequest, Conflict, DatabaseUnavailable, UnknownName
from isochrone_collector.plans.service import Plans
from isochrone_collector.receivers import Receiver
from isochrone_collector.store import alerts, audit, incidents, job_state, silences, vantages
from isochrone_collector.store.job_state import Channel, notify
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_common.probe_metrics import labels_of
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.json_format import minute
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.operations import Silence, SilenceList, alert_name, silence_name
from isochrone_wire.text import unknown

if TYPE_CHECKING:
    from isochrone_collector.alerting.delivery import ReceiverDelivery

ABSENCE_CHECK_EVERY_US = 10 * SECOND_US
# After a longer pause between checks this collector did not lead in between.
_MAX_CHECK_GAP_US = 3 * ABSENCE_CHECK_EVERY_US + MINUTE_US

_log = structlog.get_logger()


@dataclass(eq=False, kw_only=True)
class AlertService:
    """The alerts of all collectors on one database; `receivers` are the deliveries to each receiver."""

    database: Database
    clock: Callable[[], int]
    receivers: "Sequence[ReceiverDelivery]" = ()

    def __post_init__(self) -> None:
        # The period over which this collector has checked for absences without a gap.
        self._checked_since_at = self._checked_at = 0

    def wake(self) -> None:
        """Deliver now: alerts were raised."""
        for one in self.receivers:
            one.woken.set()

    async def raise_alert(self, connection: Connection, message: AlertMessage) -> None:
        """Raise an alert in the connection's current transaction, unless it is raised already."""
        if not await alerts.record(connection, message):
            return
        names = [one.name for one in self.receivers if one.wants(message)]
        await alerts.schedule(connection, message, names, next_attempt_at=message.raised_at)
        await notify(connection, Channel.ALERTS)
        _log.warning("alert.raised", id=alert_name(message.id), kind=message.kind.value, subject=message.subject)

    async def try_raise(self, message: AlertMessage) -> bool:
        """Raise an alert in a separate transaction, and return whether the database could record it."""
        try:
            async with self.database.connection() as connection:
                await self.raise_alert(connection, message)
        except DatabaseUnavailable as error:
            _log.warning("alert.not_raised", reason=str(error))
            return False
        return True

    async def check_absences(self) -> None:
        """Raise alerts for vantages that are absent or back."""
        async with self.database.connection() as connection:
            states = await vantages.states(connection, now_at=self.clock())
            last_alerts = await alerts.newest(connection, ABSENCE_KINDS)
        now_at = self.clock()
        # A gap, or a clock that was set back, begins a new period.
        if not 0 <= now_at - self._checked_at <= _MAX_CHECK_GAP_US:
            self._checked_since_at = now_at
        self._checked_at = now_at
        for message in absence_alerts(states, last_alerts, now_at=now_at, since_at=self._checked_since_at):
            async with self.database.connection() as connection:
                await self.raise_alert(connection, message)

    async def check_duplicate_agents(self) -> None:
        """Raise an alert for each vantage with a second agent."""
        async with self.database.connection() as connection:
            for name, region, epoch, since_at in await vantages.duplicates(connection, now_at=self.clock()):
                message = of_duplicate_agent(name, region, epoch=epoch, since_at=since_at, raised_at=self.clock())
                await self.raise_alert(connection, message)

    async def check_lost_batches(self) -> None:
        """Raise an alert if delivered batches are missing in the database."""
        async with self.database.connection() as connection:
            if lost_at := await job_state.batches_lost_at(connection):
                await self.raise_alert(connection, of_lost_batches(lost_at=lost_at, raised_at=self.clock()))

    async def test(self, receiver: str = "") -> Alert:
        """Send a test alert once to one receiver or all, and return it. Raises `Conflict` and `UnknownName`."""
        names = [one.name for one in self.receivers]
        if not names:
            raise Conflict("this collector has no receiver: set one with `isochrone-collector serve --alert-url URL`")
        if receiver and receiver not in names:
            raise UnknownName.among("receiver", receiver, names)
        chosen = [one for one in self.receivers if receiver in ("", one.name)]
        message = of_test(raised_at=self.clock())
        async with self.database.transaction() as connection:
            await alerts.record(connection, message)
            await alerts.schedule(connection, message, [one.name for one in chosen], next_attempt_at=None)
        await asyncio.gather(*(one.test(message) for one in chosen))
        async with self.database.connection() as connection:
            return await alerts.by_id(connection, message.id)


MIN_US, MAX_US = 60 * SECOND_US, 366 * DAY_US
_MAX_PATTERNS, _MAX_CHARS, _MAX_REASON_CHARS = 100, 200, 500
# An id has 63 bits.
_NAME = re.compile("(?:incident|alert)_([0-7][0-9a-fA-F]{15})")
_KEPT = ("target", "provider", "model", "region", "regions", "route", "vantage", "incident", "scope")


@dataclass(eq=False, kw_only=True)
class SilenceService:
    """The silences of a database. Durations are microseconds; every method raises `DatabaseUnavailable`."""

    database: Database
    alerting: AlertService
    clock: Callable[[], int]

    async def add(
        self,
        *,
        targets: Sequence[str],
        providers: Sequence[str],
        regions: Sequence[str],
        kinds: Sequence[str],
        duration_us: int,
        reason: str,
    ) -> Silence:
        """Add a silence. Raises `BadRequest`."""
        patterns = (*targets, *providers, *regions, *kinds)
        if not patterns:
            raise BadRequest("a silence needs a pattern: a target, a provider, a region or a kind; `*` matches all")
        if len(patterns) > _MAX_PATTERNS or any(not 0 < len(one) <= _MAX_CHARS for one in patterns):
            raise BadRequest(f"a silence has at most {_MAX_PATTERNS} patterns of 1 to {_MAX_CHARS} characters")
        known = [kind.value for kind in AlertKind]
        if wrong := next((kind for kind in kinds if kind not in known), None):
            raise BadRequest(unknown("kind", wrong, known))
        what = {"targets": targets, "providers": providers, "regions": regions, "kinds": kinds}
        silence = self._silence(duration_us, reason, {name: tuple(own) for name, own in what.items()})
        async with self.database.transaction() as connection:
            await silences.add(connection, silence)
            await audit.record(
                connection, at=silence.created_at, action="alert.silence", target=f"{silence.name} {silence.patterns}"
            )
        return silence

    async def acknowledge(self, id: str, *, duration_us: int, reason: str) -> Silence:  # noqa: A002  # as in the .proto
        """Acknowledge the problem of an incident or an alert. Raises `BadRequest`, and `Conflict` if it is over."""
        found = _NAME.fullmatch(id)
        if found is None:
            raise BadRequest(f"{id!r} is not the id of an incident or an alert")
        number = int(found[1], 16)
        async with self.database.transaction() as connection:
            last = await alerts.newest_of_thread(connection, id, number)
            if last is None:
                raise BadRequest(f"no alert is about {id}; `isochrone incidents` lists incidents")
            topic = topic_of(last)
            if topic.action is Action.END:
                raise Conflict(f"{id} is over: {last.subject} {last.sentence}")
            if topic.action is Action.EVENT:
                raise BadRequest(f"{id} has no end, so it is not repeated and cannot be acknowledged")
            silence = self._silence(duration_us, reason, {"thread": topic.dedup_key, "subject": last.subject})
            await silences.add(connection, silence)
            target = f"{silence.name} {topic.dedup_key} {last.subject}"
            await audit.record(connection, at=silence.created_at, action="alert.acknowledge", target=target)
            await self.alerting.raise_alert(connection, _message(silence, last))
        return silence

    async def end(self, id: int) -> Silence:  # noqa: A002  # as in the .proto
        """End a silence or an acknowledgement before its time. Raises `BadRequest`, and `Conflict` if it has ended."""
        now_at = self.clock()
        async with self.database.transaction() as connection:
            silence = await silences.by_id(connection, id)
            if silence is None:
                raise BadRequest(f"there is no silence {silence_name(id)}")
            if not await silences.end(connection, id, by=audit.principal(), at=now_at):
                raise Conflict(f"{silence.name} has ended already")
            await audit.record(connection, at=now_at, action="alert.unsilence", target=silence.name)
            ended = await silences.by_id(connection, id)
        return ended or silence

    async def listed(self, *, past: bool) -> SilenceList:
        """Return the silences and acknowledgements in force, or with `past` all."""
        async with self.database.connection() as connection:
            return SilenceList(silences=await silences.at(connection, self.clock(), past=past))

    def _silence(self, duration_us: int, reason: str, what: Mapping[str, Any]) -> Silence:
        if not MIN_US <= duration_us <= MAX_US:
            raise BadRequest("a silence lasts for a minute to 366 days")
        if not reason.strip() or len(reason) > _MAX_REASON_CHARS:
            raise BadRequest(f"a silence has a reason of 1 to {_MAX_REASON_CHARS} characters")
        now_at = self.clock()
        return Silence(
            **what,
            id=secrets.randbits(63),
            reason=reason.strip(),
            created_by=audit.principal(),
            created_at=now_at,
            until_at=now_at + duration_us,
        )


def _message(silence: Silence, last: AlertMessage) -> AlertMessage:
    until = minute(silence.until_at)
    return alert(
        AlertKind.ACKNOWLEDGED,
        last.subject,
        f"acknowledged by {silence.created_by} until {until} UTC: {silence.reason}",
        key=(silence.id,),
        raised_at=silence.created_at,
        **{name: last.details[name] for name in _KEPT if name in last.details},
        thread=silence.thread,
        failure=topic_of(last).kind.value,
        by=silence.created_by,
        until=until,
        reason=silence.reason,
    )


STATE_EVERY_US = 5 * SECOND_US

MAX_SERIES = 1_000
"""Series of open incidents, one per kind, target and failing region; the oldest incidents come first."""


@dataclass(eq=False, kw_only=True)
class AlertState:
    """The open incidents of the targets of the plan in force, and the numbers of overdue deliveries, as of the newest
    run. `incidents` has the kind of each incident and the labels of probes, and `left_out` is the number of those above
    `MAX_SERIES`; `overdue` is by receiver, without what silences hold or what waits for its group.
    """

    database: Database
    plans: Plans
    clock: Callable[[], int]
    receivers: Sequence[Receiver] = ()

    def __post_init__(self) -> None:
        self.incidents: tuple[tuple[str, ...], ...] = ()
        self.left_out = 0
        self.overdue: Mapping[str, int] = {}

    async def run(self) -> None:
        """Read both. Raises `DatabaseUnavailable`; those of the last run stay then."""
        async with self.database.connection() as connection:
            rows = await incidents.open_ones(connection)
            due_by = {one.name: self.clock() - one.group_us for one in self.receivers}
            self.overdue = await alerts.count_overdue(connection, due_by) if due_by else {}
        plan = self.plans.current
        targets = {target.id: target for target in plan.targets} if plan else {}
        found = [
            (row.kind, *labels_of(region, targets[row.target_id]))
            for row in rows
            if row.target_id in targets
            for region in row.failing
        ]
        self.incidents, self.left_out = tuple(found[:MAX_SERIES]), len(found[MAX_SERIES:])
