"""Alert messages, and the topic of each: the problem that it begins, acknowledges or ends, and its severity. Pure;
instants are microseconds since the epoch.

The id of an alert is derived from its subject: if another collector, or a restarted one, raises it again, it has the
same id, so that the receiver of a webhook recognizes a repetition. Alerts with the same `dedup_key` are about one
problem, from its beginning to its end. An alert on something that has no end, such as a switch of a route, has its own.
"""

import hashlib
from collections.abc import Iterable, Mapping
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


def alert(
    kind: AlertKind, subject: str, sentence: str, *, key: Iterable[object], raised_at: int, **details: object
) -> AlertMessage:
    """Return an alert whose id is derived from its kind and `key`."""
    return AlertMessage(
        id=id_of(kind, *key), kind=kind, subject=subject, sentence=sentence, details=details, raised_at=raised_at
    )


def figures(metric: Metric, *values: float, sign: str = "") -> list[str]:
    """Return values of a metric in milliseconds or tokens per second, with three digits, and all before the point."""
    shown = values if metric.more_is_better else [value / _US_PER_MS for value in values]
    return [f"{value:{sign}.3g}" if abs(value) < _MANY else f"{value:{sign}.0f}" for value in shown]


def unit_of(metric: Metric) -> str:
    """Return the unit of `figures`."""
    return "tokens/s" if metric.more_is_better else "ms"


def of_change(series: ChangedSeries, change: Change, *, raised_at: int) -> AlertMessage:
    """Return the alert for a lasting change."""
    subject, metric = f"{series.target} from {series.region}", series.metric
    percent = 100 * (change.after / change.before - 1)
    name, rose = "speed" if metric.more_is_better else metric.value, "rose" if percent > 0 else "fell"
    before, after = figures(metric, change.before, change.after)
    moved = f"{name} {rose} by {abs(percent):.0f} %, from {before} to {after} {unit_of(metric)}"
    return alert(
        AlertKind.DRIFT,
        subject,
        f"{moved}, at {minute(change.changed_at)} UTC" + ("; may be weekly" if change.may_be_weekly else ""),
        key=(subject, metric, change.changed_at),
        raised_at=raised_at,
        target=series.target,
        provider=series.provider,
        model=series.model,
        region=series.region,
        metric=metric.value,
        unit=metric.unit,
        changed_at=rfc3339(change.changed_at),
        before=change.before,
        after=change.after,
        change_percent=round(percent, 2),
        p_value=change.p_value,
        n_before=change.n_before,
        n_after=change.n_after,
        may_be_weekly=change.may_be_weekly,
    )


def of_absence(vantage: str, region: str, *, last_seen_at: int, raised_at: int, stopped: bool = False) -> AlertMessage:
    """Return the alert for a vantage that is absent, or whose agent was stopped and not started again."""
    since = durations.rough(raised_at - last_seen_at)
    absent = f"was stopped {since} ago, and was not started again" if stopped else f"has sent no heartbeat for {since}"
    sentence = f"{vantage} in {region} {absent}"
    details = {"vantage": vantage, "region": region, "last_seen_at": rfc3339(last_seen_at)}
    key = (vantage, last_seen_at)
    return alert(AlertKind.VANTAGE_ABSENT, vantage, sentence, key=key, raised_at=raised_at, **details)


def of_return(vantage: str, region: str, *, absence: int, absent_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for a vantage that is back after the absence with that alert id, raised at `absent_at`."""
    duration = durations.rough(raised_at - absent_at)
    sentence = f"{vantage} in {region} is back, {duration} after its absence was reported"
    details = {"vantage": vantage, "region": region, "absent_at": rfc3339(absent_at), "absence": alert_name(absence)}
    return alert(AlertKind.VANTAGE_BACK, vantage, sentence, key=(vantage, absence), raised_at=raised_at, **details)


def of_failing_job(job: str, reason: str, *, since_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for a job of the leader that keeps failing."""
    sentence = f"the job {job!r} has failed for {durations.rough(raised_at - since_at)}: {reason[:_REASON_CHARS]}"
    details = {"job": job, "failing_since": rfc3339(since_at)}
    return alert(AlertKind.JOB_FAILING, job, sentence, key=(job, since_at), raised_at=raised_at, **details)


def of_collector_clock(reason: str, *, raised_at: int) -> AlertMessage:
    """Return the alert for the collector's own clock: one in an hour."""
    sentence = f"{reason}: jobs that delete, summarise, publish or alert are paused"
    key = (raised_at // HOUR_US,)
    return alert(AlertKind.CLOCK_WRONG, "clock of the collector", sentence, key=key, raised_at=raised_at, reason=reason)


def of_low_disk(free: str, *, raised_at: int) -> AlertMessage:
    """Return the alert for the disk of the collector's database: one in an hour."""
    sentence = f"the disk of the database has {free}: make room, or backlogs and then all pushes are refused"
    key = (raised_at // HOUR_US,)
    return alert(AlertKind.DISK_LOW, "disk of the collector", sentence, key=key, raised_at=raised_at, free=free)


def of_test(*, raised_at: int) -> AlertMessage:
    """Return a test alert."""
    sentence = "this is a test: alerts of this collector arrive here"
    return alert(AlertKind.TEST, "test", sentence, key=(raised_at,), raised_at=raised_at)


def of_certificate(name: str, fingerprint: str, *, expires_at: int, raised_at: int) -> AlertMessage | None:
    """Return the alert for the collector's certificate if it ends soon: there is one at each of `_EXPIRY_DAYS`."""
    left_us = expires_at - raised_at
    reached = [days for days in _EXPIRY_DAYS if left_us <= days * DAY_US]
    if not reached:
        return None
    when = f"ends in {durations.rough(left_us)}" if left_us > 0 else "has ended"
    return alert(
        AlertKind.CERTIFICATE_EXPIRING,
        f"certificate of {name}",
        f"the certificate of the collector {when}: agents and readers cannot connect without a valid one",
        key=(fingerprint, min(reached)),
        raised_at=raised_at,
        expires_at=rfc3339(expires_at),
        fingerprint=fingerprint,
    )


def of_duplicate_agent(vantage: str, region: str, *, epoch: int, since_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for a second agent with the credential of a vantage."""
    sentence = f"a second agent uses the credential of {vantage}: one is perhaps a clone; its samples are refused"
    details = {"vantage": vantage, "region": region, "since_at": rfc3339(since_at)}
    return alert(AlertKind.DUPLICATE_AGENT, vantage, sentence, key=(vantage, epoch), raised_at=raised_at, **details)


def of_lost_batches(*, lost_at: int, raised_at: int) -> AlertMessage:
    """Return the alert for a database that has lost batches which agents had delivered by `lost_at`."""
    sentence = (
        "the database seems to have been restored: it lacks delivered batches, which agents send again; "
        "if it was, run isochrone-collector restored"
    )
    details = {"lost_at": rfc3339(lost_at)}
    return alert(AlertKind.DATABASE_RESTORED, "database", sentence, key=(lost_at,), raised_at=raised_at, **details)


def id_of(*parts: object) -> int:
    """Return an id derived from the parts: the same for the same subject, from 0 to 2^63 - 1."""
    text = "\n".join(str(part) for part in parts)
    # One bit less, because PostgreSQL's bigint is signed.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:_ID_BYTES]) >> 1


class Action(StrEnum):
    """The effect of an alert on its problem. `BEGIN` is also an escalation; an `EVENT` has no end."""

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
_ACTIONS = {
    AlertKind.ACKNOWLEDGED: Action.ACKNOWLEDGE,
    **dict.fromkeys((AlertKind.TARGET_RECOVERED, *_BEGINNING_OF), Action.END),
    **dict.fromkeys((AlertKind.TARGET_FAILING, AlertKind.TARGET_THROTTLED, *_BEGINNING_OF.values()), Action.BEGIN),
}
# The details that name the problem; without them it is named by the alert that began it.
_PROBLEMS = ("thread", "incident", "absence", "breach")
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
    """The problem of an alert: the kind of its beginning, and the `group` of alerts sent together, as they share it."""

    kind: AlertKind
    dedup_key: str
    action: Action
    severity: Severity
    group: str
    shared: str


def topic_of(message: AlertMessage) -> Topic:
    """Return the topic of an alert."""
    details, kind = message.details, _BEGINNING_OF.get(message.kind, message.kind)
    if message.kind in (AlertKind.TARGET_RECOVERED, AlertKind.ACKNOWLEDGED):
        kind = AlertKind(details["failure"])
    key = str(next((details[name] for name in _PROBLEMS if details.get(name)), alert_name(message.id)))
    shared = str(details.get(_GROUPED_BY.get(kind, ""), ""))
    is_everywhere = kind is AlertKind.TARGET_FAILING and details.get("scope") == "all"
    return Topic(
        kind=kind,
        dedup_key=key,
        action=_ACTIONS.get(message.kind, Action.EVENT),
        severity=Severity.CRITICAL if is_everywhere else _SEVERITY.get(kind, Severity.WARNING),
        group=f"{kind.value} {shared}" if shared else key,
        shared=shared,
    )
