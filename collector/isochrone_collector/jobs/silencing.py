"""Silences and acknowledgements by operators, recorded in the audit trail."""

import secrets
from collections.abc import Callable, Sequence

from isochrone_collector.alerts.message import AlertMessage, id_of
from isochrone_collector.alerts.topic import Action, topic_of
from isochrone_collector.errors import BadRequest, Conflict
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.store import audit
from isochrone_collector.store.alerting import alerts, silences
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.insights import AlertKind
from isochrone_wire.json_format import minute
from isochrone_wire.model import DAY_US, SECOND_US
from isochrone_wire.operations import Silence, SilenceList, silence_name
from isochrone_wire.text import unknown

MIN_US, MAX_US = 60 * SECOND_US, 366 * DAY_US
_MAX_PATTERNS, _MAX_CHARS, _MAX_REASON_CHARS = 100, 200, 500
_PREFIXES = ("incident_", "alert_")
_ID_CHARS = 16
_KEPT = ("target", "provider", "model", "region", "regions", "route", "vantage", "incident", "scope")


class Silencing:
    """The silences of a database. Durations are microseconds; every method raises `DatabaseUnavailable`."""

    def __init__(self, *, database: Database, alerting: AlertDelivery, clock: Callable[[], int]) -> None:
        self._database = database
        self._alerting = alerting
        self._clock = clock

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
        silence = self._silence(duration_us, reason, targets=targets, providers=providers, regions=regions, kinds=kinds)
        async with self._database.transaction() as connection:
            await silences.add(connection, silence)
            await audit.record(
                connection, at=silence.created_at, action="alert.silence", target=f"{silence.name} {silence.patterns}"
            )
        return silence

    async def acknowledge(self, problem: str, *, duration_us: int, reason: str) -> Silence:
        """Acknowledge a problem, by the name of its incident or of the alert that began it. Raises `BadRequest`, and
        `Conflict` if it is over.
        """
        number = _number(problem)
        async with self._database.transaction() as connection:
            last = await alerts.newest_of_thread(connection, problem, number)
            if last is None:
                raise BadRequest(f"no alert is about {problem}; `isochrone incidents` lists incidents")
            topic = topic_of(last)
            if topic.action is Action.END:
                raise Conflict(f"{problem} is over: {last.subject} {last.sentence}")
            if topic.action is Action.EVENT:
                raise BadRequest(f"{problem} has no end, so it is not repeated and cannot be acknowledged")
            silence = self._silence(duration_us, reason, thread=topic.thread, subject=last.subject)
            await silences.add(connection, silence)
            target = f"{silence.name} {topic.thread} {last.subject}"
            await audit.record(connection, at=silence.created_at, action="alert.acknowledge", target=target)
            await self._alerting.raise_alert(connection, _message(silence, last))
        return silence

    async def end(self, silence_id: int) -> Silence:
        """End a silence or an acknowledgement before its time. Raises `BadRequest`, and `Conflict` if it has ended."""
        now_at = self._clock()
        async with self._database.transaction() as connection:
            silence = await silences.by_id(connection, silence_id)
            if silence is None:
                raise BadRequest(f"there is no silence {silence_name(silence_id)}")
            if not await silences.end(connection, silence_id, by=audit.principal(), at=now_at):
                raise Conflict(f"{silence.name} has ended already")
            await audit.record(connection, at=now_at, action="alert.unsilence", target=silence.name)
            ended = await silences.by_id(connection, silence_id)
        return ended or silence

    async def listed(self, *, past: bool) -> SilenceList:
        """Return the silences and acknowledgements in force, or with `past` all."""
        async with self._database.connection() as connection:
            return SilenceList(silences=await silences.at(connection, self._clock(), past=past))

    def _silence(
        self,
        duration_us: int,
        reason: str,
        *,
        targets: Sequence[str] = (),
        providers: Sequence[str] = (),
        regions: Sequence[str] = (),
        kinds: Sequence[str] = (),
        thread: str = "",
        subject: str = "",
    ) -> Silence:
        if not MIN_US <= duration_us <= MAX_US:
            raise BadRequest("a silence lasts for a minute to 366 days")
        if not reason.strip() or len(reason) > _MAX_REASON_CHARS:
            raise BadRequest(f"a silence has a reason of 1 to {_MAX_REASON_CHARS} characters")
        now_at = self._clock()
        return Silence(
            id=secrets.randbits(63),
            targets=tuple(targets),
            providers=tuple(providers),
            regions=tuple(regions),
            kinds=tuple(kinds),
            thread=thread,
            subject=subject,
            reason=reason.strip(),
            created_by=audit.principal(),
            created_at=now_at,
            until_at=now_at + duration_us,
        )


def _message(silence: Silence, last: AlertMessage) -> AlertMessage:
    """Return the alert for an acknowledgement of the problem that `last` is about."""
    until = minute(silence.until_at)
    return AlertMessage(
        id=id_of(AlertKind.ACKNOWLEDGED, silence.id),
        kind=AlertKind.ACKNOWLEDGED,
        subject=last.subject,
        sentence=f"acknowledged by {silence.created_by} until {until} UTC: {silence.reason}",
        details={name: last.details[name] for name in _KEPT if name in last.details}
        | {
            "thread": silence.thread,
            "failure": topic_of(last).kind.value,
            "by": silence.created_by,
            "until": until,
            "reason": silence.reason,
        },
        raised_at=silence.created_at,
    )


def _number(problem: str) -> int:
    """Return the number in the name of an incident or an alert. Raises `BadRequest`."""
    prefix = next((one for one in _PREFIXES if problem.startswith(one)), "")
    digits = problem.removeprefix(prefix)
    try:
        number = int(digits, 16) if prefix and len(digits) == _ID_CHARS else -1
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise BadRequest(f"{problem!r} is not the id of an incident or an alert")
    return number
