"""When what a target does was last seen to change for good."""

from dataclasses import dataclass

from isochrone_collector.store.postgres.pool import Connection, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.readers import Scope
from isochrone_wire.answers import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangeRow:
    """The newest change of one target as seen from one region."""

    target_id: int
    region: str
    changed_at: int


async def newest_changes(connection: Connection, scope: Scope, metric: Metric) -> dict[tuple[int, str], int]:
    """Target and region → the newest change of the metric within the scope, where there is any."""
    rows = await fetch(connection, query("newest_changes"), _ChangeRow, **scope.parameters(), metric=metric.value)
    return {(row.target_id, row.region): row.changed_at for row in rows}
