"""The query for incidents of targets."""

from dataclasses import replace

from isochrone_collector.alerts.notifications import of_incident
from isochrone_collector.errors import UnknownName
from isochrone_collector.queries.context import QueryContext, check_window
from isochrone_collector.store.alerting import incidents as incident_table
from isochrone_collector.store.alerting import silences
from isochrone_wire.answers import Window
from isochrone_wire.insights import Incident, IncidentList
from isochrone_wire.operations import incident_name


async def incidents(context: QueryContext, window: Window, *, past: bool, id: int) -> IncidentList:  # noqa: A002  # the name in the .proto
    """Return the newest thousand incidents of a window, newest first: those that are open, and with `past` those that
    have recovered. With an `id`, which is not 0, return only that incident. Raises `BadRequest` and `UnknownName`.
    """
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
