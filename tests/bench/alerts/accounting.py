"""Raised incidents beside the expected ones. Pure; instants are microseconds."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from isochrone_wire.insights import Alert, AlertKind, Incident

# An alert that comes later than this is about something else.
_LATE_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """An incident that a fault must lead to, with the rounds of the fault."""

    fault: str
    kind: AlertKind
    target: str
    regions: frozenset[str]
    from_at: int
    until_at: int

    def is_met_by(self, incident: Incident) -> bool:
        """Return whether an incident is of this fault: of its target, its kind, its regions at most, and its time."""
        return (
            (incident.subject, incident.kind) == (self.target, self.kind)
            and set(incident.regions) <= self.regions
            and self.from_at <= incident.opened_at <= self.until_at
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sentences on incidents unexplained or missing, and the rounds from each one's first failure to its alert."""

    expected: int
    raised: int
    spurious: tuple[str, ...]
    missed: tuple[str, ...]
    first_alert_rounds: tuple[float, ...]


def account(
    expected: Sequence[Expected], incidents: Sequence[Incident], alerts: Collection[Alert], *, every_us: int
) -> Account:
    """Compare the incidents and alerts of a run with the expected ones; `every_us` is the interval of the rounds."""
    of = {one: [incident for incident in incidents if one.is_met_by(incident)] for one in expected}
    known = {incident.id for found in of.values() for incident in found}
    missed = [sentence for one, found in of.items() if (sentence := _lacks(one, found, alerts, every_us=every_us))]
    return Account(
        expected=len(expected),
        raised=len(incidents),
        spurious=tuple(_shown(incident) for incident in incidents if incident.id not in known),
        missed=tuple(missed),
        first_alert_rounds=tuple(
            (found[0].opened_at - found[0].first_failed_at) / every_us for found in of.values() if found
        ),
    )


def _lacks(one: Expected, found: Sequence[Incident], alerts: Iterable[Alert], *, every_us: int) -> str:
    """Return what an expected incident lacks; empty if it was raised, reported and ended as it must."""
    name = f"{one.fault}: {one.target} {one.kind}"
    if not found:
        return f"{name}: no incident"
    if found[0].opened_at - one.from_at > _LATE_ROUNDS * every_us:
        return f"{name}: opened {(found[0].opened_at - one.from_at) / every_us:.1f} rounds after the beginning"
    if frozenset().union(*(incident.regions for incident in found)) != one.regions:
        return f"{name}: found from {[incident.regions for incident in found]}, not from {sorted(one.regions)}"
    if any(incident.recovered_at is None for incident in found):
        return f"{name}: not ended"
    told = {(alert.kind, alert.raised_at) for alert in alerts if alert.subject == one.target}
    wanted = {(incident.kind, incident.opened_at) for incident in found}
    wanted |= {(AlertKind.TARGET_RECOVERED, incident.recovered_at or 0) for incident in found}
    return f"{name}: an alert is missing" if wanted - told else ""


def _shown(incident: Incident) -> str:
    return f"{incident.subject} {incident.kind} from {', '.join(incident.regions)}, opened at {incident.opened_at}"
