"""Alert messages, and the topic of each: the problem that it begins, acknowledges or ends, and its severity. Pure;
instants are microseconds since the epoch.

The id of an alert is derived from its subject: if another collector, or a restarted one, raises it again, it has the
same id, so that the receiver of a webhook recognizes a repetition. Alerts with the same `dedup_key` are about one
problem, from its beginning to its end. An alert on something that has no end, such as a switch of a route, has its own.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from isochrone_collector.analysis.drift import Change
from isochrone_wire import durations
from isochrone_wire.answers import Metric
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import AlertKind
from isochrone_wire.json_format import minute, rfc3339
from isochrone_wire.model import DAY_US
from isochrone_wire.operations import alert_name

_ID_BYTES = 8
_EXPIRY_DAYS = (21, 7, 1)
_US_PER_MS = 1000
_MANY = 100
_REASON_CHARS = 300
_METRIC_TEXT = {Metric.TTFT: ("ttft", "ms", 1 / _US_PER_MS), Metric.TOKENS_PER_SECOND: ("speed", "tokens/s", 1.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMessage:
    """An alert. `details` are plain data: text, numbers, and instants as RFC 3339."""

    id: int
    kind: AlertKind
    subject: str
    sentence: str
    details: Mapping[str, Any]
    raised_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSeries:
    """The series of a change: the target's name, provider and model, the region, and the metric."""

    target: str
    provider: str
    model: str
    region: str
    metric: Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """The text of an alert. `sentence` has `{}` in the place of the detail, which `detail` names."""

    subject: str
    sentence: str
    detail: str = ""


_OF_COLLECTOR = {
    AlertKind.CLOCK_WRONG: _Text(
        subject="clock of the collector",
        sentence="{}: jobs that delete, summarise, publish or alert are paused",
        detail="reason",
    ),
    AlertKind.DISK_LOW: _Text(
        subject="disk of the collector",
        sentence="the disk of the database has {}: make room, or backlogs and then all pushes are refused",
        detail="free",
    ),
    AlertKind.TEST: _Text(subject="test", sentence="this is a test: alerts of this collector arrive here"),
}


def of_change(series: ChangedSeries, change: Change, *, raised_at: int) -> AlertMessage:
    """Return the alert for a lasting change."""
    subject = f"{series.target} from {series.region}"
    percent = 100 * (change.after / change.before - 1)
    return AlertMessage(
        id=id_of(AlertKind.DRIFT, subject, series.metric, change.changed_at),
        kind=AlertKind.DRIFT,
        subject=subject,
        sentence=_change_sentence(series.metric, change, percent),
        details={
            "target": series.target,
            "provider": series.provider,
            "model": series.model,
            "region": series.region,
            "metric": series.metric.value,
            "unit": "us" if series.metric is not Metric.TOKENS_PER_SECOND else "tokens/s",
            "changed_at": rfc3339(change.changed_at),
            "before": change.before,
            "after": change.after,
            "change_percent": round(percent, 2),
            "p_value": change.p_value,
            "n_before": change.n_before,
            "n_after": change.n_after,
        },
        raised_at=raised_at,
    )


def of_absence(vantage: str, region: str, *, last_seen_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for an absent vantage."""
    return AlertMessage(
        id=id_of(AlertKind.VANTAGE_ABSENT, vantage, last_seen_at),
        kind=AlertKind.VANTAGE_ABSENT,
        subject=vantage,
        sentence=f"{vantage} in {region} has sent no heartbeat for {durations.rough(raised_at - last_seen_at)}",
        details={"vantage": vantage, "region": region, "last_seen_at": rfc3339(last_seen_at)},
        raised_at=raised_at,
    )


def of_return(vantage: str, region: str, *, absence: int, absent_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for a vantage that is back after the absence with that alert id, raised at `absent_at`."""
    duration = durations.rough(raised_at - absent_at)
    return AlertMessage(
        id=id_of(AlertKind.VANTAGE_BACK, vantage, absence),
        kind=AlertKind.VANTAGE_BACK,
        subject=vantage,
        sentence=f"{vantage} in {region} is back, {duration} after its absence was reported",
        details={"vantage": vantage, "region": region, "absent_at": rfc3339(absent_at), "absence": alert_name(absence)},
        raised_at=raised_at,
    )


def of_failing_job(job: str, reason: str, *, since_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for a job of the leader that keeps failing."""
    return AlertMessage(
        id=id_of(AlertKind.JOB_FAILING, job, since_at),
        kind=AlertKind.JOB_FAILING,
        subject=job,
        sentence=f"the job {job!r} has failed for {durations.rough(raised_at - since_at)}: {reason[:_REASON_CHARS]}",
        details={"job": job, "failing_since": rfc3339(since_at)},
        raised_at=raised_at,
    )


def of_collector(kind: AlertKind, detail: str = "", *, raised_at: int) -> AlertMessage:
    """Return an alert of the collector on itself, of the kind `CLOCK_WRONG`, `DISK_LOW` or `TEST`. `detail` is what its
    sentence states. There is one in an hour, but any number of tests.
    """
    text = _OF_COLLECTOR[kind]
    return AlertMessage(
        id=id_of(kind, raised_at if kind is AlertKind.TEST else raised_at // HOUR_US),
        kind=kind,
        subject=text.subject,
        sentence=text.sentence.format(detail),
        details={text.detail: detail} if text.detail else {},
        raised_at=raised_at,
    )


def of_certificate(name: str, fingerprint: str, *, expires_at: int, raised_at: int) -> AlertMessage | None:
    """Return the alert for the collector's certificate if it ends soon: there is one at each of `_EXPIRY_DAYS`."""
    left_us = expires_at - raised_at
    reached = [days for days in _EXPIRY_DAYS if left_us <= days * DAY_US]
    if not reached:
        return None
    when = f"ends in {durations.rough(left_us)}" if left_us > 0 else "has ended"
    return AlertMessage(
        id=id_of(AlertKind.CERTIFICATE_EXPIRING, fingerprint, min(reached)),
        kind=AlertKind.CERTIFICATE_EXPIRING,
        subject=f"certificate of {name}",
        sentence=f"the certificate of the collector {when}: agents and readers cannot connect without a valid one",
        details={"expires_at": rfc3339(expires_at), "fingerprint": fingerprint},
        raised_at=raised_at,
    )


def of_rival(vantage: str, region: str, *, epoch: int, since_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for a second agent with the credential of a vantage."""
    return AlertMessage(
        id=id_of(AlertKind.RIVAL, vantage, epoch),
        kind=AlertKind.RIVAL,
        subject=vantage,
        sentence=f"a second agent uses the credential of {vantage}: one is perhaps a clone; its samples are refused",
        details={"vantage": vantage, "region": region, "since_at": rfc3339(since_at)},
        raised_at=raised_at,
    )


def of_lost_batches(*, lost_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for a database that has lost batches which agents had delivered by `lost_at`."""
    return AlertMessage(
        id=id_of(AlertKind.DATABASE_RESTORED, lost_at),
        kind=AlertKind.DATABASE_RESTORED,
        subject="database",
        sentence="the database seems to have been restored: it lacks delivered batches, which agents send again; "
        "if it was, run isochrone-collector restored",
        details={"lost_at": rfc3339(lost_at)},
        raised_at=raised_at,
    )


def id_of(*parts: object) -> int:
    """Return an id derived from the parts: the same for the same subject, from 0 to 2^63 - 1."""
    text = "\n".join(str(part) for part in parts)
    # One bit less, because PostgreSQL's bigint is signed.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:_ID_BYTES]) >> 1


def _change_sentence(metric: Metric, change: Change, percent: float) -> str:
    name, unit, scale = _METRIC_TEXT.get(metric, (metric.value, "us", 1.0))
    direction = "rose" if percent > 0 else "fell"
    values = (value * scale for value in (change.before, change.after))
    # Three significant digits, and all digits before the point.
    before, after = (f"{value:.3g}" if value < _MANY else f"{value:.0f}" for value in values)
    since = minute(change.changed_at)
    return f"{name} {direction} by {abs(percent):.0f} %, from {before} to {after} {unit}, at {since} UTC"


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
_PROBLEMS = ("incident", "absence", "breach")
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
    dedup_key: str
    action: Action
    severity: Severity
    group: str
    shared: str


def topic_of(message: AlertMessage) -> Topic:
    """Return the topic of an alert."""
    details = message.details
    kind = _kind(message)
    named = str(details.get("thread") or next((details[name] for name in _PROBLEMS if details.get(name)), ""))
    key = named or alert_name(message.id)
    shared = str(details.get(_GROUPED_BY.get(kind, ""), ""))
    return Topic(
        kind=kind,
        dedup_key=key,
        action=_action(message.kind),
        severity=_severity(message, kind),
        group=f"{kind.value} {shared}" if shared else key,
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
    if kind is AlertKind.TARGET_FAILING and message.details.get("scope") == "all":
        return Severity.CRITICAL
    return _SEVERITY.get(kind, Severity.WARNING)
