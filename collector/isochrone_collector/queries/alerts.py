"""The query for alerts and their delivery."""

from isochrone_collector.queries.context import QueryContext, check_window
from isochrone_collector.store.alerting import alerts as alert_table
from isochrone_wire.answers import Window
from isochrone_wire.insights import AlertList


async def alerts(context: QueryContext, window: Window) -> AlertList:
    """Return the newest thousand alerts raised in a window, newest first."""
    check_window(window)
    async with context.database.connection() as connection:
        found = await alert_table.of_window(connection, window)
    return AlertList(window=window, alerts=found, webhook=context.webhook)
