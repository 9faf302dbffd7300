"""Values over time of pushed samples, and the first and last round of each vantage."""

import time
from dataclasses import replace
from typing import Any

import grpc
import psycopg
import pytest

from fixtures.collector import Collector
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_collector.jobs.rollup import LATE_EVERY_US
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.series import series
from isochrone_wire.answers import Metric, Selection, Source, Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Batch, Outcome, Sample, Vantage

MS = 1_000
PLAN = "{baseline: us-east-2, every: 10s, targets: [{provider: p, model: m, base_url: 'http://h'}]}"
ROUNDS = 40
DAYS, A_DAY = 9, 12
# Of those that resolve the selection, and of hours, days and hours again.
FEW_STATEMENTS = 20


@pytest.fixture(scope="module")
def window(shared_collector: Collector) -> Window:
    """Forty rounds of one target from one region, slower by 400 ms from the twentieth; the last five fail."""
    call = shared_collector.call
    call.apply(PLAN)
    (target,) = call.targets().targets
    from_at = time.time_ns() // 1000 // (100 * SECOND_US) * (100 * SECOND_US) - 1_000 * SECOND_US
    plain = Sample(target_id=target.id, round_at=from_at, outcome=Outcome.OK, dispatched_at=from_at)
    samples = [
        replace(plain, round_at=from_at + n * 10 * SECOND_US, ttft_us=(200 if n < 20 else 600) * MS)
        if n < 35
        else replace(plain, round_at=from_at + n * 10 * SECOND_US, outcome=Outcome.HTTP_ERROR)
        for n in range(ROUNDS)
    ]
    vantage = Vantage(name="us-series", region="us-series")
    assert call.push(Batch(vantage=vantage, epoch=1, seq=1, samples=tuple(samples))).stored == ROUNDS
    return Window(from_at=from_at, until_at=from_at + ROUNDS * 10 * SECOND_US)


def test_a_series_shows_the_step_and_the_failures(shared_collector: Collector, window: Window) -> None:
    """Each bucket has the quantiles of its own rounds and the counts of their outcomes."""
    answer = shared_collector.call.series(Selection(window=window, regions=("us-series",)), points=40)
    assert (answer.metric, answer.source, answer.window, answer.bucket_us) == (
        Metric.TTFT,
        Source.SAMPLES,
        window,
        10 * SECOND_US,
    )
    (line,) = answer.series
    assert (line.target, line.region, len(line.points)) == ("p/m", "us-series", ROUNDS)
    assert [point.p50 for point in line.points] == [200 * MS] * 20 + [600 * MS] * 15 + [None] * 5
    assert [point.failed for point in line.points] == [0] * 35 + [1] * 5
    coarse = shared_collector.call.series(Selection(window=window, regions=("us-series",)), points=4)
    counts = [(point.n, point.ok, point.failed) for point in coarse.series[0].points]
    assert len(counts) <= 4
    assert [sum(column) for column in zip(*counts, strict=True)] == [35, 35, 5]


def test_buckets_fit_the_samples(shared_collector: Collector, window: Window) -> None:
    """A window that begins long before the first sample has the buckets of one that begins with it."""
    early = replace(window, from_at=window.from_at - DAY_US)
    found = [
        shared_collector.call.series(Selection(window=one, regions=("us-series",)), points=40)
        for one in (early, window)
    ]
    assert found[0].bucket_us == 10 * SECOND_US
    assert found[0].series == found[1].series
    assert found[0].window == early


def test_a_series_has_the_goodput_of_a_limit(shared_collector: Collector, window: Window) -> None:
    """Of forty planned requests twenty are in time, fifteen too slow, and five failed; a verdict counts the same."""
    selection = Selection(window=window, regions=("us-series",))
    answer = shared_collector.call.series(selection, points=4, limit_us=300 * MS)
    assert answer.limit_us == 300 * MS
    points = answer.series[0].points
    assert (sum(point.planned or 0 for point in points), sum(point.good or 0 for point in points)) == (ROUNDS, 20)
    (budget,) = shared_collector.call.latency_budgets(selection, limit_us=300 * MS)
    assert budget.goodput is not None
    assert (budget.n, round(budget.goodput.value * budget.n)) == (ROUNDS, 20)
    assert shared_collector.call.series(selection).series[0].points[0].good is None


def test_a_series_has_the_distribution_of_its_values(shared_collector: Collector, window: Window) -> None:
    """The values are in their bins, failures in none; a window without samples is an answer without series."""
    selection = Selection(window=window, regions=("us-series",))
    (line,) = shared_collector.call.series(selection, bins=40).series
    assert [(one.n, one.low < ms * MS <= one.high) for one, ms in zip(line.bins, (200, 600), strict=True)] == [
        (20, True),
        (15, True),
    ]
    assert shared_collector.call.series(selection).series[0].bins == ()
    empty = Window(from_at=window.from_at - 2_000 * SECOND_US, until_at=window.from_at - 1_000 * SECOND_US)
    assert shared_collector.call.series(Selection(window=empty, regions=("us-series",))).series == ()


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"points": 501}, "'501' is not a whole number from 0 to 500"),
        ({"points": -1}, "'-1' is not a whole number"),
        ({"metric": "speed"}, "'speed'"),
        ({"metric": "rtt", "limit_us": 1_000_000}, "no latency of a request"),
        ({"limit_us": -1}, "is not a number of seconds"),
        ({"bins": 1}, "1 bins"),
        ({"bins": 201}, "'201' is not a whole number from 0 to 200"),
        ({"bins": -1}, "'-1' is not a whole number"),
    ],
)
def test_a_wrong_question_is_refused(
    shared_collector: Collector, window: Window, question: dict[str, Any], sentence: str
) -> None:
    """Too many points and unknown metrics are invalid arguments that name the value."""
    with pytest.raises(grpc.RpcError) as refused:
        shared_collector.call.series(Selection(window=window), **question)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in str(refused.value)


def test_coverage_has_the_first_and_the_last_round(shared_collector: Collector, window: Window) -> None:
    """Coverage shows the span that has samples."""
    (line,) = shared_collector.call.coverage(Selection(window=window, regions=("us-series",)))
    assert (line.oldest_at, line.newest_at) == (window.from_at, window.until_at - 10 * SECOND_US)


async def test_a_long_series_takes_a_few_statements(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many points a long series has, it is read with the same few statements, and has every probe once."""
    await local.begin(DAY_AT, keep_us=30 * DAY_US)
    every_us = DAY_US // A_DAY
    rounds = [DAY_AT - (DAYS * A_DAY - n) * every_us for n in range(DAYS * A_DAY)]
    await local.push(Vantage(name="us-1", region="us"), [local.sample(at) for at in rounds])
    await local.turn_to(DAY_AT + LATE_EVERY_US + MINUTE_US, keep_us=30 * DAY_US)
    await local.rollup.run()
    context = QueryContext(database=local.database, plans=local.plans, clock=local.clock)
    selection = Selection(window=Window(from_at=rounds[0], until_at=DAY_AT))
    sent: list[object] = []
    real = psycopg.AsyncCursor.execute

    async def execute(cursor: Any, statement: Any, *more: Any, **named: Any) -> Any:
        sent.append(statement)
        return await real(cursor, statement, *more, **named)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", execute)
    for points, wanted in ((DAYS, DAYS), (500, len(rounds))):
        sent.clear()
        found = await series(context, selection, metric=Metric.TTFT, points=points)
        (line,) = found.series
        assert (found.source, len(line.points)) == (Source.SUMMARIES, wanted)
        assert sum(point.ok for point in line.points) == len(rounds)
        assert len(sent) <= FEW_STATEMENTS, sent
