"""The watch over published route tables: raises the alerts of their changes, and of missed objectives. Runs on the
leader.
"""

from collections.abc import Callable

from isochrone_collector.alerts.absence import LastAlert
from isochrone_collector.alerts.route_alerts import objective_alerts, of_change
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.routing import serialization
from isochrone_collector.store import job_state
from isochrone_collector.store import routes as tables
from isochrone_collector.store.alerting import incidents
from isochrone_collector.store.alerting.incidents import IncidentRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.routes import TableRow
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable

EVERY_US = 5 * SECOND_US

_PROGRESS = "route_alerts"
_OBJECTIVE = (AlertKind.SLO_BREACHED, AlertKind.SLO_RESTORED)


class RouteWatch:
    """The tables that were published since the last run; before the first one, those since the last leader's."""

    def __init__(self, *, database: Database, alerting: AlertDelivery, clock: Callable[[], int]) -> None:
        self._database = database
        self._alerting = alerting
        self._clock = clock
        self._generation: int | None = None

    async def run(self) -> None:
        """Raise the alerts of new tables. Raises `DatabaseUnavailable`."""
        async with self._database.connection() as connection:
            generation = await self._begin(connection)
            rows = await tables.after(connection, generation)
        # Another leader's tables are read once more when this one leads again: alerts have ids of their own.
        self._generation = None
        if rows:
            await self._raise(rows)
            generation = rows[-1].generation
        self._generation = generation

    async def _begin(self, connection: Connection) -> int:
        if self._generation is not None:
            return self._generation
        done_until = (await job_state.progress(connection)).get(_PROGRESS)
        # Without a record the tables so far were built before there were such alerts.
        return await tables.generation_at(connection, self._clock() if done_until is None else done_until)

    async def _raise(self, rows: list[TableRow]) -> None:
        found = [serialization.load(RouteTable, row.document) for row in rows]
        async with self._database.transaction() as connection:
            recent = await incidents.since(connection, min(table.window.from_at for table in found))
            last_alerts = await self._alerting.last_alerts(connection, _OBJECTIVE)
            for table in found:
                now_at = self._clock()
                if change := of_change(table, raised_at=now_at):
                    await self._alerting.raise_alert(connection, change)
                for message in objective_alerts(table, last_alerts, _explained(table, recent), raised_at=now_at):
                    await self._alerting.raise_alert(connection, message)
                    last = LastAlert(kind=message.kind, alert_id=message.id, raised_at=message.raised_at)
                    last_alerts[message.subject] = last
            await job_state.advance(connection, _PROGRESS, max(table.built_at for table in found))


def _explained(table: RouteTable, recent: list[IncidentRow]) -> set[str]:
    """Return the targets with an incident in the region of a table within its window."""
    return {
        row.subject
        for row in recent
        if table.client_region in row.regions
        and row.opened_at < table.window.until_at
        and (row.recovered_at is None or row.recovered_at >= table.window.from_at)
    }
