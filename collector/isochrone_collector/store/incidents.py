from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from psycopg.types.json import Jsonb

from isochrone_collector.alerts.failure_evidence import RoundKind, RoundResult
from isochrone_collector.alerts.incidents import Scope, TargetIncident
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_collector.store.postgres import pool
from isochrone_collector.store.postgres.values import fields_of
from isochrone_wire.answers import Window
from isochrone_wire.insights import AlertKind, FailedProbe, Incident
from isochrone_wire.model import DAY_US, Outcome

MAX_LISTED = 1_000
MAX_SAMPLES = 5
MAX_EXAMPLE_CHARS = 300

# Summaries hold everything before.
_NOT_SUMMARISED_US = 2 * DAY_US
_OUTCOMES = {
    AlertKind.TARGET_FAILING: [one for one in Outcome if one.failed],
    AlertKind.TARGET_THROTTLED: [Outcome.THROTTLED],
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
        parts = zip(self.vantage_id.tolist(), self.round_at.tolist(), map(RoundKind, self.kind.tolist()), strict=True)
        for vantage_id, at, kind in parts:
            yield RoundResult(
                target_id=self.target_id, region=self.region, vantage_id=vantage_id, round_at=at, kind=kind
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncidentRow:
    """An open incident: its kind, its target, and the regions from which it fails now."""

    id: int
    kind: str
    target_id: int
    failing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow(Incident):
    """A stored incident, with its target."""

    target_id: int

    @property
    def state(self) -> TargetIncident:
        """The state from which the watch continues."""
        same = {one.name: getattr(self, one.name) for one in fields(TargetIncident)}
        sets = {"failing": frozenset(self.failing), "regions": frozenset(self.regions)}
        return TargetIncident(**same | sets | {"scope": Scope[self.scope.upper()]})

    @property
    def incident(self) -> Incident:
        """The incident as readers get it."""
        return Incident(**{one.name: getattr(self, one.name) for one in fields(Incident)})


async def rounds(connection: pool.Connection, target_ids: Sequence[int], *, from_at: int) -> list[RoundResult]:
    """Return the rounds of some targets since `from_at`, oldest first by series."""
    rows = await pool.fetch_columns(connection, "round_results", _RoundsRow, target_ids=target_ids, from_at=from_at)
    return [one for row in rows for one in row]


async def answered(connection: pool.Connection, target_ids: Collection[int], *, now_at: int) -> set[int]:
    """Return the targets of which any probe was ever answered, as far as samples or summaries are kept."""
    ids, from_at = list(target_ids), now_at - _NOT_SUMMARISED_US
    once = await pool.fetch_values(connection, "targets_answered_once", target_ids=ids)
    return {*once, *await pool.fetch_values(connection, "targets_answered_since", target_ids=ids, from_at=from_at)}


async def summarised(connection: pool.Connection, incident: TargetIncident) -> FailureSummary:
    """Return the failed probes of an incident."""
    selection: dict[str, Any] = {
        **fields_of(incident),
        "from_at": incident.first_failed_at,
        "until_at": incident.last_failed_at,
        "outcomes": _OUTCOMES[incident.kind],
    }
    rows = await pool.fetch_tuples(connection, "failure_classes", **selection)
    classes = {_class(outcome, status): n for outcome, status, n in rows}
    newest = await pool.fetch_tuples(connection, "newest_failures", **selection, limit=MAX_SAMPLES)
    return FailureSummary(
        classes=dict(sorted(classes.items(), key=lambda item: (-item[1], item[0]))),
        samples=tuple(
            FailedProbe(vantage=vantage, region=region, round_at=at, outcome=_class(outcome, status))
            for vantage, region, at, outcome, status, _ in newest
        ),
        example=next((error for *_, error in newest if error), "")[:MAX_EXAMPLE_CHARS],
    )


async def record(connection: pool.Connection, incident: TargetIncident, subject: str, failures: FailureSummary) -> bool:
    """Record the state of an incident; return false if another collector has opened it, or ended it, meanwhile."""
    now: dict[str, Any] = {
        **fields_of(incident),
        **fields_of(failures),
        "id": incident.id,
        "subject": subject,
        "scope": incident.scope.name.lower(),
        "samples": Jsonb([asdict(one) for one in failures.samples]),
    }
    return await pool.execute(connection, "update_incident", **now) or await pool.execute(
        connection, "add_incident", **now
    )


async def since(connection: pool.Connection, since_at: int) -> list[IncidentRow]:
    """Return the incidents that are open or ended since an instant, oldest first."""
    return await pool.fetch(connection, "incidents_since", IncidentRow, since_at=since_at)


async def open_ids(connection: pool.Connection) -> set[int]:
    """Return the ids of the incidents that are open."""
    return {row.id for row in await open_ones(connection)}


async def open_ones(connection: pool.Connection) -> list[OpenIncidentRow]:
    """Return the open incidents, oldest first."""
    return await pool.fetch(connection, "open_incidents", OpenIncidentRow)


async def of_window(connection: pool.Connection, window: Window, *, past: bool) -> tuple[Incident, ...]:
    """Return the newest incidents of a window, newest first: the open ones, and with `past` those that ended."""
    bounds = fields_of(window)
    rows = await pool.fetch(connection, "incidents_of_window", IncidentRow, **bounds, past=past, limit=MAX_LISTED)
    return tuple(row.incident for row in rows)


async def by_id(connection: pool.Connection, incident_id: int) -> Incident | None:
    """Return one incident, if there is one with this id."""
    found = await pool.fetch_one(connection, "incident_by_id", IncidentRow, id=incident_id)
    return found.incident if found else None


def _class(outcome: str, http_status: int | None) -> str:
    return outcome if http_status is None else f"{outcome} {http_status}"
