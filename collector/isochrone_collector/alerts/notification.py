"""Notification: what a receiver gets in one request, whatever its format. Pure; instants are microseconds.

The `key` of a notification is the same for all that is sent about one problem, or one group of problems: PagerDuty's
`dedup_key`, Opsgenie's `alias`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from isochrone_collector.alerts.message import AlertMessage
from isochrone_collector.alerts.silences import Pending
from isochrone_collector.alerts.topic import Action, Severity, Topic
from isochrone_wire.insights import AlertKind
from isochrone_wire.operations import alert_name

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
    """One or more alerts that do the same to problems of one kind, oldest first; `still_open` problems with this key
    last on afterwards.
    """

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
        return tuple({one.topic.thread: one.message for one in self.alerts}.values())

    @property
    def title(self) -> str:
        """One line: the subject and sentence of a single alert, or what a group has in common."""
        messages = self.newest
        if len(messages) == 1:
            title = f"{messages[0].subject}: {messages[0].sentence}"
        else:
            title = f"{len(messages)} {self._common(self.topic)}"
        return f"still: {title}" if self.is_repeated else title

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each alert of a group, and for the problems that last on; none for a single alert."""
        lines = [f"{one.subject}: {one.sentence}" for one in self.newest] if len(self.newest) > 1 else []
        if self.topic.action is Action.END and self.still_open:
            lines.append(f"still open: {self.still_open}")
        return tuple(lines)

    def _common(self, topic: Topic) -> str:
        if topic.action is Action.ACKNOWLEDGE:
            return "problems were acknowledged"
        phrases = _ENDED if topic.action is Action.END else _BEGUN
        default = f"alerts: {topic.kind.value}" + (", {}" if topic.shared else "")
        return phrases.get(topic.kind, default).format(topic.shared)


def details_of(message: AlertMessage) -> Mapping[str, Any]:
    """Return the data of an alert, as receivers get it."""
    return {
        "id": alert_name(message.id),
        "subject": message.subject,
        "sentence": message.sentence,
        **message.details,
    }
