"""Quantiles of a month, computed from all samples by the server, and from summaries as the collector does.

Both use a connection with the settings of the collector's query connections, but with a longer timeout.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import numpy as np
from psycopg import sql

from isochrone_collector.store import summaries
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.postgres.values import parameters_of
from isochrone_collector.store.probe_queries import Scope, measure
from isochrone_collector.store.summaries import Series
from isochrone_wire.answers import Metric
from isochrone_wire.model import SECOND_US

SHARES = {0.50: 6, 0.95: 59, 0.99: 299}
"""Quantile → number of values required for its 95 % interval; with fewer, the quantile is not reported."""

TIMEOUT_US = 600 * SECOND_US

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
class Result:
    """The quantiles of `SHARES` per target and region, their numbers of values, and the duration in seconds."""

    quantiles: Quantiles
    n: Mapping[Series, int]
    seconds: float


async def from_samples(conninfo: str, scope: Scope, *, times: int) -> list[Result]:
    """Return nearest-rank quantiles over all samples, `times` times."""
    statement = sql.SQL(_EXACT).format(shares=sql.Literal(list(SHARES)), **measure(Metric.TTFT))

    async def query(connection: Connection) -> Result:
        begun = time.monotonic()
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(statement, parameters_of(scope.parameters()))
            rows = await cursor.fetchall()
        seconds = time.monotonic() - begun
        return Result(
            quantiles={(target_id, region): tuple(map(float, values)) for target_id, region, _, values in rows},
            n={(target_id, region): n for target_id, region, n, _ in rows},
            seconds=seconds,
        )

    return await _asked(conninfo, query, times)


async def from_summaries(conninfo: str, scope: Scope, *, times: int) -> list[Result]:
    """Return quantiles from the collector's summaries, `times` times."""

    async def query(connection: Connection) -> Result:
        begun = time.monotonic()
        found = await summaries.distributions(connection, scope, Metric.TTFT)
        assert found is not None
        columns = [found.histograms.quantile(share) for share in SHARES]
        seconds = time.monotonic() - begun
        rows = np.column_stack(columns).tolist()
        return Result(
            quantiles=dict(zip(found.series, map(tuple, rows), strict=True)),
            n=dict(zip(found.series, found.histograms.n.tolist(), strict=True)),
            seconds=seconds,
        )

    return await _asked(conninfo, query, times)


async def _asked(conninfo: str, query: Callable[[Connection], Awaitable[Result]], times: int) -> list[Result]:
    database = Database(conninfo, statement_timeout_us=TIMEOUT_US)
    await database.open()
    async with database.connection() as connection:
        answers = [await query(connection) for _ in range(times)]
    await database.close()
    return answers


def largest_error_percent(exact: Result, approximate: Result) -> float:
    """Return the largest relative error of a quantile with enough values, in per cent. Raises `SystemExit` if the two
    results cover different samples.
    """
    if exact.n != approximate.n:
        raise SystemExit("the summaries are not of the same samples")
    errors = [
        abs(estimate - true) / true
        for series, quantiles in exact.quantiles.items()
        for true, estimate, least in zip(quantiles, approximate.quantiles[series], SHARES.values(), strict=True)
        if exact.n[series] >= least
    ]
    return 100 * max(errors)
