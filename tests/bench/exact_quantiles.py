"""Quantiles of a month, twice: from every sample, by the server alone, and from summaries, as the collector makes them.

Both are asked by way of a connection that is set up as the collector's own for questions are, only more patient.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import numpy as np
from psycopg import sql

from isochrone_collector.store import summaries
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.probe_queries import Scope, measure
from isochrone_collector.store.summaries import Series
from isochrone_wire.answers import Metric
from isochrone_wire.model import SECOND_US

SHARES = {0.50: 6, 0.95: 59, 0.99: 299}
"""Quantile → how many values it takes for an interval of 95 %, without which it is never told."""

PATIENCE_US = 600 * SECOND_US

Quantiles = Mapping[Series, tuple[float, ...]]

_EXACT = """\
SELECT target_id, region, count(value), percentile_disc({shares}) WITHIN GROUP (ORDER BY value)
FROM (
    SELECT target_id, region, coalesce({value}, {ceiling}) AS value
    FROM sample
    WHERE round_at >= %(from_at)s AND round_at < %(until_at)s AND target_id = ANY(%(target_ids)s::bigint[])
) AS probe
WHERE value IS NOT NULL
GROUP BY target_id, region
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The quantiles of `SHARES` per target and region, how many values each is of, and how long it took in seconds."""

    quantiles: Quantiles
    n: Mapping[Series, int]
    seconds: float


async def from_samples(conninfo: str, scope: Scope, *, times: int) -> list[Answer]:
    """Nearest rank, over every sample; several times over."""
    statement = sql.SQL(_EXACT).format(shares=sql.Literal(list(SHARES)), **measure(Metric.TTFT))

    async def ask(connection: Connection) -> Answer:
        begun = time.monotonic()
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(statement, scope.parameters())
            rows = await cursor.fetchall()
        seconds = time.monotonic() - begun
        return Answer(
            quantiles={(target_id, region): tuple(map(float, told)) for target_id, region, _, told in rows},
            n={(target_id, region): n for target_id, region, n, _ in rows},
            seconds=seconds,
        )

    return await _asked(conninfo, ask, times)


async def from_summaries(conninfo: str, scope: Scope, *, times: int) -> list[Answer]:
    """What the collector's summaries say; several times over."""

    async def ask(connection: Connection) -> Answer:
        begun = time.monotonic()
        found = await summaries.distributions(connection, scope, Metric.TTFT)
        assert found is not None
        columns = [found.histograms.quantile(share) for share in SHARES]
        seconds = time.monotonic() - begun
        rows = np.column_stack(columns).tolist()
        return Answer(
            quantiles=dict(zip(found.series, map(tuple, rows), strict=True)),
            n=dict(zip(found.series, found.histograms.n.tolist(), strict=True)),
            seconds=seconds,
        )

    return await _asked(conninfo, ask, times)


async def _asked(conninfo: str, ask: Callable[[Connection], Awaitable[Answer]], times: int) -> list[Answer]:
    database = Database(conninfo, statement_timeout_us=PATIENCE_US)
    await database.open()
    async with database.connection() as connection:
        answers = [await ask(connection) for _ in range(times)]
    await database.close()
    return answers


def largest_error_percent(exact: Answer, told: Answer) -> float:
    """By how much a quantile that may be told is off at most, in per cent of what it is. Raises `SystemExit` when the
    two are not of the same values.
    """
    if exact.n != told.n:
        raise SystemExit("the summaries are not of the same samples")
    errors = [
        abs(said - true) / true
        for series, quantiles in exact.quantiles.items()
        for true, said, least in zip(quantiles, told.quantiles[series], SHARES.values(), strict=True)
        if exact.n[series] >= least
    ]
    return 100 * max(errors)
