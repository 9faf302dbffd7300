"""Planned requests for goodput, with what decides whether each was answered in time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from psycopg import sql

from isochrone_collector.analysis.goodput import Ending, Requests
from isochrone_collector.store import vantages
from isochrone_collector.store.postgres.instants import POSTGRES_EPOCH_AT
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.probe_queries import VALID, Scope, answer_us, measure, within_reach
from isochrone_wire.answers import Metric

# One request of the statement `requests`, in the server's byte order, and the bits of its `traits`.
_REQUEST = np.dtype(
    [("traits", ">i4"), ("round_at", ">i8"), *((name, ">f8") for name in ("ttft", "e2e", "ceiling", "speed"))]
)
_PLACE_BIT = 2
_ENDINGS = {ending.name.lower(): sql.Literal(ending.value) for ending in Ending}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TargetRow:
    """The requests of one target, each a `_REQUEST`."""

    target_id: int
    requests: bytes

    def __len__(self) -> int:
        return len(self.requests) // _REQUEST.itemsize


async def requests(connection: Connection, scope: Scope, *, answer_tokens: int = 0) -> Requests:
    """Return every round of a scope. With `answer_tokens`, the time to the last token is that of an answer of so many
    tokens. Raises `BadRequest` if there are too many.
    """
    # A region that is named twice would return every request twice.
    regions = tuple(dict.fromkeys(await vantages.regions(connection) if scope.regions is None else scope.regions))
    limited = measure(Metric.E2E)
    e2e = answer_us(answer_tokens) if answer_tokens else limited["value"]
    statement = query("requests").format(
        ttft=measure(Metric.TTFT)["value"], e2e=e2e, ceiling=limited["ceiling"], valid=sql.SQL(VALID), **_ENDINGS
    )
    rows = await within_reach(connection, statement, replace(scope, regions=regions), _TargetRow)
    return _requests(rows, regions)


def _requests(rows: Sequence[_TargetRow], regions: tuple[str, ...]) -> Requests:
    records = np.frombuffer(b"".join([row.requests for row in rows]), _REQUEST)
    traits = records["traits"].astype(np.int64)
    return Requests(
        regions=regions,
        target_id=np.repeat(np.array([row.target_id for row in rows], np.int64), [len(row) for row in rows]),
        region=traits >> _PLACE_BIT,
        round_at=records["round_at"].astype(np.int64) + POSTGRES_EPOCH_AT,
        ending=(traits & max(Ending)).astype(np.int8),
        ttft_us=records["ttft"].astype(np.float64),
        e2e_us=records["e2e"].astype(np.float64),
        ceiling_us=records["ceiling"].astype(np.float64),
        tokens_per_second=records["speed"].astype(np.float64),
    )
