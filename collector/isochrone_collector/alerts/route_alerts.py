"""Alerts for routes: a switch, a freeze, and members that miss their objective or meet it again. Pure; instants are
microseconds since the epoch.

The laws:

1. A switch of the first choice by one of the three rules, and a freeze, have one alert each.
2. A breach is raised when the whole 95 % interval is below the objective, and its end when the whole interval meets it;
   between the two nothing changes.
3. A breach has no alert of its own if an incident explains it: the target failed, or was throttled, from the region
   within the window of the table. A frozen table shows no breach.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from isochrone_collector.alerts.absence import LastAlert
from isochrone_collector.alerts.message import AlertMessage, id_of
from isochrone_wire import durations
from isochrone_wire.answers import Proportion
from isochrone_wire.insights import AlertKind, Eligible
from isochrone_wire.model import Slo
from isochrone_wire.operations import alert_name
from isochrone_wire.routes import ChangeKind, RouteEntry, RouteState, RouteTable

_KIND_OF = {
    ChangeKind.SOFT: AlertKind.ROUTE_SWITCHED,
    ChangeKind.FAST: AlertKind.ROUTE_SWITCHED,
    ChangeKind.HARD: AlertKind.ROUTE_SWITCHED,
    ChangeKind.FREEZE: AlertKind.ROUTE_FROZEN,
}


def of_change(table: RouteTable, *, raised_at: int) -> AlertMessage | None:
    """Return the alert for the change that led to a table, if it has one."""
    kind = _KIND_OF.get(table.change)
    if kind is None:
        return None
    return AlertMessage(
        id=id_of(kind, table.client_region, table.route, table.generation, table.built_at),
        kind=kind,
        subject=f"{table.route} from {table.client_region}",
        sentence=table.sentence,
        details=_details(table)
        | {"rule": table.change.value, "first": table.entries[0].target if table.entries else None},
        raised_at=raised_at,
    )


def objective_alerts(
    table: RouteTable, last_alerts: Mapping[str, LastAlert], explained: Collection[str], *, raised_at: int
) -> Iterator[AlertMessage]:
    """Yield the alerts for members that miss their objective, or meet it again. `last_alerts` are the last ones by
    subject, and `explained` the targets that an incident explains.
    """
    if table.state is RouteState.FROZEN:
        return
    for entry in table.entries:
        subject = f"{entry.target} in {table.route} from {table.client_region}"
        last = last_alerts.get(subject)
        breach = last if last and last.kind is AlertKind.SLO_BREACHED else None
        details = _details(table) | {"target": entry.target, "slo": table.slo.name}
        if entry.slo_eligible is Eligible.NO and breach is None and entry.target not in explained:
            yield AlertMessage(
                id=id_of(AlertKind.SLO_BREACHED, subject, table.generation, table.built_at),
                kind=AlertKind.SLO_BREACHED,
                subject=subject,
                sentence=f"misses its objective: {_shares(entry, table.slo)}",
                details=details | {"goodput": _value(entry.goodput), "success": _value(entry.success)},
                raised_at=raised_at,
            )
        elif entry.slo_eligible is Eligible.YES and breach is not None:
            lasted = durations.rough(raised_at - breach.raised_at)
            yield AlertMessage(
                id=id_of(AlertKind.SLO_RESTORED, subject, breach.alert_id),
                kind=AlertKind.SLO_RESTORED,
                subject=subject,
                sentence=f"meets its objective again, {lasted} after the breach was reported",
                details=details | {"breach": alert_name(breach.alert_id)},
                raised_at=raised_at,
            )


def _details(table: RouteTable) -> dict[str, Any]:
    return {"route": table.route, "region": table.client_region, "generation": table.generation}


def _shares(entry: RouteEntry, slo: Slo) -> str:
    """Return the shares that the objective limits, with their least values."""
    parts = []
    if entry.goodput is not None:
        parts.append(
            f"{entry.goodput.value:.1%} of {entry.goodput.n} requests kept its limits, {slo.min_goodput:.1%} needed"
        )
    if entry.success is not None and slo.min_success:
        parts.append(f"{entry.success.value:.1%} of {entry.success.n} succeeded, {slo.min_success:.1%} needed")
    return "; ".join(parts) or "too many requests are too slow"


def _value(share: Proportion | None) -> float | None:
    return None if share is None else share.value
