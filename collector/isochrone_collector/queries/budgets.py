"""Which targets keep which use's latency budget, from where."""

import asyncio
from collections.abc import Sequence

from isochrone_collector.analysis.ranking.latency_targets import USES, Use, judge
from isochrone_collector.errors import UnknownName
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.standings import field
from isochrone_wire.answers import Selection
from isochrone_wire.insights import LatencyBudgetList


async def latency_budgets(desk: QueryContext, selection: Selection, *, uses: Sequence[str]) -> LatencyBudgetList:
    """One line per use, region and target that has samples; all uses when none is named. Raises `UnknownName`."""
    wanted = _uses_of(uses)
    found = await field(desk, selection)
    lines = await asyncio.to_thread(judge, found.entries, wanted)
    return LatencyBudgetList(window=found.window, budgets=lines)


def _uses_of(names: Sequence[str]) -> tuple[Use, ...]:
    known = {use.name: use for use in USES}
    for name in names:
        if name not in known:
            raise UnknownName.among("use", name, known)
    return tuple(use for use in USES if not names or use.name in names)
