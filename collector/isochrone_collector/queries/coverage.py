"""Rounds planned until now, and what was recorded of them."""

from collections.abc import Iterable, Sequence

from isochrone_collector.analysis.coverage import PlanSpan, planned_rounds, seen_part
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, look_up
from isochrone_collector.store import probe_queries, vantages
from isochrone_collector.store.rows import RecordedRow, VantageRow
from isochrone_wire.answers import Coverage, CoverageList, Selection


async def coverage(desk: QueryContext, selection: Selection) -> CoverageList:
    """For each vantage and target: the rounds planned until now, and what was recorded of them."""
    async with desk.database.connection() as connection:
        question = await look_up(connection, selection)
        everyone = await vantages.vantages(connection)
        rows = await probe_queries.recorded(connection, question.scope)
        spans = await desk.plans.spans(connection, selection.window)
    regions = question.scope.regions
    present = [vantage for vantage in everyone if regions is None or vantage.region in regions]
    lines = [line for vantage in present for line in _coverage(vantage, rows, spans, question, now_at=desk.clock())]
    return CoverageList(window=selection.window, coverage=tuple(lines))


def _coverage(
    vantage: VantageRow,
    rows: Sequence[RecordedRow],
    spans: Sequence[PlanSpan],
    question: ResolvedSelection,
    *,
    now_at: int,
) -> Iterable[Coverage]:
    own = {row.target_id: row for row in rows if row.vantage_id == vantage.id}
    oldest_at = min((row.oldest_at for row in own.values()), default=None)
    part = seen_part(
        question.scope.window,
        first_seen_at=vantage.first_seen_at,
        last_seen_at=vantage.last_seen_at,
        oldest_at=oldest_at,
        now_at=now_at,
    )
    for target_id in question.targets:
        planned = planned_rounds(target_id, spans, part)
        row = own.get(target_id)
        if planned or row:
            yield Coverage(
                vantage=vantage.name,
                region=vantage.region,
                target=question.names[target_id],
                planned=planned,
                recorded=row.recorded if row else 0,
                outcomes=row.outcomes if row else {},
                newest_at=row.newest_at if row else None,
            )
