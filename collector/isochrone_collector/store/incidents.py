"""Incidents of targets, and the rounds from which they are found."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg.types.json import Jsonb

from isochrone_collector.alerts.failure_evidence import RoundKind, RoundResult
from isochrone_collector.alerts.incidents import Scope, TargetIncident
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_collector.store.postgres.pool import Connection, IdRow, execute, fetch, fetch_columns, query
from isochrone_wire.answers import Window
from isochrone_wire.insights import AlertKind, FailedProbe, Incident
from isochrone_wire.model import DAY_US, Outcome

MAX_LISTED = 1_000
MAX_SAMPLES = 5
MAX_EXAMPLE_CHARS = 300

# Summaries hold everything before.
_NOT_SUMMARISED_US = 2 * DAY_US
_NO_FAILURES = (Outcome.OK, Outcome.THROTTLED)
_OUTCOMES = {
    AlertKind.TARGET_FAILING: [one.value for one in Outcome if one not in _NO_FAILURES and not one.skipped],
    AlertKind.TARGET_THROTTLED: [Outcome.THROTTLED.value],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSummary:
    """The failed probes of an incident: their numbers by class, the newest ones, and the error of the newest."""

    classes: dict[str, int]
    samples: tuple[FailedProbe, ...]
    example: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RoundsRow:
    target_id: int
    region: str
    vantage_id: Integers
    round_at: Integers
    kind: Integers

    def __iter__(self) -> Iterator[RoundResult]:
        parts = zip(self.vantage_id.tolist(), self.round_at.tolist(), self.kind.tolist(), strict=True)
        for vantage_id, round_at, kind in parts:
            yield RoundResult(
                target_id=self.target_id,
                vantage_id=vantage_id,
                region=self.region,
                round_at=round_at,
                kind=RoundKind(kind),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassRow:
    outcome: str
    http_status: int | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailureRow:
    vantage: str
    region: str
    round_at: int
    outcome: str
    http_status: int | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncidentRow:
    """An open incident: its kind, its target, and the regions from which it fails now."""

    id: int
    kind: str
    target_id: int
    failing: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """A stored incident."""

    id: int
    kind: str
    target_id: int
    subject: str
    failing: list[str]
    regions: list[str]
    scope: str
    never_worked: bool
    first_failed_at: int
    last_failed_at: int
    opened_at: int
    escalated_at: int | None
    recovered_at: int | None
    classes: dict[str, int]
    samples: list[dict[str, Any]]
    example: str

    @property
    def state(self) -> TargetIncident:
        """The state from which the watch continues."""
        return TargetIncident(
            kind=AlertKind(self.kind),
            target_id=self.target_id,
            failing=frozenset(self.failing),
            regions=frozenset(self.regions),
            scope=Scope[self.scope.upper()],
            first_failed_at=self.first_failed_at,
            last_failed_at=self.last_failed_at,
            opened_at=self.opened_at,
            never_worked=self.never_worked,
            escalated_at=self.escalated_at,
            recovered_at=self.recovered_at,
        )

    @property
    def incident(self) -> Incident:
        """The incident as readers get it."""
        return Incident(
            id=self.id,
            kind=AlertKind(self.kind),
            subject=self.subject,
            failing=tuple(self.failing),
            regions=tuple(self.regions),
            scope=self.scope,
            never_worked=self.never_worked,
            first_failed_at=self.first_failed_at,
            last_failed_at=self.last_failed_at,
            opened_at=self.opened_at,
            escalated_at=self.escalated_at,
            recovered_at=self.recovered_at,
            classes=self.classes,
            samples=tuple(FailedProbe(**one) for one in self.samples),
            example=self.example,
        )


async def rounds(connection: Connection, target_ids: Sequence[int], *, from_at: int) -> list[RoundResult]:
    """Return the rounds of some targets since `from_at`, oldest first by series."""
    scope = {"target_ids": list(target_ids), "from_at": from_at}
    rows = await fetch_columns(connection, "round_results", _RoundsRow, **scope)
    return [one for row in rows for one in row]


async def answered(connection: Connection, target_ids: Collection[int], *, now_at: int) -> set[int]:
    """Return the targets of which any probe was ever answered, as far as samples or summaries are kept."""
    ids, from_at = list(target_ids), now_at - _NOT_SUMMARISED_US
    found = await fetch(connection, "targets_answered_once", IdRow, target_ids=ids)
    found += await fetch(connection, "targets_answered_since", IdRow, target_ids=ids, from_at=from_at)
    return {row.id for row in found}


async def summarised(connection: Connection, incident: TargetIncident) -> FailureSummary:
    """Return the failed probes of an incident."""
    selection: dict[str, Any] = {
        "target_id": incident.target_id,
        "from_at": incident.first_failed_at,
        "until_at": incident.last_failed_at,
        "regions": sorted(incident.regions),
        "outcomes": _OUTCOMES[incident.kind],
    }
    classes = await fetch(connection, "failure_classes", _ClassRow, **selection)
    newest = await fetch(connection, "newest_failures", _FailureRow, **selection, limit=MAX_SAMPLES)
    return FailureSummary(
        classes={_class_of(row): row.n for row in sorted(classes, key=lambda row: (-row.n, _class_of(row)))},
        samples=tuple(
            FailedProbe(vantage=row.vantage, region=row.region, round_at=row.round_at, outcome=_class_of(row))
            for row in newest
        ),
        example=next((row.error for row in newest if row.error), "")[:MAX_EXAMPLE_CHARS],
    )


async def record(connection: Connection, incident: TargetIncident, subject: str, failures: FailureSummary) -> bool:
    """Record the state of an incident; return false if another collector has opened it, or ended it, meanwhile."""
    now: dict[str, Any] = {
        "id": incident.id,
        "failing": sorted(incident.failing),
        "regions": sorted(incident.regions),
        "scope": incident.scope.name.lower(),
        "last_failed_at": incident.last_failed_at,
        "classes": Jsonb(failures.classes),
        "samples": Jsonb([asdict(one) for one in failures.samples]),
        "example": failures.example,
        "escalated_at": incident.escalated_at,
        "recovered_at": incident.recovered_at,
    }
    return await execute(connection, "update_incident", **now) or await execute(
        connection,
        "add_incident",
        **now,
        kind=incident.kind.value,
        target_id=incident.target_id,
        subject=subject,
        never_worked=incident.never_worked,
        first_failed_at=incident.first_failed_at,
        opened_at=incident.opened_at,
    )


async def since(connection: Connection, since_at: int) -> list[IncidentRow]:
    """Return the incidents that are open or ended since an instant, oldest first."""
    return await fetch(connection, "incidents_since", IncidentRow, since_at=since_at)


async def open_ids(connection: Connection) -> set[int]:
    """Return the ids of the incidents that are open."""
    return {row.id for row in await open_ones(connection)}


async def open_ones(connection: Connection) -> list[OpenIncidentRow]:
    """Return the open incidents, oldest first."""
    return await fetch(connection, "open_incidents", OpenIncidentRow)


async def of_window(connection: Connection, window: Window, *, past: bool) -> tuple[Incident, ...]:
    """Return the newest incidents of a window, newest first: the open ones, and with `past` those that ended."""
    bounds = {"from_at": window.from_at, "until_at": window.until_at}
    statement = query("incidents_of_window")
    rows = await fetch(connection, statement, IncidentRow, **bounds, past=past, limit=MAX_LISTED)
    return tuple(row.incident for row in rows)


async def by_id(connection: Connection, incident_id: int) -> Incident | None:
    """Return one incident, if there is one with this id."""
    rows = await fetch(connection, "incident_by_id", IncidentRow, id=incident_id)
    return rows[0].incident if rows else None


def _class_of(row: _ClassRow | _FailureRow) -> str:
    """Return the outcome, with the HTTP status if there is one: `http_error 500`."""
    return row.outcome if row.http_status is None else f"{row.outcome} {row.http_status}"
