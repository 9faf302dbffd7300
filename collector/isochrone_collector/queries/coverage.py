"""The query for coverage: planned and recorded rounds."""

from collections.abc import Iterable, Sequence

from isochrone_collector.analysis.differential.participation import PlanSpan, active_window, planned_rounds
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve
from isochrone_collector.store import probe_queries, vantages
from isochrone_collector.store.rows import RecordedRow, VantageRow
from isochrone_wire.answers import Selection
from isochrone_wire.fleet import Coverage, CoverageList


async def coverage(context: QueryContext, selection: Selection) -> CoverageList:
    """Return the rounds planned until now and the rounds recorded, per vantage and target."""
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        all_vantages = await vantages.vantages(connection)
        rows = await probe_queries.recorded(connection, resolved.scope)
        spans = await context.plans.spans(connection, selection.window)
    regions = resolved.scope.regions
    present = [vantage for vantage in all_vantages if regions is None or vantage.region in regions]
    lines = [line for vantage in present for line in _coverage(vantage, rows, spans, resolved, now_at=context.clock())]
    return CoverageList(window=selection.window, coverage=tuple(lines))


def _coverage(
    vantage: VantageRow,
    rows: Sequence[RecordedRow],
    spans: Sequence[PlanSpan],
    resolved: ResolvedSelection,
    *,
    now_at: int,
) -> Iterable[Coverage]:
    own = {row.target_id: row for row in rows if row.vantage_id == vantage.id}
    oldest_at = min((row.oldest_at for row in own.values()), default=None)
    part = active_window(
        resolved.scope.window,
        first_seen_at=vantage.first_seen_at,
        last_seen_at=vantage.last_seen_at,
        oldest_at=oldest_at,
        now_at=now_at,
    )
    for target_id in resolved.targets:
        planned = planned_rounds(target_id, spans, part)
        row = own.get(target_id)
        if planned or row:
            yield Coverage(
                vantage=vantage.name,
                region=vantage.region,
                target=resolved.names[target_id],
                planned=planned,
                recorded=row.recorded if row else 0,
                outcomes=row.outcomes if row else {},
                newest_at=row.newest_at if row else None,
                oldest_at=row.oldest_at if row else None,
            )
