"""Incidents of targets: opened, escalated and recovered, from the evidence of each round. Pure; instants are those of
the collector's clock.

The laws:

1. An incident is of one target and one kind. It opens when the target fails from a region, escalates when it fails from
   several regions and from all, and recovers when it is answered again from all of them.
2. A change is reported when no vantage that may join it has yet to report the round, or when it has held for half an
   interval of the target, at most ten seconds: vantages whose rounds end at different instants are reported together.
   That of a target that never worked is reported after ten seconds, because its vantages may be starting.
3. A target is answered again after three rounds without the failure. The number doubles with each incident of the same
   kind that ended within sixty rounds before this one, up to `_MOST_CLEAR`.
4. Silence changes nothing: a region keeps its state while its vantages are silent or not trusted, but
   for an hour at most if another region is measured.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from isochrone_collector.alerts.failure_evidence import Evidence, FailureEvidence, Fleet, RegionState, WatchedTarget
from isochrone_collector.alerts.message import AlertMessage, alert, id_of
from isochrone_wire import durations
from isochrone_wire.insights import AlertKind
from isochrone_wire.json_format import minute, rfc3339
from isochrone_wire.model import SECOND_US
from isochrone_wire.operations import incident_name

KINDS = (AlertKind.TARGET_FAILING, AlertKind.TARGET_THROTTLED)

_CLEAR_ROUNDS, _MOST_CLEAR = 3, 48
_RECENT_ROUNDS = 60
_MAX_SETTLING_US = 10 * SECOND_US

Key = tuple[AlertKind, int]
"""The kind of an incident, and the id of its target."""


class Scope(IntEnum):
    """The part of the regions from which a target fails; the only measured region is `ONE`."""

    ONE = 1
    SEVERAL = 2
    ALL = 3


class Step(StrEnum):
    """A step of an incident. `WITHDRAWN`: its target left the plan, or is paused."""

    OPENED = "opened"
    ESCALATED = "escalated"
    CONTINUED = "continued"
    RECOVERED = "recovered"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetIncident:
    """An incident of a target: the regions from which it fails now, all of them so far, and the widest scope so far."""

    kind: AlertKind
    target_id: int
    failing: frozenset[str]
    regions: frozenset[str]
    scope: Scope
    first_failed_at: int
    last_failed_at: int
    opened_at: int
    never_worked: bool = False
    escalated_at: int | None = None
    recovered_at: int | None = None

    @property
    def id(self) -> int:
        """The id, which is the same on every collector that sees the same first failure."""
        return id_of(self.kind, self.target_id, self.first_failed_at)

    @property
    def key(self) -> Key:
        """The kind and the target: only one incident of each is open."""
        return self.kind, self.target_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A step of an incident, with the numbers of regions that measure it and, if most, of targets that fail at once."""

    step: Step
    incident: TargetIncident
    measured: int = 0
    at_once: int = 0


class IncidentWatch:
    """The incidents of all targets. `known` are the stored ones: those that are open, and those that ended lately."""

    def __init__(self, known: Iterable[TargetIncident] = ()) -> None:
        self.evidence = FailureEvidence()
        self._open: dict[Key, TargetIncident] = {}
        self._ended: dict[Key, list[int]] = {}
        self._rising_since: dict[Key, int] = {}
        for incident in known:
            self._apply(incident)

    def step(self, fleet: Fleet, *, now_at: int) -> list[Transition]:
        """Return what happened since the last step, by the rounds added to the evidence."""
        found = list(self._transitions(fleet, now_at))
        for transition in found:
            self._apply(transition.incident)
            if transition.step is not Step.CONTINUED:
                self._rising_since.pop(transition.incident.key, None)
        return found

    def _transitions(self, fleet: Fleet, now_at: int) -> Iterator[Transition]:
        for incident in self._open.values():
            if incident.target_id not in fleet.targets:
                yield Transition(step=Step.WITHDRAWN, incident=replace(incident, recovered_at=now_at))
        for target in fleet.targets.values():
            for kind in KINDS:
                if transition := self._transition(kind, target, fleet, now_at):
                    yield transition

    def _transition(self, kind: AlertKind, target: WatchedTarget, fleet: Fleet, now_at: int) -> Transition | None:
        key = (kind, target.id)
        incident = self._open.get(key)
        since_at = (incident.opened_at if incident else now_at) - _RECENT_ROUNDS * target.every_us
        recent = sum(at >= since_at for at in self._ended.get(key, ()))
        clear_rounds = min(_CLEAR_ROUNDS << recent, _MOST_CLEAR)
        evidence = self.evidence.of(target, kind, fleet, clear_rounds=clear_rounds, now_at=now_at)
        failing = _failing(incident, evidence)
        scope = _scope(failing, evidence)
        if scope > (incident.scope if incident else 0):
            if self._has_settled(key, target, evidence, now_at):
                if incident is None:
                    step, found = Step.OPENED, _opened(evidence, failing, key, target, now_at)
                else:
                    step, found = Step.ESCALATED, replace(_seen(incident, evidence, failing), escalated_at=now_at)
                found = replace(found, scope=Scope(scope))
                at_once = self.evidence.failing_everywhere(fleet, now_at) if kind is AlertKind.TARGET_FAILING else 0
                return Transition(step=step, incident=found, measured=len(evidence.regions), at_once=at_once)
        else:
            self._rising_since.pop(key, None)
        return _continued(incident, evidence, failing, now_at) if incident else None

    def _has_settled(self, key: Key, target: WatchedTarget, evidence: Evidence, now_at: int) -> bool:
        rising_us = now_at - self._rising_since.setdefault(key, now_at)
        if not target.has_worked:
            return rising_us >= _MAX_SETTLING_US
        return evidence.is_complete or rising_us >= min(target.every_us // 2, _MAX_SETTLING_US)

    def _apply(self, incident: TargetIncident) -> None:
        if incident.recovered_at is None:
            self._open[incident.key] = incident
            return
        self._open.pop(incident.key, None)
        self._ended.setdefault(incident.key, []).append(incident.recovered_at)
        del self._ended[incident.key][:-_MOST_CLEAR]


def _failing(incident: TargetIncident | None, evidence: Evidence) -> frozenset[str]:
    """Return the regions from which a target fails, or failed when something was last known from there."""
    if incident is None or not evidence.regions:
        return evidence.failing if incident is None else incident.failing
    unknown = {
        region
        for region in incident.failing
        if evidence.regions.get(region, RegionState.ANSWERED) is not RegionState.ANSWERED
    }
    return evidence.failing | unknown


def _scope(regions: frozenset[str], evidence: Evidence) -> int:
    if len(regions) <= 1:
        return len(regions)
    return Scope.ALL if regions >= evidence.regions.keys() else Scope.SEVERAL


def _opened(
    evidence: Evidence, failing: frozenset[str], key: Key, target: WatchedTarget, now_at: int
) -> TargetIncident:
    return TargetIncident(
        kind=key[0],
        target_id=target.id,
        failing=failing,
        regions=failing,
        scope=Scope.ONE,
        first_failed_at=evidence.first_failed_at,
        last_failed_at=evidence.last_failed_at,
        opened_at=now_at,
        never_worked=not target.has_worked,
    )


def _continued(incident: TargetIncident, evidence: Evidence, failing: frozenset[str], now_at: int) -> Transition | None:
    """Return the end of an incident, or its continuation; `None` if nothing changed."""
    seen = _seen(incident, evidence, failing)
    if not failing:
        return Transition(step=Step.RECOVERED, incident=replace(seen, recovered_at=now_at))
    return Transition(step=Step.CONTINUED, incident=seen) if seen != incident else None


def _seen(incident: TargetIncident, evidence: Evidence, failing: frozenset[str]) -> TargetIncident:
    return replace(
        incident,
        failing=failing,
        regions=incident.regions | failing,
        last_failed_at=max(incident.last_failed_at, evidence.last_failed_at),
    )


_SHOWN_CLASSES = 3
# By kind: the verb of an opening, of an escalation and of an end.
_VERBS = {
    AlertKind.TARGET_FAILING: ("fails", "now fails", "failed"),
    AlertKind.TARGET_THROTTLED: ("is throttled", "is now throttled", "was throttled"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentTarget:
    """The target of an incident."""

    name: str
    provider: str
    model: str


def of_transition(
    transition: Transition, target: IncidentTarget, *, classes: Mapping[str, int], example: str, raised_at: int
) -> AlertMessage | None:
    """Return the alert for what happened, if it is reported; `classes` counts failed probes by outcome and status."""
    step, incident = transition.step, transition.incident
    if step is Step.CONTINUED:
        return None
    is_over = incident.recovered_at is not None
    # Each scope is reported once, however often a target returns to it.
    part = "over" if is_over else incident.scope.name
    return alert(
        AlertKind.TARGET_RECOVERED if is_over else incident.kind,
        target.name,
        _end(transition) if is_over else _failure(transition, classes=classes, example=example),
        key=(incident.id, part),
        raised_at=raised_at,
        target=target.name,
        provider=target.provider,
        model=target.model,
        incident=incident_name(incident.id),
        step=step.value,
        failure=incident.kind.value,
        scope=incident.scope.name.lower(),
        regions=sorted(incident.regions),
        never_worked=incident.never_worked,
        first_failed_at=rfc3339(incident.first_failed_at),
        last_failed_at=rfc3339(incident.last_failed_at),
        classes=dict(classes),
        example=example,
        **({} if is_over else {"measured_regions": transition.measured, "targets_at_once": transition.at_once}),
    )


def _failure(transition: Transition, *, classes: Mapping[str, int], example: str) -> str:
    incident, names = transition.incident, sorted(transition.incident.failing)
    opened, escalated, _ = _VERBS[incident.kind]
    verb = "has never worked:" if incident.never_worked else opened
    if transition.step is Step.ESCALATED:
        verb = escalated
    where = ", ".join(names)
    if incident.scope is Scope.ALL:
        where = f"all {len(names)} regions"
    elif transition.measured == 1:
        where = f"{names[0]}, the only region that measures it,"
    shown = ", ".join(f"{n} {name}" for name, n in list(classes.items())[:_SHOWN_CLASSES])
    sentence = f"{verb} from {where} since {minute(incident.first_failed_at)} UTC" + (f": {shown}" if shown else "")
    # The providers may not have caused an outage of most targets at once.
    common = f"{transition.at_once} targets fail at once: several providers, or a network that all vantages share"
    return "; ".join(filter(None, (sentence, common if transition.at_once else "", example)))


def _end(transition: Transition) -> str:
    incident = transition.incident
    *_, ended = _VERBS[incident.kind]
    lasted = f"it {ended} for {durations.rough(incident.last_failed_at - incident.first_failed_at)}"
    if transition.step is Step.WITHDRAWN:
        return f"is no longer measured; {lasted}"
    return f"is answered again; {lasted} from {', '.join(sorted(incident.regions))}"
