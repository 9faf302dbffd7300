"""Silences: the alerts that are held back, and those that are not sent at all. Pure; instants are microseconds.

The laws:

1. A silence holds the alert that begins a problem while all of its matchers match the alert. If the problem still lasts
   when the silence ends, the alert is sent then; if it ended meanwhile, neither its beginning nor its end is sent.
2. The end of a problem that the receiver knows is never held.
3. What has no end, such as a switch of a route, is not sent if it is matched when it is due.
4. An escalation that a silence does not match is sent, with it everything before it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.alerts.topic import Action, Topic, topic_of
from isochrone_collector.names import matching
from isochrone_wire.insights import AlertKind, Incident
from isochrone_wire.operations import Silence, incident_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An alert to be delivered to a receiver. `next_attempt_at` is when it is due, `attempts` the failed ones so far,
    and `repeats` how often it was scheduled again after it had been delivered. `is_silenced` is whether a silence is
    known to have held it.
    """

    message: AlertMessage
    next_attempt_at: int
    attempts: int = 0
    first_attempt_at: int | None = None
    repeats: int = 0
    is_silenced: bool = False

    @property
    def topic(self) -> Topic:
        """The problem of the alert."""
        return topic_of(self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """Pending alerts after silences: those that may be sent, those that are held, and those that are never sent."""

    eligible: list[Pending]
    held: list[Pending]
    dropped: list[Pending]


def sift(pending: Iterable[Pending], known: Collection[str], silences: Collection[Silence], *, now_at: int) -> Sifted:
    """Separate the pending alerts of a receiver, oldest first. `known` are the threads of the problems whose beginning
    the receiver has.
    """
    found = Sifted(eligible=[], held=[], dropped=[])
    threads: dict[str, list[Pending]] = {}
    for one in pending:
        threads.setdefault(one.topic.thread, []).append(one)
    for thread, alerts in threads.items():
        _sift_thread(alerts, found, is_known=thread in known, silences=silences, now_at=now_at)
    found.eligible.sort(key=_age)
    return found


def _sift_thread(
    alerts: list[Pending], found: Sifted, *, is_known: bool, silences: Collection[Silence], now_at: int
) -> None:
    """Separate the alerts about one problem, oldest first."""
    has_end = any(one.topic.action is Action.END for one in alerts)
    # A repetition is of no use beside news of the problem.
    stale = [one for one in alerts if one.repeats and len(alerts) > 1]
    alerts = [one for one in alerts if one not in stale]
    found.dropped.extend(stale)
    newest = next((one for one in reversed(alerts) if one.topic.action is not Action.END), alerts[-1])
    if not any(silences_alert(one, newest.message, now_at=now_at) for one in silences):
        found.eligible.extend(alerts)
        return
    if newest.topic.action is Action.EVENT or newest.repeats or (has_end and not is_known):
        found.dropped.extend(alerts)
        return
    for one in alerts:
        if one.topic.action is Action.END:
            found.eligible.append(one)
        else:
            (found.dropped if has_end else found.held).append(one)


def _age(one: Pending) -> tuple[int, int]:
    return one.message.raised_at, one.message.id


def silences_alert(silence: Silence, message: AlertMessage, *, now_at: int) -> bool:
    """Return whether a silence is in force and matches an alert: one pattern of each kind that it has. If the alert is
    about several regions, each of them must be matched. An acknowledgement matches nothing.
    """
    details = message.details
    return _covers(
        silence,
        target=details.get("target"),
        provider=details.get("provider"),
        regions=details.get("regions") or [details.get("region")],
        kind=topic_of(message).kind,
        now_at=now_at,
    )


def of_incident(incident: Incident, silences: Iterable[Silence], *, now_at: int) -> tuple[Silence, ...]:
    """Return the acknowledgements of an open incident, and the silences that match it, which are in force."""
    if incident.recovered_at is not None:
        return ()
    name, provider = incident_name(incident.id), incident.subject.partition("/")[0]
    return tuple(
        one
        for one in silences
        if (one.thread == name and one.is_in_force(now_at))
        or _covers(
            one,
            target=incident.subject,
            provider=provider,
            regions=incident.regions,
            kind=incident.kind,
            now_at=now_at,
        )
    )


def _covers(
    silence: Silence, *, target: object, provider: object, regions: Collection[object], kind: AlertKind, now_at: int
) -> bool:
    """Return whether a silence is in force and matches; an acknowledgement matches nothing."""
    return (
        silence.is_in_force(now_at)
        and not silence.thread
        and _matches(silence.targets, [target])
        and _matches(silence.providers, [provider])
        and _matches(silence.regions, regions)
        and _matches(silence.kinds, [kind.value])
    )


def _matches(patterns: Collection[str], values: Collection[object]) -> bool:
    return not patterns or all(any(matching(pattern, [str(value or "")]) for pattern in patterns) for value in values)
