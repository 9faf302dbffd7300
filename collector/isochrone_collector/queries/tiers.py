"""Targets by price tier."""

import asyncio

from isochrone_collector.analysis.ranking.price_tiers import tier_lines
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.standings import field
from isochrone_wire.answers import Selection
from isochrone_wire.insights import TierList


async def tiers(desk: QueryContext, selection: Selection) -> TierList:
    """One line per tier, region and target that has samples."""
    found = await field(desk, selection)
    return TierList(window=found.window, tiers=await asyncio.to_thread(tier_lines, found.entries))
