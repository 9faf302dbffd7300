"""Messages for incidents of targets. Pure; instants are microseconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass

from isochrone_collector.alerts.incidents import Scope, Step, Transition
from isochrone_collector.alerts.message import AlertMessage, id_of
from isochrone_wire import durations
from isochrone_wire.insights import AlertKind
from isochrone_wire.json_format import minute, rfc3339
from isochrone_wire.operations import incident_name

_SHOWN_CLASSES = 3
_OPENED = {AlertKind.TARGET_FAILING: "fails", AlertKind.TARGET_THROTTLED: "is throttled"}
_ESCALATED = {AlertKind.TARGET_FAILING: "now fails", AlertKind.TARGET_THROTTLED: "is now throttled"}
_ENDED = {AlertKind.TARGET_FAILING: "failed", AlertKind.TARGET_THROTTLED: "was throttled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentTarget:
    """The target of an incident: its name, its provider and its model."""

    name: str
    provider: str
    model: str


def of_transition(
    transition: Transition, target: IncidentTarget, *, classes: Mapping[str, int], example: str, raised_at: int
) -> AlertMessage | None:
    """Return the alert for what happened to an incident, if it is reported. `classes` are the numbers of its failed
    probes by outcome and HTTP status, and `example` is the error of the newest one.
    """
    step, incident = transition.step, transition.incident
    if step is Step.CONTINUED:
        return None
    is_over = incident.recovered_at is not None
    # Each scope is reported once, however often a target returns to it.
    part = "over" if is_over else incident.scope.name
    kind = AlertKind.TARGET_RECOVERED if is_over else incident.kind
    return AlertMessage(
        id=id_of(kind, incident.id, part),
        kind=kind,
        subject=target.name,
        sentence=_end(transition) if is_over else _failure(transition, classes=classes, example=example),
        details={
            "target": target.name,
            "provider": target.provider,
            "model": target.model,
            "incident": incident_name(incident.id),
            "step": step.value,
            "failure": incident.kind.value,
            "scope": incident.scope.name.lower(),
            "regions": sorted(incident.regions),
            "never_worked": incident.never_worked,
            "first_failed_at": rfc3339(incident.first_failed_at),
            "last_failed_at": rfc3339(incident.last_failed_at),
            "classes": dict(classes),
            "example": example,
            **({} if is_over else {"measured_regions": transition.measured, "targets_at_once": transition.at_once}),
        },
        raised_at=raised_at,
    )


def _failure(transition: Transition, *, classes: Mapping[str, int], example: str) -> str:
    incident = transition.incident
    if transition.step is Step.ESCALATED:
        verb = _ESCALATED[incident.kind]
    else:
        verb = "has never worked:" if incident.never_worked else _OPENED[incident.kind]
    shown = ", ".join(f"{n} {name}" for name, n in list(classes.items())[:_SHOWN_CLASSES])
    sentence = f"{verb} from {_places(transition)} since {minute(incident.first_failed_at)} UTC" + (
        f": {shown}" if shown else ""
    )
    return "; ".join(filter(None, (sentence, _common(transition), example)))


def _end(transition: Transition) -> str:
    incident = transition.incident
    lasted = durations.rough(incident.last_failed_at - incident.first_failed_at)
    if transition.step is Step.WITHDRAWN:
        return f"is no longer measured; it {_ENDED[incident.kind]} for {lasted}"
    where = ", ".join(sorted(incident.regions))
    return f"is answered again; it {_ENDED[incident.kind]} for {lasted} from {where}"


def _places(transition: Transition) -> str:
    incident = transition.incident
    names = sorted(incident.failing)
    if incident.scope is Scope.ALL:
        return f"all {len(names)} regions"
    return f"{names[0]}, the only region that measures it," if transition.measured == 1 else ", ".join(names)


def _common(transition: Transition) -> str:
    """Return the sentence for an outage of most targets at once, which the providers may not have caused."""
    if not transition.at_once:
        return ""
    return f"{transition.at_once} targets fail at once: several providers, or a network that all vantages share"
