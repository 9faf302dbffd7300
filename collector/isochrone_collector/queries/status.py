"""The query for the status of all targets, which the public page and badges show."""

from isochrone_collector.analysis.status import status_of
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.incidents import incidents
from isochrone_collector.queries.ranking import leaderboard
from isochrone_wire.answers import Selection, Window
from isochrone_wire.model import DAY_US, MINUTE_US
from isochrone_wire.queries.status import StatusList

_HOUR_US = 60 * MINUTE_US


async def status(context: QueryContext, *, shown: NameFilter = EVERY_NAME) -> StatusList:
    """Return the status of every target that is `shown`, and of its regions, by the last 24 hours."""
    now_at = context.clock()
    window = Window(from_at=now_at - DAY_US, until_at=now_at)
    day = await leaderboard(context, Selection(window=window))
    hour = await leaderboard(context, Selection(window=Window(from_at=now_at - _HOUR_US, until_at=now_at)))
    opened = await incidents(context, window, past=False, id=0)
    targets, measured = context.targets().targets, day.standings
    if shown != EVERY_NAME:
        names = shown.select(target.name for target in targets)
        targets = tuple(target for target in targets if target.name in names)
        # Otherwise a region that measures other targets only would be in the status.
        measured = tuple(standing for standing in measured if standing.target in names)
    return status_of(targets, measured, hour.standings, opened.incidents, window=window)
