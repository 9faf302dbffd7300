"""Long windows: answered from summaries, with the same results as from samples."""

import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from fixtures.collector import KEEP_A_MONTH, Caller, Collector, StartCollector
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.postgres import opened
from isochrone_collector.errors import BadRequest
from isochrone_collector.jobs.rollup import LATE_EVERY_US, Rollup
from isochrone_collector.store import leaderboards, partitions
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.probe_queries import Scope
from isochrone_wire.answers import Metric, Order, Quantile, Selection, Source, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import Eligible, Standing
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Batch, Outcome, Sample, Vantage, day_of

PLAN = (
    "{baseline: us, every: 4h, targets: [{provider: p, model: m, base_url: 'http://h', price: {usd_per_m_output: 2}}]}"
)
ROUNDS = 9 * 6
PROBES = 24
EVERY_US = 4 * HOUR_US
TOTAL = ROUNDS * PROBES
# In time, failed, throttled and skipped.
COUNTS = (TOTAL - len(range(0, TOTAL, 50)), len(range(0, TOTAL, 100)), len(range(50, TOTAL, 100)), 0)


def sample(target_id: int, round_at: int, n: int) -> Sample:
    """Every hundredth probe times out, every fiftieth is throttled, the others take 200 to 296 ms."""
    if n % 100 == 0:
        return Sample(
            target_id=target_id,
            round_at=round_at,
            dispatched_at=round_at,
            outcome=Outcome.TIMED_OUT,
            timeout_us=60 * SECOND_US,
        )
    outcome = Outcome.THROTTLED if n % 50 == 0 else Outcome.OK
    ttft_us = (200 + n % 97) * 1000 if outcome is Outcome.OK else None
    speed = 40.0 if outcome is Outcome.OK else None
    return Sample(
        target_id=target_id,
        round_at=round_at,
        dispatched_at=round_at,
        outcome=outcome,
        ttft_us=ttft_us,
        e2e_us=ttft_us,
        tokens_per_second=speed,
    )


def fill(call: Caller) -> int:
    """Push nine days of rounds of one target from one region, many probes in each; return their end."""
    until_at = time.time_ns() // 1000
    call.apply(PLAN)
    (target,) = call.targets().targets
    vantage = Vantage(name="us-1", region="us")
    for n in range(ROUNDS):
        round_at = until_at - (ROUNDS - n) * EVERY_US
        probes = tuple(sample(target.id, round_at, n * PROBES + place) for place in range(PROBES))
        call.push(Batch(vantage=vantage, epoch=1, seq=n + 1, samples=probes))
    return until_at


def later() -> int:
    """Return when the next search for late samples is due, also if the collector has searched meanwhile."""
    return time.time_ns() // 1000 + LATE_EVERY_US + MINUTE_US


@pytest.fixture
def collector(start_collector: StartCollector) -> Collector:
    return start_collector(more=KEEP_A_MONTH)


@pytest.fixture
async def database(collector: Collector) -> AsyncIterator[Database]:
    async with opened(collector.database_url) as made:
        yield made


def close(found: Quantile | None, exact: Quantile | None) -> bool:
    """Check that a quantile is within 1 %, the width of the buckets. Intervals differ: summaries have no order."""
    assert found is not None
    assert exact is not None
    return abs(found.value / exact.value - 1) <= 0.0101


def exact(call: Caller, window: Window) -> Standing:
    """Return the one line of a window that is answered from samples."""
    board = call.leaderboard(Selection(window=window))
    assert board.source is Source.SAMPLES
    return board.standings[0]


async def test_long_windows_say_what_samples_would(collector: Collector, database: Database) -> None:
    """Nine days from summaries and the samples of broken hours count every probe, with percentiles within 1 %."""
    call, now_at = collector.call, fill(collector.call)
    # Seven days are the longest window that samples answer.
    seven = exact(call, Window(from_at=now_at - 7 * DAY_US, until_at=now_at))
    whole = Window(from_at=now_at - ROUNDS * EVERY_US, until_at=now_at)

    await Rollup(database=database, clock=later).run()
    board = call.leaderboard(Selection(window=whole), order=Order.TOKENS_PER_USD.value)
    (line,) = board.standings
    assert (board.source, board.order, board.window) == (Source.SUMMARIES, Order.TOKENS_PER_USD, whole)
    assert (line.n, line.failed, line.throttled, line.skipped) == COUNTS
    assert close(line.ttft_p50_us, seven.ttft_p50_us)
    assert close(line.ttft_p95_us, seven.ttft_p95_us)
    assert close(line.e2e_p50_us, seven.e2e_p50_us)
    assert close(line.tokens_per_second_p50, seven.tokens_per_second_p50)
    assert line.tokens_per_second_per_usd == pytest.approx(20, rel=0.0101)
    assert line.newest_at == now_at - EVERY_US
    assert line.success is not None
    assert line.success.n == line.n + line.failed
    budgets = {row.use: row.eligible for row in call.latency_budgets(Selection(window=whole))}
    # Two requests in a hundred fail or are throttled, in hours of few requests: 95 % in time are not certain.
    assert (budgets["voice"], budgets["translation"], budgets["chat"]) == (Eligible.MAYBE, Eligible.NO, Eligible.MAYBE)
    assert [row.tier for row in call.tiers(Selection(window=whole))] == ["premium"]
    (target,) = call.targets().targets
    scope = Scope(window=whole, target_ids=(target.id,))
    async with database.connection() as connection:
        assert await leaderboards.more_than(connection, scope, TOTAL - 1)
        assert not await leaderboards.more_than(connection, scope, TOTAL)
        assert not await leaderboards.more_than(connection, replace(scope, regions=("eu",)), 0)


async def test_long_series_say_what_samples_would(collector: Collector, database: Database) -> None:
    """Nine days from summaries and samples count every probe once, also in bins, with medians within 1 %."""
    call, now_at = collector.call, fill(collector.call)
    seven = call.series(Selection(window=Window(from_at=now_at - 7 * DAY_US, until_at=now_at)), points=50, bins=20)
    await Rollup(database=database, clock=later).run()
    nine = call.series(
        Selection(window=Window(from_at=now_at - ROUNDS * EVERY_US, until_at=now_at)), points=60, bins=20
    )
    assert (seven.source, nine.source) == (Source.SAMPLES, Source.SUMMARIES)
    assert seven.bucket_us == nine.bucket_us == 6 * HOUR_US
    (exact_line,) = seven.series
    (line,) = nine.series
    assert [point.at for point in line.points] == sorted({point.at for point in line.points})
    counts = [(point.ok, point.failed, point.throttled, point.skipped) for point in line.points]
    assert tuple(map(sum, zip(*counts, strict=True))) == COUNTS
    assert sum(one.n for one in line.bins) == COUNTS[0]
    assert [(one.low, one.high) for one in line.bins] == [(one.low, one.high) for one in exact_line.bins]
    medians = {point.at: point.p50 for point in line.points}
    for point in exact_line.points[1:]:
        assert medians[point.at] == pytest.approx(point.p50, rel=0.0101)


async def test_what_samples_are_gone_of_is_still_known(collector: Collector, database: Database) -> None:
    """When partitions are retired, standings and series of those days come from summaries, by the whole hour."""
    call, now_at = collector.call, fill(collector.call)
    window = Window(from_at=day_of(now_at) - 8 * DAY_US + 90 * MINUTE_US, until_at=day_of(now_at) - 6 * DAY_US)
    whole_hours = Window(from_at=window.from_at + 30 * MINUTE_US, until_at=window.until_at)
    before = exact(call, whole_hours)

    await Rollup(database=database, clock=later).run()
    await partitions.retire(database, before_at=day_of(now_at) - 5 * DAY_US)
    board = call.leaderboard(Selection(window=window))
    assert (board.source, board.window) == (Source.SUMMARIES, whole_hours)
    (line,) = board.standings
    assert (line.n, line.failed, line.throttled) == (before.n, before.failed, before.throttled)
    assert close(line.ttft_p50_us, before.ttft_p50_us)
    assert close(line.ttft_p95_us, before.ttft_p95_us)
    found = call.series(Selection(window=window), points=4)
    assert (found.source, found.bucket_us) == (Source.SUMMARIES, 12 * HOUR_US)
    counts = [(point.ok, point.failed, point.throttled) for point in found.series[0].points]
    assert tuple(map(sum, zip(*counts, strict=True))) == (before.n, before.failed, before.throttled)


async def test_unsummarised_hours_are_bounded(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """While summaries are behind, a long window is refused instead of read; merging runs in a thread."""
    us = Vantage(name="us-1", region="us")
    await local.begin(DAY_AT + HOUR_US)
    await local.push(us, [local.sample(DAY_AT + n * MINUTE_US) for n in range(5)])
    await local.turn_to(DAY_AT + 2 * HOUR_US)
    await local.rollup.run()
    await local.turn_to(DAY_AT + 10 * DAY_US)
    await local.push(us, [local.sample(DAY_AT + 9 * DAY_US + n * MINUTE_US) for n in range(100)])
    merging: list[int] = []
    real = leaderboards._together

    def spy(*given: Any) -> Any:
        merging.append(threading.get_ident())
        return real(*given)

    monkeypatch.setattr(leaderboards, "_together", spy)
    scope = local.scope(Window(from_at=DAY_AT - DAY_US, until_at=DAY_AT + 10 * DAY_US))
    async with local.database.connection() as connection:
        found = await leaderboards.summarised(connection, scope)
        assert found is not None
        assert [(seen.outcome_counts.ok, seen.values[Metric.TTFT].n) for seen in found[1]] == [(105, 105)]
        assert threading.get_ident() not in merging
        monkeypatch.setattr(leaderboards, "MAX_SAMPLES", 99)
        with pytest.raises(BadRequest, match="not summarised yet: retry later, or choose a shorter window"):
            await leaderboards.summarised(connection, scope)
