"""Topic of an alert: the problem that it begins, acknowledges or ends, and its severity. Pure.

Alerts with the same `thread` are about one problem, from its beginning to its end. An alert on something that has no
end, such as a switch of a route, has a thread of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from isochrone_collector.alerts.message import AlertMessage
from isochrone_wire.insights import AlertKind
from isochrone_wire.operations import alert_name


class Action(StrEnum):
    """What an alert does to its problem. `BEGIN` is also an escalation; an `EVENT` has no end."""

    BEGIN = "begin"
    ACKNOWLEDGE = "acknowledge"
    END = "end"
    EVENT = "event"


class Severity(StrEnum):
    """The severity of an alert, most severe first, with the names of PagerDuty's Events API."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


_SEVERITY = {
    AlertKind.TARGET_FAILING: Severity.ERROR,
    AlertKind.VANTAGE_ABSENT: Severity.ERROR,
    AlertKind.JOB_FAILING: Severity.ERROR,
    AlertKind.DISK_LOW: Severity.CRITICAL,
    AlertKind.DATABASE_RESTORED: Severity.ERROR,
    AlertKind.ROUTE_SWITCHED: Severity.INFO,
    AlertKind.TEST: Severity.INFO,
}
# The kind of an end → the kind of the problem, if the details do not have it.
_BEGINNING_OF = {AlertKind.VANTAGE_BACK: AlertKind.VANTAGE_ABSENT, AlertKind.SLO_RESTORED: AlertKind.SLO_BREACHED}
_ENDS = (AlertKind.TARGET_RECOVERED, *_BEGINNING_OF)
_BEGINNINGS = (AlertKind.TARGET_FAILING, AlertKind.TARGET_THROTTLED, *_BEGINNING_OF.values())
# The details that name the problem; without them it is named by the alert that began it.
_THREADS = ("incident", "absence", "breach")
# The detail by which alerts of a kind are sent together.
_GROUPED_BY = {
    AlertKind.TARGET_FAILING: "provider",
    AlertKind.TARGET_THROTTLED: "provider",
    AlertKind.DRIFT: "provider",
    AlertKind.BUDGET_EXHAUSTED: "provider",
    AlertKind.SLO_BREACHED: "route",
    AlertKind.ROUTE_SWITCHED: "route",
    AlertKind.ROUTE_FROZEN: "route",
    AlertKind.VANTAGE_ABSENT: "region",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """The problem of an alert. `kind` is that of its beginning, and `group` names alerts that may be sent together, by
    what they have in common: `shared`.
    """

    kind: AlertKind
    thread: str
    action: Action
    severity: Severity
    group: str
    shared: str


def topic_of(message: AlertMessage) -> Topic:
    """Return the topic of an alert."""
    details = message.details
    kind = _kind(message)
    thread = str(details.get("thread") or next((details[name] for name in _THREADS if details.get(name)), ""))
    shared = str(details.get(_GROUPED_BY.get(kind, ""), ""))
    return Topic(
        kind=kind,
        thread=thread or alert_name(message.id),
        action=_action(message.kind),
        severity=_severity(message, kind),
        group=f"{kind.value} {shared}" if shared else thread or alert_name(message.id),
        shared=shared,
    )


def _kind(message: AlertMessage) -> AlertKind:
    if message.kind in (AlertKind.TARGET_RECOVERED, AlertKind.ACKNOWLEDGED):
        return AlertKind(message.details["failure"])
    return _BEGINNING_OF.get(message.kind, message.kind)


def _action(kind: AlertKind) -> Action:
    if kind is AlertKind.ACKNOWLEDGED:
        return Action.ACKNOWLEDGE
    if kind in _ENDS:
        return Action.END
    return Action.BEGIN if kind in _BEGINNINGS else Action.EVENT


def _severity(message: AlertMessage, kind: AlertKind) -> Severity:
    if kind is AlertKind.TARGET_FAILING and _is_everywhere(message.details):
        return Severity.CRITICAL
    return _SEVERITY.get(kind, Severity.WARNING)


def _is_everywhere(details: Mapping[str, object]) -> bool:
    return details.get("scope") == "all"
