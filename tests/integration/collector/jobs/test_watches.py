"""Watches: clocks, budgets, and published tables."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

import chaos
from fixtures.collector import Collector, StartCollector
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.postgres import rows
from isochrone_collector.alerting.service import AlertService
from isochrone_collector.alerts.incidents import Scope, TargetIncident
from isochrone_collector.jobs import watches
from isochrone_collector.jobs.watches import RouteWatch
from isochrone_collector.routing import serialization
from isochrone_collector.store import alerts, incidents, job_state
from isochrone_collector.store import routes as tables
from isochrone_collector.store.incidents import FailureSummary
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.routes import NewTable
from isochrone_wire.answers import Window
from isochrone_wire.insights import AlertKind, Eligible
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Batch, Heartbeat, Outcome, Sample, Spend, Vantage, day_of
from isochrone_wire.routes import ChangeKind
from testdata.insights import NOW_AT
from testdata.routes import CHAT
from testdata.waiting import eventually

PLAN = "baseline: us\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
VANTAGES = (Vantage(name="us-1", region="us"), Vantage(name="eu-1", region="eu"))
FAR_S = 36 * 86_400
SCRIPT = Path(chaos.__path__[0]) / "collector_with_clock.py"
KEEP = ("--keep-samples", "3d")
WAIT_SECONDS = 60


def now_at() -> int:
    return time.time_ns() // 1000


class Fleet:
    """Agents with a correct clock, which push rounds of the past days."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._seq = 0

    def push(self, vantages: Sequence[Vantage] = VANTAGES, *, rounds: int = 3, sent_us: int = 0) -> int:
        """Push one batch of each vantage; return the number of samples stored."""
        self._seq += 1
        (target,) = self.collector.call.targets().targets
        stored = 0
        for vantage in vantages:
            at = now_at()
            days = [at - days * DAY_US for days in range(rounds)]
            samples = tuple(
                Sample(target_id=target.id, round_at=one, outcome=Outcome.OK, dispatched_at=one, ttft_us=400_000)
                for one in days
            )
            seq = self._seq if samples else 0
            batch = Batch(vantage=vantage, epoch=7, seq=seq, samples=samples, sent_at=at + sent_us)
            receipt = self.collector.call.push(batch)
            assert abs(receipt.received_at - now_at()) < MINUTE_US or sent_us
            stored += receipt.stored
        return stored

    def until(self, condition: Callable[[], bool], vantages: Sequence[Vantage] = VANTAGES) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.collector.log()
            for vantage in vantages:
                self.collector.call.push(Batch(vantage=vantage, epoch=7, seq=0, sent_at=now_at()))
            time.sleep(0.2)


@pytest.fixture
def clock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "ahead"
    file.write_text("0")
    monkeypatch.setenv("TEST_CLOCK_FILE", str(file))
    return file


def facts_of(database_url: str) -> dict[str, Any]:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT (SELECT count(*) FROM sample), (SELECT count(*) FROM sample_late),"
            " (SELECT count(*) FROM ingest_batch), (SELECT count(*) FROM chore WHERE done_until > now()),"
            " (SELECT count(*) FROM vantage WHERE last_seen_at > now() + interval '1 minute')"
        ).fetchone()
    assert rows is not None
    return dict(zip(("samples", "late", "batches", "progress_ahead", "vantages_ahead"), rows, strict=True))


def test_a_clock_36_days_ahead_is_no_harm(start_collector: StartCollector, clock_file: Path, database_url: str) -> None:
    """After a step, or a start with a wrong clock, every sample stays and new ones have the true time."""
    collector = start_collector(script=SCRIPT, more=KEEP)
    collector.call.apply(PLAN)
    fleet = Fleet(collector)
    assert fleet.push() == 6
    clock_file.write_text(str(FAR_S))
    fleet.until(lambda: bool(collector.call.vantages().paused))
    assert fleet.push() == 6
    assert collector.scrape()["isochrone_clock_trusted"] == 0
    assert collector.stop() == 0

    again = start_collector(script=SCRIPT, more=KEEP)
    fleet.collector = again
    fleet.until(lambda: "2 vantages" in again.call.vantages().paused)
    assert fleet.push() == 6
    time.sleep(2)
    ahead = {"progress_ahead": 0, "vantages_ahead": 0}
    assert facts_of(database_url) == {"samples": 18, "late": 0, "batches": 6, **ahead}
    at = now_at()
    alerts = again.call.alerts(Window(from_at=at - DAY_US, until_at=at + MINUTE_US)).alerts
    assert {alert.kind for alert in alerts} == {"clock_wrong"}
    assert len(alerts) <= 2  # one in an hour, and the test may see the end of one

    clock_file.write_text("0")
    fleet.until(lambda: not again.call.vantages().paused)
    assert fleet.push() == 6
    assert again.scrape()["isochrone_clock_trusted"] == 1
    assert facts_of(database_url) == {"samples": 24, "late": 0, "batches": 8, **ahead}


def test_samples_of_a_clock_that_is_days_off_stay_in_the_spool(
    start_collector: StartCollector, clock_file: Path, database_url: str
) -> None:
    """With only one vantage two days apart either clock may be wrong: the batch is refused until they agree."""
    collector = start_collector(script=SCRIPT, more=KEEP)
    collector.call.apply(PLAN)
    fleet = Fleet(collector)
    for days in (2, -2):
        with pytest.raises(grpc.RpcError) as refused:
            fleet.push(VANTAGES[:1], sent_us=days * DAY_US)
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "stay in the spool" in error.details()
    fleet.until(lambda: not collector.call.vantages().paused, VANTAGES[:1])
    clock_file.write_text("0")
    assert fleet.push(VANTAGES[:1]) == 3
    assert facts_of(database_url)["samples"] == 3


def test_future_progress_is_set_back(start_collector: StartCollector, clock_file: Path, database_url: str) -> None:
    """A collector was two days ahead for a while: what it skipped is summarised now."""
    collector = start_collector(script=SCRIPT, more=KEEP)
    collector.call.apply(PLAN)
    fleet = Fleet(collector)
    assert fleet.push() == 6
    assert collector.stop() == 0
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM summary")
        connection.execute("DELETE FROM outcome_summary")
        connection.execute("DELETE FROM chore")
        for name in ("summary.hour", "summary.day", "summary.late", "summary.levels", "sample.retired"):
            connection.execute("INSERT INTO chore VALUES (%s, date_trunc('day', now() + interval '2 days'))", (name,))
        connection.execute("UPDATE ingest_batch SET received_at = now() + interval '2 days'")
    fleet.collector = start_collector(script=SCRIPT, more=KEEP)
    rows(database_url, "UPDATE vantage SET last_seen_at = now() + interval '2 days'")

    def summarised() -> bool:
        with psycopg.connect(database_url) as connection:
            row = connection.execute(
                "SELECT sum(n::int) FROM outcome_summary, jsonb_each_text(outcomes) AS o (_, n)"
                " WHERE resolution = 'hour'"
            ).fetchone()
        # Those of the current hour come with its end.
        return row is not None and (row[0] or 0) >= 4

    fleet.until(summarised)
    assert facts_of(database_url)["progress_ahead"] == facts_of(database_url)["vantages_ahead"] == 0


def test_collectors_a_minute_apart_judge_agents_alike(
    start_collector: StartCollector, clock_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them leads, and a second agent of a vantage is refused wherever it pushes while the first one delivers."""
    right = start_collector(script=SCRIPT)
    (tmp_path / "fast").write_text("60")
    monkeypatch.setenv("TEST_CLOCK_FILE", str(tmp_path / "fast"))
    fast = start_collector(script=SCRIPT)
    (vantage, _) = VANTAGES

    def beat(collector: Collector, epoch: int) -> None:
        heartbeat = Heartbeat(epoch=epoch)
        collector.call.push(Batch(vantage=vantage, epoch=epoch, seq=0, epoch_history=(epoch,), heartbeat=heartbeat))

    for first, second in ((right, fast), (fast, right)):
        beat(first, 1)
        with pytest.raises(grpc.RpcError, match="another agent delivered"):
            beat(second, 2)
        beat(second, 1)
    eventually(10, lambda: "leadership.taken" in right.log() + fast.log(), "a leader")
    assert (right.log() + fast.log()).count("leadership.taken") == 1


BUDGET_PLAN = """\
baseline: us
targets: [{model: a, provider: sim, base_url: http://h}]
budgets: [{provider: sim, requests_per_day: 10}]
"""
US = Vantage(name="us-1", region="us")


async def test_a_used_up_budget_and_a_wrong_clock_are_raised_once(local: InProcessCollector) -> None:
    """The heartbeat of a push raises an alert when it shows one of both, once a day however often they are read."""
    await local.turn_to(DAY_AT)
    assert (await local.plans.apply(BUDGET_PLAN, dry_run=False, applied_by="a test")).problems == ()
    watch = local.fleet_watch()
    for requests, offset_s in ((9, 2), (10, 61), (10, 62)):
        spend = (Spend(provider="sim", day_at=day_of(DAY_AT), requests=requests),)
        heartbeat = Heartbeat(
            epoch=1, spend=spend, clock_offset_us=offset_s * SECOND_US, clock_uncertainty_us=SECOND_US
        )
        local.clock.at += SECOND_US
        await local.push(US, [local.sample(local.clock.at)], heartbeat=heartbeat)
        await watch.run()
    window = Window(from_at=DAY_AT - DAY_US, until_at=DAY_AT + DAY_US)
    async with local.database.connection() as connection:
        found = await alerts.of_window(connection, window)
    assert sorted((alert.kind.value, alert.subject) for alert in found) == [
        ("budget_exhausted", "sim from us-1"),
        ("clock_wrong", "clock of us-1"),
    ]


async def test_a_collector_starts_with_the_clock_of_its_database(
    local: InProcessCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are made, and pushes judged, before the first check of the clock: from the start it is corrected."""
    monkeypatch.setattr(watches, "now_at", lambda: now_at() + FAR_S * SECOND_US)
    guard = await watches.guard(local.database)
    assert abs(guard.shared_at() - now_at()) < MINUTE_US


async def test_the_clocks_are_read_once_for_all_jobs(local: InProcessCollector) -> None:
    """Incident detection gets the distrusted vantages of the last run, or reads them if that was a minute ago."""
    await local.turn_to(DAY_AT)
    assert (await local.plans.apply(BUDGET_PLAN, dry_run=False, applied_by="a test")).problems == ()
    watch = local.fleet_watch()

    async def push(offset_s: int) -> None:
        local.clock.at += SECOND_US
        heartbeat = Heartbeat(epoch=1, clock_offset_us=offset_s * SECOND_US, clock_uncertainty_us=SECOND_US)
        await local.push(US, [local.sample(local.clock.at)], heartbeat=heartbeat)

    async with local.database.connection() as connection:
        await push(61)
        assert await watch.distrusted(connection, now_at=local.clock.at) == {US.id}
        await push(0)
        assert await watch.distrusted(connection, now_at=local.clock.at) == {US.id}
        assert await watch.distrusted(connection, now_at=local.clock.at + MINUTE_US) == set()
        await push(61)
        await watch.run()
        assert await watch.distrusted(connection, now_at=local.clock.at) == {US.id}


FIRST = CHAT.entries[0]


@dataclass(slots=True)
class Stage:
    database: Database
    at: int = NOW_AT
    generation: int = 0

    def now_at(self) -> int:
        return self.at

    def watch(self) -> RouteWatch:
        alerting = AlertService(database=self.database, clock=self.now_at)
        return RouteWatch(database=self.database, alerting=alerting, clock=self.now_at)

    async def publish(self, eligible: Eligible, change: ChangeKind = ChangeKind.EVIDENCE) -> None:
        """Publish a table of one member with this verdict, five minutes after the previous one."""
        self.at += 5 * MINUTE_US
        self.generation += 1
        table = replace(
            CHAT,
            generation=self.generation,
            built_at=self.at,
            window=Window(from_at=self.at - 60 * MINUTE_US, until_at=self.at),
            entries=(replace(FIRST, slo_in_window=eligible),),
            change=change,
        )
        row = NewTable(
            generation=table.generation,
            client_region=table.client_region,
            route=table.route,
            built_at=table.built_at,
            change=change.value,
            sentence=table.sentence,
            document=serialization.dump(table),
            inputs=b"",
            before=b"",
            after=b"",
        )
        async with self.database.transaction() as connection:
            await tables.publish(connection, [row])
        self.at += SECOND_US

    async def kinds(self) -> list[str]:
        window = Window(from_at=NOW_AT - DAY_US, until_at=NOW_AT + DAY_US)
        async with self.database.connection() as connection:
            return [alert.kind.value for alert in reversed(await alerts.of_window(connection, window))]


@pytest.fixture
async def stage(database: Database) -> Stage:
    return Stage(database)


async def test_each_change_is_raised_once(stage: Stage) -> None:
    """Tables of the past raise nothing; a breach, a switch and the end of the breach do once, whichever leader runs."""
    await stage.publish(Eligible.NO, ChangeKind.HARD)
    watch = stage.watch()
    await watch.run()
    assert await stage.kinds() == []
    for eligible, change in (
        (Eligible.NO, ChangeKind.EVIDENCE),
        (Eligible.NO, ChangeKind.SOFT),
        (Eligible.MAYBE, ChangeKind.RAMP),
        (Eligible.NO, ChangeKind.FREEZE),
    ):
        await stage.publish(eligible, change)
        await watch.run()
        await watch.run()
        await stage.watch().run()
    await stage.publish(Eligible.YES)
    await stage.watch().run()
    await watch.run()
    assert await stage.kinds() == ["slo_breached", "route_switched", "route_frozen", "slo_restored"]


async def test_tables_between_two_leaders_are_not_missed(stage: Stage) -> None:
    """A new leader raises the alerts of tables that were published after the last run of the previous one."""
    await stage.publish(Eligible.YES)
    first = stage.watch()
    await first.run()
    await stage.publish(Eligible.YES)
    await first.run()
    await stage.publish(Eligible.YES, ChangeKind.HARD)
    await stage.watch().run()
    assert await stage.kinds() == ["route_switched"]


async def test_tables_of_two_clocks_are_not_missed(stage: Stage) -> None:
    """A new leader whose clock is minutes behind raises the alerts of its own first tables."""
    await stage.publish(Eligible.YES)
    first = stage.watch()
    await first.run()
    await stage.publish(Eligible.YES)
    await first.run()
    stage.at -= 9 * MINUTE_US
    await stage.publish(Eligible.YES, ChangeKind.HARD)
    await stage.watch().run()
    assert await stage.kinds() == ["route_switched"]


async def test_alerts_go_on_after_the_database_was_set_back(stage: Stage) -> None:
    """Of tables with numbers that were used before, a running watch raises the alerts, too."""
    watch = stage.watch()
    await watch.run()
    await stage.publish(Eligible.YES)
    await watch.run()
    async with stage.database.connection() as connection:
        restored = await job_state.next_number(connection, "route_alerts")
    for _ in range(3):
        await stage.publish(Eligible.YES)
    await watch.run()
    async with stage.database.connection() as connection:
        await connection.execute("DELETE FROM route_table WHERE generation > 1")
        await job_state.advance(connection, "route_alerts", stage.at, next_number=restored or 0)
    stage.generation = 1
    await stage.publish(Eligible.YES, ChangeKind.HARD)
    await watch.run()
    assert await stage.kinds() == ["route_switched"]
    for _ in range(6):
        await stage.publish(Eligible.YES)
    await stage.publish(Eligible.YES, ChangeKind.FREEZE)
    await watch.run()
    assert await stage.kinds() == ["route_switched", "route_frozen"]


async def test_an_incident_explains_a_breach(stage: Stage) -> None:
    """While the table's window has an incident of the target, its breach has no alert; later it has."""
    watch = stage.watch()
    await watch.run()
    incident = TargetIncident(
        kind=AlertKind.TARGET_FAILING,
        target_id=1,
        failing=frozenset(),
        regions=frozenset({CHAT.client_region}),
        scope=Scope.ONE,
        first_failed_at=NOW_AT,
        last_failed_at=NOW_AT + MINUTE_US,
        opened_at=NOW_AT + MINUTE_US,
    )
    failures = FailureSummary(classes={}, samples=(), example="")
    async with stage.database.connection() as connection:
        assert await incidents.record(connection, incident, FIRST.target, failures)
        ended = replace(incident, recovered_at=NOW_AT + 10 * MINUTE_US)
        assert await incidents.record(connection, ended, FIRST.target, failures)
        assert not await incidents.record(connection, ended, FIRST.target, failures)
    for _ in range(13):
        await stage.publish(Eligible.NO)
        await watch.run()
    assert await stage.kinds() == []
    stage.at += 10 * MINUTE_US
    await stage.publish(Eligible.NO)
    await watch.run()
    assert await stage.kinds() == ["slo_breached"]
