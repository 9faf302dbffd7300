"""The targets as each region sees them, ranked."""

import asyncio

from isochrone_collector.analysis.ranking.leaderboard import standings
from isochrone_collector.errors import BadRequest
from isochrone_collector.names import unknown
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.standings import field
from isochrone_wire.answers import Leaderboard, Order, Selection


async def leaderboard(desk: QueryContext, selection: Selection, *, order: str = "") -> Leaderboard:
    """The targets that have samples, ranked within each region; by median TTFT when `order` is empty."""
    by = _order_of(order)
    found = await field(desk, selection)
    ranked = await asyncio.to_thread(standings, found.entries, by)
    return Leaderboard(window=found.window, standings=ranked, order=by, source=found.source)


def _order_of(name: str) -> Order:
    try:
        return Order(name or Order.TTFT.value)
    except ValueError:
        raise BadRequest(unknown("order", name, [order.value for order in Order])) from None
