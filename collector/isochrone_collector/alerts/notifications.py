"""Notifications: which pending alerts a receiver gets when, and what it gets in one request. Pure; instants are
microseconds.

The laws:

1. A silence holds the alert that begins a problem while all of its matchers match the alert. If the problem still lasts
   when the silence ends, the alert is sent then; if it ended meanwhile, neither its beginning nor its end is sent.
2. The end of a problem that the receiver knows is never held. What has no end, such as a switch of a route, is not sent
   if it is matched when it is due. An escalation that a silence does not match is sent, with everything before it.
3. Alerts of one group wait for each other until the window of the receiver has passed since the oldest of them was due.
   Each problem is a separate group if there is no window.
4. A notification has alerts of one group that do the same: begin, acknowledge, end. The rest of the group waits until
   it is delivered, so that the receiver gets everything about a problem in order. Groups do not wait for each other.
5. A group keeps its key while the receiver knows of an open problem in it; it is resolved when none is left. The key is
   PagerDuty's `dedup_key` and Opsgenie's `alias`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any

from isochrone_collector.alerts.message import Action, AlertMessage, Severity, Topic, topic_of
from isochrone_collector.names import matching
from isochrone_wire.insights import AlertKind, Incident
from isochrone_wire.operations import Silence, alert_name, incident_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An alert to be delivered: when, its failed attempts and earlier deliveries, and whether a silence has held it."""

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
    """Separate the pending alerts of a receiver, oldest first; it has the beginning of `known` problems, by key."""
    found = Sifted(eligible=[], held=[], dropped=[])
    problems: dict[str, list[Pending]] = {}
    for one in pending:
        problems.setdefault(one.topic.dedup_key, []).append(one)
    for key, alerts in problems.items():
        _sift_problem(alerts, found, is_known=key in known, silences=silences, now_at=now_at)
    found.eligible.sort(key=lambda one: (one.message.raised_at, one.message.id))
    return found


def _sift_problem(
    alerts: list[Pending], found: Sifted, *, is_known: bool, silences: Collection[Silence], now_at: int
) -> None:
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
        is_end = one.topic.action is Action.END
        (found.eligible if is_end else found.dropped if has_end else found.held).append(one)


def silences_alert(silence: Silence, message: AlertMessage, *, now_at: int) -> bool:
    """Return whether a silence is in force and matches: a pattern of each kind it has, for each region of the alert."""
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
            one, target=incident.subject, provider=provider, regions=incident.regions, kind=incident.kind, now_at=now_at
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


_ENDED = {
    AlertKind.TARGET_FAILING: "targets of {} are answered again",
    AlertKind.TARGET_THROTTLED: "targets of {} are no longer throttled",
    AlertKind.SLO_BREACHED: "members of the route {} meet their objective again",
    AlertKind.VANTAGE_ABSENT: "vantages in {} are back",
}
_BEGUN = {
    AlertKind.TARGET_FAILING: "targets of {} fail",
    AlertKind.TARGET_THROTTLED: "targets of {} are throttled",
    AlertKind.SLO_BREACHED: "members of the route {} miss their objective",
    AlertKind.VANTAGE_ABSENT: "vantages in {} are absent",
}


class State(StrEnum):
    """The state of the problems of a notification after it, with the names of PagerDuty's event actions."""

    TRIGGER = "trigger"
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Alerts that do the same to problems of one kind, oldest first; `still_open` problems of the key last on."""

    key: str
    state: State
    alerts: tuple[Pending, ...]
    still_open: int = 0

    @property
    def id(self) -> str:
        """The id, which is the same for each attempt; a repetition has another one."""
        first = self.alerts[0]
        name = alert_name(first.message.id)
        return f"{name}_{first.repeats}" if first.repeats else name

    @property
    def topic(self) -> Topic:
        """The topic of the newest alert."""
        return self.alerts[-1].topic

    @property
    def raised_at(self) -> int:
        """The instant of the oldest alert."""
        return self.alerts[0].message.raised_at

    @property
    def severity(self) -> Severity:
        """The severity of the most severe alert."""
        order = list(Severity)
        return min((one.topic.severity for one in self.alerts), key=order.index)

    @property
    def is_repeated(self) -> bool:
        """True if the receiver had all of the alerts before."""
        return all(one.repeats for one in self.alerts)

    @property
    def newest(self) -> tuple[AlertMessage, ...]:
        """The newest alert on each problem."""
        return tuple({one.topic.dedup_key: one.message for one in self.alerts}.values())

    @property
    def title(self) -> str:
        """One line: the subject and sentence of a single alert, or what a group has in common."""
        messages = self.newest
        if len(messages) == 1:
            title = f"{messages[0].subject}: {messages[0].sentence}"
        else:
            topic = self.topic
            phrases = _ENDED if topic.action is Action.END else _BEGUN
            common = phrases.get(topic.kind, f"alerts: {topic.kind.value}" + (", {}" if topic.shared else ""))
            if topic.action is Action.ACKNOWLEDGE:
                common = "problems were acknowledged"
            title = f"{len(messages)} {common.format(topic.shared)}"
        return f"still: {title}" if self.is_repeated else title

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each alert of a group, and for the problems that last on; none for a single alert."""
        lines = [f"{one.subject}: {one.sentence}" for one in self.newest] if len(self.newest) > 1 else []
        if self.topic.action is Action.END and self.still_open:
            lines.append(f"still open: {self.still_open}")
        return tuple(lines)


def details_of(message: AlertMessage) -> Mapping[str, Any]:
    """Return the data of an alert, as receivers get it."""
    named = {"id": alert_name(message.id), "subject": message.subject, "sentence": message.sentence}
    return {**named, **message.details}


MAX_TOGETHER = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProblem:
    """A problem that a receiver knows under a key: its newest beginning, and the last delivery on it."""

    message: AlertMessage
    key: str
    delivered_at: int = 0
    is_acknowledged: bool = False
    is_pending: bool = False

    @property
    def topic(self) -> Topic:
        """The topic of the alert that began it."""
        return topic_of(self.message)


def due_notifications(
    pending: Iterable[Pending], known: Collection[OpenProblem], *, window_us: int, now_at: int
) -> Iterator[Notification]:
    """Yield the notifications to send now; `pending` are oldest first."""
    groups: dict[str, list[Pending]] = {}
    for one in pending:
        groups.setdefault(_group(one.topic, window_us), []).append(one)
    for name, alerts in groups.items():
        first = alerts[0]
        # It waits for further ones at its first attempt only.
        waits = not first.attempts and first.topic.action is not Action.ACKNOWLEDGE
        if first.next_attempt_at + (window_us if waits else 0) <= now_at:
            yield _notification(alerts, name, known, window_us)


def _group(topic: Topic, window_us: int) -> str:
    return topic.group if window_us else topic.dedup_key


def _notification(alerts: list[Pending], name: str, known: Collection[OpenProblem], window_us: int) -> Notification:
    action = alerts[0].topic.action
    of_group = [one for one in known if _group(one.topic, window_us) == name]
    keys = {one.topic.dedup_key: one.key for one in known}
    # An alert that began under another key ends under it.
    default = of_group[0].key if of_group else alerts[0].topic.dedup_key
    together = list(takewhile(lambda one: one.topic.action is action, alerts))[:MAX_TOGETHER]
    key = keys.get(together[0].topic.dedup_key, default)
    together = [one for one in together if keys.get(one.topic.dedup_key, default) == key]
    if not window_us:
        together = together[:1]
    left = _left(together, [one for one in known if one.key == key])
    state = State.TRIGGER
    if action is Action.END and not left:
        state = State.RESOLVE
    elif left and action is not Action.EVENT and all(left.values()):
        state = State.ACKNOWLEDGE
    return Notification(key=key, state=state, alerts=tuple(together), still_open=len(left))


def _left(alerts: Iterable[Pending], known: Iterable[OpenProblem]) -> dict[str, bool]:
    """Return the keys of the problems that are open after some alerts, and whether each is acknowledged."""
    left = {one.topic.dedup_key: one.is_acknowledged for one in known}
    for one in alerts:
        if one.topic.action is Action.END:
            left.pop(one.topic.dedup_key, None)
        elif one.topic.action is not Action.EVENT:
            left[one.topic.dedup_key] = one.topic.action is Action.ACKNOWLEDGE
    return left
