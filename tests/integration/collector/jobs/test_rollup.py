"""Rollups of samples, including late ones, into summaries of hours and days, against a real PostgreSQL."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import psycopg
import pytest

from fixtures.distributions import distributions
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.postgres import rows
from isochrone_collector.jobs.rollup import GRACE_US, LATE_EVERY_US
from isochrone_collector.store import job_state, partitions, rollups, summaries
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.summaries import Resolution
from isochrone_wire.answers import Metric, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, Outcome, Vantage
from testdata.columns import independent_quantile

US, SG = Vantage(name="us-1", region="us"), Vantage(name="sg-1", region="sg")


def hour(n: int) -> Window:
    return Window(from_at=DAY_AT + n * HOUR_US, until_at=DAY_AT + (n + 1) * HOUR_US)


DAY = Window(from_at=DAY_AT, until_at=DAY_AT + DAY_US)


async def test_an_hour_is_summarised_after_its_end(local: InProcessCollector) -> None:
    """An hour is summarised only after a grace period, with quantiles within 1 % of the exact ones."""
    await local.begin(DAY_AT + 30 * MINUTE_US)
    chance = Random(3)
    values = [int(chance.lognormvariate(13, 0.5)) for _ in range(200)]
    await local.push(US, [local.sample(DAY_AT + k * MINUTE_US // 4, value) for k, value in enumerate(values)])
    await local.push(SG, [local.sample(DAY_AT, 900_000)])
    await local.turn_to(DAY_AT + HOUR_US + GRACE_US - 1)
    await local.rollup.run()
    assert await local.ttft(hour(0)) is None
    await local.turn_to(DAY_AT + HOUR_US + GRACE_US)
    await local.rollup.run()
    found = await local.ttft(hour(0))
    assert found is not None
    assert set(found.series) == {(local.target_id, "us"), (local.target_id, "sg")}
    assert found.window == hour(0)
    us = found.histograms.group(found.series.index((local.target_id, "us")))
    for share in (0.5, 0.95):
        told, true = us.quantile(share), independent_quantile(values, share)
        assert told is not None
        assert true is not None
        assert told.value == pytest.approx(true.value, rel=0.01)


async def test_timeouts_and_outcomes_are_kept(local: InProcessCollector) -> None:
    """Summaries contain timeouts as limits, outcomes, costs, and the newest round."""
    await local.begin(DAY_AT + 50 * MINUTE_US)
    cut = {"outcome": Outcome.TIMED_OUT, "timeout_us": 60_000_000}
    await local.push(
        US,
        [
            local.sample(DAY_AT, cost_usd=0.25),
            local.sample(DAY_AT + MINUTE_US, None, **cut),
            local.sample(DAY_AT + 2 * MINUTE_US, None, outcome=Outcome.THROTTLED),
            local.sample(DAY_AT + 3 * MINUTE_US, cost_usd=0.5),
        ],
    )
    await local.turn_to(DAY_AT + 2 * HOUR_US)
    await local.rollup.run()
    found = await local.ttft(hour(0))
    assert found is not None
    (group,) = (found.histograms.group(place) for place in range(len(found.series)))
    assert (group.known, group.n) == (2, 3)
    assert found.histograms.quantile(0.99)[0] == pytest.approx(60e6, rel=0.01)
    async with local.database.connection() as connection:
        (told,) = (await summaries.outcomes(connection, local.scope(hour(0)))).values()
    assert told.outcomes == {"ok": 2, "timed_out": 1, "throttled": 1}
    assert told.cost_usd == 0.75
    assert told.newest_at == DAY_AT + 3 * MINUTE_US


async def test_every_metric_is_summarised(local: InProcessCollector, database_url: str) -> None:
    """A complete sample results in one row per metric, with its value."""
    await local.begin(DAY_AT)
    full = {"dns_us": 1_000, "tcp_us": 20_000, "tls_us": 30_000, "ttfat_us": 500_000, "e2e_us": 9_000_000}
    await local.push(US, [local.sample(DAY_AT, tokens_per_second=80.0, rtt_us=21_000, **full)])
    await local.turn_to(DAY_AT + 2 * HOUR_US)
    await local.rollup.run()
    expected = {"ttft": 4e5, "ttft_cold": 451e3, "ttfat": 5e5, "e2e": 9e6, "connect": 51e3, "rtt": 21e3}
    async with local.database.connection() as connection:
        for metric in Metric:
            found = await distributions(connection, local.scope(hour(0)), metric)
            assert found is not None
            value = ({"tokens_per_second": 80.0} | expected)[metric]
            assert found.histograms.quantile(0.5).tolist() == pytest.approx([value], rel=0.01)
    assert rows(database_url, "SELECT count(*), min(values_count) FROM summary") == [(len(Metric), 1)]


async def test_a_day_is_the_sum_of_its_hours(local: InProcessCollector, database_url: str) -> None:
    """A whole day is answered from one row with the values of all hours."""
    await local.begin(DAY_AT + DAY_US - 1)
    await local.push(US, [local.sample(DAY_AT + k * HOUR_US // 2, 100_000 + k) for k in range(48)])
    await local.turn_to(DAY_AT + DAY_US + GRACE_US)
    await local.rollup.run()
    assert await local.count(DAY) == 48
    assert await local.count(Window(from_at=DAY_AT + HOUR_US, until_at=DAY_AT + 3 * HOUR_US)) == 4
    rows(database_url, "DELETE FROM summary WHERE resolution = 'hour'")
    assert await local.count(DAY) == 48


async def test_late_samples_change_hour_and_day(local: InProcessCollector) -> None:
    """Samples that arrive a week after their round are added to the summaries."""
    await local.begin(DAY_AT + 10 * MINUTE_US)
    await local.push(US, [local.sample(DAY_AT)])
    await local.turn_to(DAY_AT + 7 * DAY_US)
    await local.rollup.run()
    assert (await local.count(hour(0)), await local.count(DAY)) == (1, 1)
    await local.push(US, [local.sample(DAY_AT + 1), local.sample(DAY_AT + 5 * HOUR_US)])
    await local.push(SG, [local.sample(DAY_AT + 2)])
    await local.turn_to(DAY_AT + 7 * DAY_US + LATE_EVERY_US)
    await local.rollup.run()
    assert (await local.count(hour(0)), await local.count(hour(5)), await local.count(DAY)) == (2, 1, 3)
    assert await local.count(DAY, "sg") == 1


@pytest.mark.parametrize("ahead_us", [-5 * MINUTE_US, -MINUTE_US, 0, 5 * MINUTE_US])
async def test_late_batches_are_found_whatever_the_clocks_show(local: InProcessCollector, ahead_us: int) -> None:
    """Of two collectors, the one that stores late batches may be ahead of the leader, or behind its last search."""
    await local.begin(DAY_AT + 10 * MINUTE_US)
    await local.push(US, [local.sample(DAY_AT)])
    await local.turn_to(DAY_AT + 3 * HOUR_US)
    await local.rollup.run()
    looked_at = DAY_AT + 3 * HOUR_US + LATE_EVERY_US
    await local.turn_to(looked_at)
    await local.rollup.run()
    await local.turn_to(looked_at + ahead_us)
    await local.push(US, [local.sample(DAY_AT + 1)])
    await local.turn_to(looked_at + LATE_EVERY_US)
    await local.rollup.run()
    assert await local.count(hour(0)) == 2


async def test_an_open_transaction_is_searched_again(local: InProcessCollector, database_url: str) -> None:
    """A late batch whose transaction was open at two searches is found by the third one."""
    await local.begin(DAY_AT + 3 * HOUR_US)
    await local.push(US, [local.sample(DAY_AT)])
    await local.push(US, [local.sample(DAY_AT + HOUR_US)])
    await local.rollup.run()
    with psycopg.connect(database_url) as slow:
        slow.execute("DELETE FROM ingest_batch WHERE oldest_round_at = to_timestamp(%s)", [DAY_AT // 1_000_000])
        slow.execute(
            "INSERT INTO ingest_batch SELECT vantage_id, epoch, 99, samples, stored, late, rejections, received_at,"
            " to_timestamp(%s), to_timestamp(%s), content_hash, pg_current_xact_id()::text::bigint FROM ingest_batch",
            [DAY_AT // 1_000_000] * 2,
        )
        for search in (1, 2):
            await local.turn_to(DAY_AT + 3 * HOUR_US + search * LATE_EVERY_US)
            await local.push(US, [local.sample(DAY_AT + 2 * HOUR_US + search)])
            await local.rollup.run()
        slow.execute("DELETE FROM summary")
        slow.execute("DELETE FROM outcome_summary")
    assert await local.count(hour(0)) == 0
    await local.turn_to(DAY_AT + 3 * HOUR_US + 3 * LATE_EVERY_US)
    await local.rollup.run()
    assert await local.count(hour(0)) == 1


async def test_first_start_summarises_everything(local: InProcessCollector) -> None:
    """The first run summarises all samples of a database without summaries, across days without samples."""
    await local.begin(DAY_AT + 20 * DAY_US + GRACE_US)
    days = (0, 1, 9, 19)
    await local.push(US, [local.sample(DAY_AT + day * DAY_US + k * HOUR_US) for day in days for k in range(24)])
    await local.rollup.run()
    assert await local.count(Window(from_at=DAY_AT, until_at=DAY_AT + 20 * DAY_US)) == 96
    async with local.database.connection() as connection:
        done = await job_state.progress(connection)
    assert done[Resolution.HOUR.job] == DAY_AT + 20 * DAY_US
    assert done[Resolution.DAY.job] == DAY_AT + 20 * DAY_US


async def test_catching_up_makes_days_on_the_way(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day is summarised before the next day's first hour, and one whose hours are done comes first."""
    await local.begin(DAY_AT + 3 * DAY_US)
    await local.push(US, [local.sample(DAY_AT + day * DAY_US) for day in range(3)])
    made: list[tuple[str, int]] = []

    def told(name: str) -> Callable[[Database, int], Awaitable[int]]:
        async def make(_: Database, at: int) -> int:
            made.append((name, at))
            return 0

        return make

    monkeypatch.setattr(rollups, "summarise_hour", told("hour"))
    monkeypatch.setattr(rollups, "summarise_day", told("day"))
    async with local.database.connection() as connection:
        for name, hours in (("summary.late", 72), ("summary.day", 0), ("summary.hour", 24)):
            await job_state.advance(connection, name, DAY_AT + hours * HOUR_US)
    await local.turn_to(DAY_AT + 3 * DAY_US + GRACE_US)
    await local.rollup.run()
    days = [DAY_AT + day * DAY_US for day in range(3)]
    expected = [("day", days[0])]
    for day_at in days[1:]:
        expected += [("hour", day_at + k * HOUR_US) for k in range(24)] + [("day", day_at)]
    assert made == expected


async def test_the_later_read_of_two_leaders_wins(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that read an hour before samples were added does not overwrite one that read it later."""
    await local.begin(DAY_AT + HOUR_US)
    await local.push(US, [local.sample(DAY_AT + k * MINUTE_US) for k in range(5)])
    real, has_read, may_write = rollups._write, asyncio.Event(), asyncio.Event()

    async def slow(*told: Any) -> None:
        if not has_read.is_set():
            has_read.set()
            await may_write.wait()
        await real(*told)

    monkeypatch.setattr(rollups, "_write", slow)
    old = asyncio.create_task(rollups.summarise_hour(local.database, DAY_AT))
    await has_read.wait()
    await local.push(US, [local.sample(DAY_AT + 10 * MINUTE_US + k) for k in range(7)])
    new = asyncio.create_task(rollups.summarise_hour(local.database, DAY_AT))
    # Time enough to have overtaken the other.
    await asyncio.wait([new], timeout=0.3)
    may_write.set()
    await asyncio.gather(old, new)
    async with local.database.connection() as connection:
        piece = summaries.Piece(resolution=Resolution.HOUR, window=hour(0))
        (told,) = await summaries.counted(connection, local.scope(hour(0)), piece)
    assert told.outcomes == {"ok": 12}


async def test_summarising_again_changes_nothing(local: InProcessCollector, database_url: str) -> None:
    """Summarising twice, or concurrently, results in the same rows."""
    await local.begin(DAY_AT + DAY_US - 1)
    await local.push(US, [local.sample(DAY_AT + k * HOUR_US, 100_000 * k + 1) for k in range(24)])
    await local.turn_to(DAY_AT + DAY_US + HOUR_US)
    await local.rollup.run()
    told = "SELECT md5(string_agg(s::text, '|' ORDER BY s::text)) FROM (SELECT * FROM {}) AS s"
    with psycopg.connect(database_url, autocommit=True) as plain:
        before = [plain.execute(told.format(table)).fetchone() for table in ("summary", "outcome_summary")]
        plain.execute("DELETE FROM chore")
        await local.rollup.run()
        assert before == [plain.execute(told.format(table)).fetchone() for table in ("summary", "outcome_summary")]


async def test_summaries_outlive_samples(local: InProcessCollector) -> None:
    """Summarising a day again after its samples are gone leaves its summaries unchanged."""
    await local.begin(DAY_AT + 10 * MINUTE_US)
    await local.push(US, [local.sample(DAY_AT)])
    await local.turn_to(DAY_AT + 2 * DAY_US)
    await local.rollup.run()
    await local.push(US, [local.sample(DAY_AT + 1)])
    assert await partitions.retire(local.database, before_at=DAY_AT + DAY_US) != []
    await local.turn_to(DAY_AT + 2 * DAY_US + LATE_EVERY_US)
    await local.rollup.run()
    assert (await local.count(hour(0)), await local.count(DAY)) == (1, 1)


@pytest.mark.parametrize(
    ("window", "days_until", "expected"),
    [
        ((0, 24), 24, [("day", 0, 24)]),
        ((0, 24), 0, [("hour", 0, 24)]),
        ((23, 50), 48, [("hour", 23, 24), ("day", 24, 48), ("hour", 48, 50)]),
        ((23, 73), 48, [("hour", 23, 24), ("day", 24, 48), ("hour", 48, 73)]),
        ((0, 48), 24, [("day", 0, 24), ("hour", 24, 48)]),
        ((1, 23), 48, [("hour", 1, 23)]),
        ((5, 5), 48, []),
        ((6, 5), 48, []),
    ],
)
def test_windows_are_made_of_the_largest_pieces(
    window: tuple[int, int], days_until: int, expected: list[tuple[str, int, int]]
) -> None:
    """A window consists of summarised whole days, and of hours elsewhere, each hour once; in hours of the first day."""
    asked = Window(from_at=DAY_AT + window[0] * HOUR_US, until_at=DAY_AT + window[1] * HOUR_US)
    for cut in (0, 1):
        # What is no whole hour is left out.
        narrower = replace(asked, from_at=asked.from_at - cut, until_at=asked.until_at + cut)
        found = summaries.divide(narrower, days_until=DAY_AT + days_until * HOUR_US)
        spans = [(str(piece.resolution), piece.window.from_at, piece.window.until_at) for piece in found]
        assert spans == [(name, DAY_AT + start * HOUR_US, DAY_AT + end * HOUR_US) for name, start, end in expected]
