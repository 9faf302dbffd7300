"""Query times during ingest: a month of thirty regions and a hundred targets.

One PostgreSQL as started by the collector, with more than ten million samples, their ledger and summaries; the real
`isochrone-collector serve` with TLS; two agents that push a total of a thousand samples per second; and the regular
client. The queries are the differentials of all targets and regions over the last day, and the quantiles of the month,
from summaries and from all samples.

The time of the differentials is compared with their central arithmetic in plain numpy in this process: for as many
series of as many differences, all Walsh averages, and of these the median and the two ranks of the 95 % interval.
Reading the samples, pairing, autocorrelation, the remaining statistics and the answer come on top for the collector.

usage: query.py [--quick] prints figures and a RESULT line; exit 1 when a goal is missed
"""

import asyncio
import math
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from psycopg import sql

from bench import ingest
from bench.ingest import AGENTS, PUSHED_PER_SECOND, BackgroundIngest, PusherPool
from bench.processes import running_collector
from bench.query_dataset import BASELINE, FULL, QUICK, Dataset, Scale, filled_database
from bench.result import at_least, at_most, conclude, log
from fixtures.distributions import distributions
from isochrone_client.address import Collector
from isochrone_client.client import ReadClient
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.postgres.values import parameters_of
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.summaries import Series
from isochrone_common import identity_file
from isochrone_common.identity_file import Identity
from isochrone_wire.answers import DifferentialList, Metric, Selection, Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

DIFFS = 7
SUMMARIES = 7
EXACT = 3
REFERENCES = 3
GOALS = {
    "diff_24h_ratio": at_most(6),
    "summary_speedup": at_least(50),
    "summary_error_pct": at_most(1),
    # On a shared machine the last pushes may be delayed.
    "ingest_per_second": at_least(0.95 * PUSHED_PER_SECOND),
}
ANSWER_TIMEOUT_US = 120 * SECOND_US
SHARES = {0.50: 6, 0.95: 59, 0.99: 299}
"""Quantile → number of values required for its 95 % interval; with fewer, the quantile is not reported."""

TIMEOUT_US = 600 * SECOND_US

Quantiles = Mapping[Series, tuple[float, ...]]

# All samples of the month are valid.
_EXACT = """\
SELECT target_id, region, count(value), percentile_disc({shares}) WITHIN GROUP (ORDER BY value)
FROM (
    SELECT target_id, region, CASE
        WHEN outcome IN ('ok', 'timed_out', 'stalled', 'truncated', 'stream_error', 'filtered')
            AND ttft_us IS NOT NULL THEN ttft_us
        WHEN outcome IN ('timed_out', 'stalled', 'connect_failed') AND ttft_us IS NULL THEN timeout_us
    END AS value
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
    statement = sql.SQL(_EXACT).format(shares=sql.Literal(list(SHARES)))

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
        found = await distributions(connection, scope, Metric.TTFT)
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
    """Return the largest relative error in per cent of a quantile with enough values. Raises `SystemExit`."""
    if exact.n != approximate.n:
        raise SystemExit("the summaries are not of the same samples")
    errors = [
        abs(estimate - true) / true
        for series, quantiles in exact.quantiles.items()
        for true, estimate, least in zip(quantiles, approximate.quantiles[series], SHARES.values(), strict=True)
        if exact.n[series] >= least
    ]
    return 100 * max(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """The durations of one query, in seconds, and the number of differentials with an interval and their median n."""

    seconds: list[float]
    series: int = 0
    n: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        return f"{self.median:.3f} s (median of {len(self.seconds)}, worst {max(self.seconds):.3f} s)"


def timed(question: Callable[[], DifferentialList], times: int) -> Timings:
    """Run a query several times, and check that most differentials of the answer have an interval."""
    seconds = []
    for _ in range(times):
        begun = time.monotonic()
        answer = question()
        seconds.append(time.monotonic() - begun)
    known = [line for line in answer.differentials if line.shift_low is not None]
    if len(known) < 0.9 * len(answer.differentials):
        raise SystemExit(f"only {len(known)} of {len(answer.differentials)} differentials have an interval")
    n = int(statistics.median(line.n for line in known))
    log(f"{len(known)} differentials with an interval, n = {n}")
    return Timings(seconds=seconds, series=len(known), n=n)


def walsh_in_numpy(series: int, n: int) -> float:
    """Return the time for the median and the interval's ranks of the Walsh averages of all series, in seconds."""
    differences = np.random.default_rng(1).standard_t(3, (series, n))
    i, j = np.triu_indices(n)
    half_width = 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    places = [max(0, round(len(i) / 2 + sign * half_width)) for sign in (-1, 0, 1)]
    begun = time.monotonic()
    for row in differences:
        np.partition(row[i] + row[j], places)
    return time.monotonic() - begun


def ask(client: ReadClient) -> DifferentialList:
    until_at = time.time_ns() // 1000 + MINUTE_US
    return client.get_differentials(
        Selection(window=Window(from_at=until_at - DAY_US, until_at=until_at)), baseline=BASELINE
    )


def diffs(operator: Identity, ingest_load: BackgroundIngest) -> Timings:
    """Time the differentials of the last day during ingest."""
    with ReadClient(Collector(operator.http_address, operator), timeout_us=ANSWER_TIMEOUT_US) as client:
        begun = time.monotonic()
        ask(client)
        once = time.monotonic() - begun
        return ingest_load.during(lambda: timed(lambda: ask(client), DIFFS), seconds=max(10.0, 1.5 * DIFFS * once))


def quantiles(conninfo: str, dataset: Dataset, ingest_load: BackgroundIngest) -> dict[str, float]:
    """Time the quantiles of the month from all samples and from summaries during ingest."""
    scope = Scope(window=dataset.days, target_ids=dataset.target_ids)
    (once,) = asyncio.run(from_samples(conninfo, scope, times=1))
    log(f"exact quantiles take {once.seconds:.1f} s, {len(once.n)} targets and regions")
    asyncio.run(from_summaries(conninfo, scope, times=1))

    def work() -> dict[str, float]:
        exactly = asyncio.run(from_samples(conninfo, scope, times=EXACT))
        logged_at = asyncio.run(from_summaries(conninfo, scope, times=SUMMARIES))
        exact_times = Timings(seconds=[answer.seconds for answer in exactly])
        told_times = Timings(seconds=[answer.seconds for answer in logged_at])
        log(f"quantiles of the month: from samples {exact_times}, from summaries {told_times}")
        return {
            "quantiles_exact_s": exact_times.median,
            "quantiles_summary_s": told_times.median,
            "summary_speedup": exact_times.median / told_times.median,
            "summary_error_pct": largest_error_percent(exactly[0], logged_at[0]),
        }

    return ingest_load.during(work, seconds=max(10.0, 1.3 * EXACT * once.seconds + SUMMARIES))


def run(scale: Scale, stack: ExitStack) -> dict[str, float]:
    filled = stack.enter_context(filled_database(scale))
    running = stack.enter_context(running_collector(filled.folder, filled.conninfo, "--tls"))
    operator = identity_file.read(Path(running.reported["operator"]))
    targets = list(filled.dataset.target_ids)
    agents = PusherPool([ingest.enrol_pusher(operator, f"live-{nth}", targets, nth) for nth in range(AGENTS)])
    stack.callback(agents.end)
    ingest_load = BackgroundIngest(agents)
    day = diffs(operator, ingest_load)
    log(f"a day of all targets and regions: {day}")
    reference = statistics.median(walsh_in_numpy(day.series, day.n) for _ in range(REFERENCES))
    figures = {
        "diff_24h_ratio": day.median / reference,
        "diff_24h_all_targets_s": day.median,
        "diff_worst_s": max(day.seconds),
        "reference_diff_s": reference,
    }
    figures |= quantiles(filled.conninfo, filled.dataset, ingest_load)
    figures |= {"samples": filled.dataset.samples, "ingest_per_second": ingest_load.per_second}
    return figures | {"reply_p99_ms": ingest.p99_ms(ingest_load.reports)}


def main() -> int:
    with ExitStack() as stack:
        return conclude(run(QUICK if "--quick" in sys.argv else FULL, stack), GOALS)


if __name__ == "__main__":
    sys.exit(main())
