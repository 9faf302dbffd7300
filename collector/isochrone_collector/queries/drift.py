"""The query for detected changes."""

from isochrone_collector.analysis.drift import MIN_ROUNDS
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve
from isochrone_collector.store import drift
from isochrone_collector.store.drift import DriftRow, WatchedRow
from isochrone_wire.answers import Metric, Selection
from isochrone_wire.insights import DriftEvent, DriftList


async def drift_events(context: QueryContext, selection: Selection) -> DriftList:
    """Return the changes within the window, newest first, and the number of series with enough rounds in it."""
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        rows = await drift.of_window(connection, resolved.scope)
        rounds = await drift.watched(connection, resolved.scope)
    enough = [count >= MIN_ROUNDS for row in rounds for count in _counts(row)]
    return DriftList(
        window=selection.window,
        events=tuple(_event(row, resolved) for row in rows),
        watched=sum(enough),
        too_short=len(enough) - sum(enough),
    )


def _counts(row: WatchedRow) -> list[int]:
    """Return the rounds of each series of a target and region; a metric without values has none."""
    return [count for count in (row.ttft, row.tokens_per_second) if count]


def _event(row: DriftRow, resolved: ResolvedSelection) -> DriftEvent:
    target = resolved.targets[row.target_id]
    return DriftEvent(
        target=resolved.names[row.target_id],
        provider=target.provider,
        model=target.model,
        region=row.region,
        metric=Metric(row.metric),
        changed_at=row.changed_at,
        detected_at=row.detected_at,
        before=row.before,
        after=row.after,
        change_percent=100 * (row.after / row.before - 1),
        p_value=row.p_value,
        n_before=row.n_before,
        n_after=row.n_after,
    )
