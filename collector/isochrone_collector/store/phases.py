"""What the phases of single requests took."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from isochrone_collector.analysis.differential.decomposition import Phases
from isochrone_collector.analysis.probes import Integers, Reals
from isochrone_collector.store.postgres import columns
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.readers import Scope


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SeenRow:
    """Columns of one target as seen from one region, in microseconds."""

    target_id: int
    region: str
    round_at: Integers
    dns: Reals
    tcp: Reals
    tls: Reals
    rtt: Reals
    ttft: Reals
    provider: Reals


async def phases(connection: Connection, scope: Scope) -> Phases:
    """The phases of every probe of a scope that has a first token."""
    rows = await columns.fetch(connection, query("phases"), _SeenRow, **scope.parameters())
    regions = tuple(sorted({row.region for row in rows}))
    sizes = [len(row.round_at) for row in rows]
    return Phases(
        regions=regions,
        target_id=np.repeat(np.array([row.target_id for row in rows], np.int64), sizes),
        region=np.repeat(np.array([regions.index(row.region) for row in rows], np.int64), sizes),
        round_at=np.concatenate([np.empty(0, np.int64), *(row.round_at for row in rows)]),
        **{name: _joined(rows, name) for name in _DURATIONS},
    )


_DURATIONS = [field.name for field in fields(_SeenRow) if field.type is Reals]


def _joined(rows: Sequence[_SeenRow], name: str) -> Reals:
    return np.concatenate([np.empty(0), *(getattr(row, name) for row in rows)])
