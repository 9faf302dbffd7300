from dataclasses import replace

from isochrone_collector.alerts.notifications import of_incident
from isochrone_collector.analysis.drift import MIN_ROUNDS
from isochrone_collector.errors import UnknownName
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, check_window, resolve
from isochrone_collector.store import alerts as alert_table
from isochrone_collector.store import drift, silences
from isochrone_collector.store import incidents as incident_table
from isochrone_collector.store.drift import DriftRow
from isochrone_collector.store.postgres.values import fields_of
from isochrone_wire.answers import Selection, Window
from isochrone_wire.insights import AlertList, DriftEvent, DriftList, Incident, IncidentList
from isochrone_wire.operations import incident_name


async def incidents(context: QueryContext, window: Window, *, past: bool, id: int) -> IncidentList:  # noqa: A002  # the name in the .proto
    """Return open incidents, and `past` ones, or that of an `id` other than 0. Raises `BadRequest`, `UnknownName`."""
    check_window(window)
    async with context.database.connection() as connection:
        if id:
            one = await incident_table.by_id(connection, id)
            if one is None:
                raise UnknownName(
                    f"there is no {incident_name(id)}; `isochrone incidents --past` lists the incidents of a window"
                )
            found: tuple[Incident, ...] = (one,)
        else:
            found = await incident_table.of_window(connection, window, past=past)
        in_force = await silences.at(connection, context.clock())
    found = tuple(replace(one, silences=of_incident(one, in_force, now_at=context.clock())) for one in found)
    watched = sum(not target.paused for target in context.targets().targets)
    return IncidentList(window=window, incidents=found, watched=watched)


async def alerts(context: QueryContext, window: Window) -> AlertList:
    """Return the newest thousand alerts raised in a window, newest first."""
    check_window(window)
    async with context.database.connection() as connection:
        found = await alert_table.of_window(connection, window)
    return AlertList(window=window, alerts=found, webhook=context.webhook)


async def drift_events(context: QueryContext, selection: Selection) -> DriftList:
    """Return the changes within the window, newest first, and the number of series with enough rounds in it."""
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        rows = await drift.of_window(connection, resolved.scope)
        rounds = await drift.watched(connection, resolved.scope)
    enough = [count >= MIN_ROUNDS for count in rounds if count]
    return DriftList(
        window=selection.window,
        events=tuple(_drift_event(row, resolved) for row in rows),
        watched=sum(enough),
        too_short=len(enough) - sum(enough),
    )


def _drift_event(row: DriftRow, resolved: ResolvedSelection) -> DriftEvent:
    target = resolved.targets[row.target_id]
    found = fields_of(row) | {"target": resolved.names[target.id], "provider": target.provider, "model": target.model}
    del found["target_id"]
    return DriftEvent(**found, change_percent=100 * (row.after / row.before - 1))
