"""The query for the status of all targets, which the public page and badges show."""

from isochrone_collector.analysis.status import status_of
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.incidents import incidents
from isochrone_collector.queries.ranking import leaderboard
from isochrone_wire.answers import Selection, Window
from isochrone_wire.model import DAY_US, MINUTE_US
from isochrone_wire.queries.status import StatusList

_HOUR_US = 60 * MINUTE_US


async def status(context: QueryContext) -> StatusList:
    """Return the status of every target and region by the last 24 hours."""
    now_at = context.clock()
    window = Window(from_at=now_at - DAY_US, until_at=now_at)
    day = await leaderboard(context, Selection(window=window))
    hour = await leaderboard(context, Selection(window=Window(from_at=now_at - _HOUR_US, until_at=now_at)))
    opened = await incidents(context, window, past=False, id=0)
    return status_of(context.targets().targets, day.standings, hour.standings, opened.incidents, window=window)
