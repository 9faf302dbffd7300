"""The watch over vantages: raises the alerts for budgets that are used up and for clocks that are wrong. Runs on the
leader.
"""

from collections.abc import Callable

from isochrone_collector.alerts.fleet_alerts import budget_alerts, is_clock_wrong, of_vantage_clock
from isochrone_collector.fleet_state import Spender, reported
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import vantages
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.rows import VantageStateRow
from isochrone_wire.model import SECOND_US, Vantage

EVERY_US = 30 * SECOND_US


class FleetWatch:
    """The watch over the vantages of all collectors on one database."""

    def __init__(self, *, database: Database, plans: Plans, alerting: AlertDelivery, clock: Callable[[], int]) -> None:
        self._database = database
        self._plans = plans
        self._alerting = alerting
        self._clock = clock
        self._wrong_clocks: list[VantageStateRow] = []
        self._read_at = 0

    async def run(self) -> None:
        """Raise the alerts that are due today. Raises `DatabaseUnavailable`."""
        plan, now_at = self._plans.current, self._clock()
        async with self._database.connection() as connection:
            spenders = await vantages.spenders(connection) if plan and plan.budgets else []
            await self._read_clocks(connection, now_at)
            found = [Spender(vantage=row.name, region=row.region, reported=reported(row.spend)) for row in spenders]
            messages = list(budget_alerts(found, plan, now_at=now_at)) if plan else []
            messages += [
                of_vantage_clock(row.name, row.region, row.clock_offset_us or 0, raised_at=now_at)
                for row in self._wrong_clocks
            ]
            for message in messages:
                await self._alerting.raise_alert(connection, message)

    async def distrusted(self, connection: Connection, *, now_at: int) -> frozenset[int]:
        """Return the ids of the vantages whose clocks were wrong at the last run, or now if that was long ago."""
        if not 0 <= now_at - self._read_at < 2 * EVERY_US:
            await self._read_clocks(connection, now_at)
        return frozenset(Vantage(name=row.name, region=row.region).id for row in self._wrong_clocks)

    async def _read_clocks(self, connection: Connection, now_at: int) -> None:
        states = await vantages.states(connection, now_at=now_at)
        self._wrong_clocks = [row for row in states if is_clock_wrong(row.clock_offset_us, row.clock_uncertainty_us)]
        self._read_at = now_at
