"""Alerts for tests: incidents of targets, and what has no end."""

from typing import Any

from isochrone_collector.alerts.message import AlertMessage, id_of
from isochrone_collector.alerts.notifications import Pending
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import SECOND_US
from isochrone_wire.operations import incident_name

AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z


def of_target(
    kind: AlertKind, target: str, *, at: int = AT, regions: tuple[str, ...] = ("us-east-2",), scope: str = "one"
) -> AlertMessage:
    """Return the alert on an incident of a target, one for each target: begun, or ended."""
    failure = AlertKind.TARGET_FAILING if kind is AlertKind.TARGET_RECOVERED else kind
    return AlertMessage(
        id=id_of(kind, target, regions),
        kind=kind,
        subject=target,
        sentence="is answered again" if kind is AlertKind.TARGET_RECOVERED else "fails <from> us-east-2 & elsewhere",
        details={
            "target": target,
            "provider": target.partition("/")[0],
            "incident": incident_name(id_of(failure, target)),
            "failure": failure.value,
            "scope": scope,
            "regions": list(regions),
        },
        raised_at=at,
    )


def fails(target: str, *, at: int = AT, **how: Any) -> AlertMessage:
    return of_target(AlertKind.TARGET_FAILING, target, at=at, **how)


def recovers(target: str, *, at: int = AT + 60 * SECOND_US) -> AlertMessage:
    return of_target(AlertKind.TARGET_RECOVERED, target, at=at)


def acknowledged(target: str, *, at: int = AT + SECOND_US) -> AlertMessage:
    begun = fails(target)
    return AlertMessage(
        id=id_of(AlertKind.ACKNOWLEDGED, target),
        kind=AlertKind.ACKNOWLEDGED,
        subject=target,
        sentence="acknowledged by ann until 2026-11-21 16:00 UTC: on it",
        details={**begun.details, "thread": begun.details["incident"]},
        raised_at=at,
    )


def switches(route: str = "chat", *, at: int = AT) -> AlertMessage:
    """Return an alert on what has no end."""
    return AlertMessage(
        id=id_of(AlertKind.ROUTE_SWITCHED, route, at),
        kind=AlertKind.ROUTE_SWITCHED,
        subject=f"{route} from us-east-2",
        sentence="the first choice is openai/gpt-5",
        details={"route": route, "region": "us-east-2"},
        raised_at=at,
    )


def pending(message: AlertMessage, **how: Any) -> Pending:
    return Pending(**{"message": message, "next_attempt_at": message.raised_at, **how})
