"""Lasting changes in pushed samples: found once, recorded, delivered, and listed."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fix_collector import KEEP_A_MONTH, Caller, Collector, StartCollector
from fix_inprocess_collector import DAY_AT, InProcessCollector
from fix_webhook import SECRET, Receiver
from isochrone_collector import webhook_signature
from isochrone_collector.analysis.drift.series_state import SeriesState
from isochrone_collector.clock import now_at
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.jobs.drift_detection import DriftDetection
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import drift
from isochrone_collector.store.drift import MediansRow, SeriesKey
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.probe_queries import Scope
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.insights import DriftList
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Batch, Outcome, Sample, Vantage
from testdata import citus_cluster
from testdata.waiting import eventually

PLAN = """\
baseline: us-east-2
every: 60s
targets:
  - {model: a, provider: sim, base_url: http://h}
  - {model: b, provider: sim, base_url: http://h}
"""
US = Vantage(name="us-1", region="us-east-2")
EVERY_US = 60 * SECOND_US
ROUNDS = 400
CHANGED = 360


@dataclass(slots=True)
class Past:
    """Rounds of the last hours, pushed to a real collector; `b` rises by 30 % with round `CHANGED`."""

    call: Caller
    start_at: int
    seq: int = 0

    def round_at(self, number: int) -> int:
        """Return the instant of a round."""
        return self.start_at + number * EVERY_US

    def push(self, *numbers: int) -> None:
        """Push both targets' samples of these rounds."""
        for begin in range(0, len(numbers), 100):
            self.seq += 1
            samples = tuple(self._sample(name, number) for number in numbers[begin : begin + 100] for name in "ab")
            receipt = self.call.push(Batch(vantage=US, epoch=5, seq=self.seq, samples=samples))
            assert receipt.stored == len(samples), receipt

    def _sample(self, name: str, number: int) -> Sample:
        target = next(target for target in self.call.targets().targets if target.model == name)
        noise = float(np.random.default_rng([number, ord(name)]).normal(0, 0.1))
        factor = np.exp(noise) * (1.3 if name == "b" and number >= CHANGED else 1.0)
        at = self.round_at(number)
        return Sample(
            target_id=target.id,
            round_at=at,
            outcome=Outcome.OK,
            dispatched_at=at,
            ttft_us=int(400_000 * factor),
            tokens_per_second=60.0,
        )

    def found(self) -> DriftList:
        """Return the changes that readers get."""
        until_at = now_at() + MINUTE_US
        return self.call.drift(Selection(window=Window(from_at=until_at - DAY_US, until_at=until_at)))


def a_past(collector: Collector) -> Past:
    collector.call.apply(PLAN)
    start_at = (now_at() - (ROUNDS + 1) * EVERY_US) // EVERY_US * EVERY_US
    return Past(call=collector.call, start_at=start_at)


@dataclass(slots=True)
class Later:
    """A wall clock that is ahead by some microseconds."""

    by_us: int = 0

    def __call__(self) -> int:
        """Return its instant."""
        return now_at() + self.by_us


@dataclass(slots=True)
class Watch:
    """Drift detection of the test, on a database whose collector is stopped."""

    database: Database
    drift: DriftDetection
    clock: Later


@pytest.fixture
async def watch(database_url: str) -> AsyncIterator[Watch]:
    """Drift detection on the test's database, which the test runs."""
    database = Database(database_url)
    await database.open()
    plans = Plans(database=database, clock=now_at)
    await plans.refresh()
    alerting = AlertDelivery(database=database, clock=now_at)
    clock = Later()
    yield Watch(database, DriftDetection(database=database, plans=plans, alerting=alerting, clock=clock), clock)
    await database.close()


def test_a_rise_in_what_is_pushed_becomes_an_alert(
    start_collector: StartCollector, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shift of 30 % in past rounds becomes one event and one alert, which the webhook receives."""
    monkeypatch.setenv("ISOCHRONE_ALERT_SECRET", webhook_signature.format_secret(SECRET))
    monkeypatch.setenv("ISOCHRONE_ALERT_URL", receiver.address)
    first = start_collector(more=KEEP_A_MONTH)
    past = a_past(first)
    past.push(*range(ROUNDS))
    first.stop()
    # Whoever leads reads the past of every target as soon as it starts.
    collector = start_collector(more=KEEP_A_MONTH)
    past.call = collector.call
    eventually(40, lambda: bool(past.found().events), "the change is found")
    eventually(20, lambda: bool(receiver.received), "the webhook is told")
    found = past.found()
    [event] = found.events
    assert (event.target, event.region, event.metric) == ("sim/b", "us-east-2", Metric.TTFT)
    assert abs(event.changed_at - past.round_at(CHANGED)) <= 3 * EVERY_US
    assert event.change_percent == pytest.approx(30, abs=10)
    assert (found.watched, found.too_short) == (4, 0)
    [told] = receiver.received
    assert told.body["type"] == "isochrone.drift"
    assert told.body["data"]["target"] == "sim/b"
    assert told.body["data"]["change_percent"] == pytest.approx(event.change_percent, abs=0.01)


async def test_each_run_reads_new_rounds(start_collector: StartCollector, watch: Watch) -> None:
    """A change is found as rounds arrive, late ones too; a second run, or a restarted detection, finds nothing more."""
    past = a_past(start_collector(more=KEEP_A_MONTH))
    past.push(*range(CHANGED - 40))
    await watch.drift._plans.refresh()
    await watch.drift.run()
    assert past.found().events == ()
    # From here on these rounds are older than what a look reads again: the ledger tells that they were delivered.
    past.push(*range(CHANGED - 40, ROUNDS))
    watch.clock.by_us = 6 * MINUTE_US
    await watch.drift.run()
    before = past.found().events
    assert [event.target for event in before] == ["sim/b"]
    await watch.drift.run()
    again = DriftDetection(
        database=watch.database,
        plans=watch.drift._plans,
        alerting=AlertDelivery(database=watch.database, clock=now_at),
        clock=now_at,
    )
    await again.run()
    assert past.found().events == before


async def test_series_with_too_few_rounds_are_counted(start_collector: StartCollector, watch: Watch) -> None:
    """Series with fewer than sixty rounds are counted as too short."""
    past = a_past(start_collector(more=KEEP_A_MONTH))
    past.push(*range(20))
    await watch.drift._plans.refresh()
    await watch.drift.run()
    found = past.found()
    assert (found.events, found.watched, found.too_short) == ((), 0, 4)


async def test_a_batch_committed_after_a_run_is_read(local: InProcessCollector) -> None:
    """A batch that is received in time but committed after the run is read with the late ones."""
    await local.begin(DAY_AT)
    watch = watch_in(local)
    await watch.run()
    await local.push(US, [local.sample(DAY_AT + SECOND_US)])
    local.clock.at = DAY_AT + 2 * MINUTE_US
    await watch.run()
    assert watch_of(watch, local).rounds.tolist() == [DAY_AT + SECOND_US]
    # Received 74 s after its round, and not there yet when a look reads that round.
    local.clock.at = DAY_AT + 2 * MINUTE_US + 77 * SECOND_US
    await watch.run()
    local.clock.at = DAY_AT + 2 * MINUTE_US + 74 * SECOND_US
    await local.push(US, [local.sample(DAY_AT + 2 * MINUTE_US)])
    local.clock.at = DAY_AT + 9 * MINUTE_US
    await watch.run()
    assert watch_of(watch, local).rounds.tolist() == [DAY_AT + SECOND_US, DAY_AT + 2 * MINUTE_US]


async def seen_resting(local: InProcessCollector, reading: asyncio.Task[Any]) -> bool:
    """Return whether the server was seen to rest before the end of a task."""
    sessions = "citus_stat_activity" if citus_cluster.VARIABLE in os.environ else "pg_stat_activity"
    resting = f"SELECT FROM {sessions} WHERE datname = current_database() AND wait_event = 'PgSleep'"
    seen = False
    while not reading.done():
        async with local.database.connection() as connection:
            seen |= (await connection.execute(resting)).rowcount > 0
        await asyncio.sleep(0.02)
    return seen


async def test_the_server_rests_while_rounds_are_read(
    local: InProcessCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the leader reads many rows the server rests now and then, for a limited time, with the same result."""
    monkeypatch.setattr(drift, "_REST_US", SECOND_US // 4)
    await local.begin(DAY_AT)
    for nth in range(8):
        await local.push(US, [local.sample(DAY_AT + nth * SECOND_US, ttft_us) for ttft_us in range(1_000, 2_000)])
    scope = local.scope(Window(from_at=DAY_AT, until_at=DAY_AT + MINUTE_US))
    async with local.database.connection() as connection:
        rests = {}
        for resting_us in (0, 1, MINUTE_US):
            reading = asyncio.create_task(drift.medians(connection, scope, resting_us=resting_us))
            rests[resting_us] = await seen_resting(local, reading)
            [row] = await reading
            assert row.ttft_us.tolist() == [1_499.5] * 8
    # Eight rests are to be expected; that chance gives none of 8 000 rows one happens once in 3 000 runs.
    assert rests == {0: False, 1: False, MINUTE_US: True}


@pytest.mark.parametrize(("pause_us", "rests"), [(30 * SECOND_US, True), (10 * MINUTE_US - 1, False)])
async def test_detection_that_is_behind_does_not_rest(
    local: InProcessCollector, monkeypatch: pytest.MonkeyPatch, pause_us: int, *, rests: bool
) -> None:
    """New rounds are read with rests if runs are frequent, and without rests if they are not."""
    rested = list[bool]()

    async def medians(connection: Connection, scope: Scope, *, resting_us: int) -> list[MediansRow]:
        rested.append(resting_us > 0)
        return await read(connection, scope, resting_us=resting_us)

    read = drift.medians
    monkeypatch.setattr(drift, "medians", medians)
    await local.begin(DAY_AT)
    watch = watch_in(local)
    await watch.run()
    rested.clear()
    local.clock.at += pause_us
    await watch.run()
    # Beyond five minutes what came late is read too, if anything did; here nothing.
    assert rested == [rests] * -(-pause_us // (3 * SECOND_US))


def watch_in(local: InProcessCollector) -> DriftDetection:
    """Return a drift detection with the clock of the test."""
    alerting = AlertDelivery(database=local.database, clock=local.clock)
    return DriftDetection(
        database=local.database,
        plans=local.plans,
        alerting=alerting,
        clock=local.clock,
    )


def watch_of(watch: DriftDetection, local: InProcessCollector) -> SeriesState:
    """Return the state of the one target's TTFT series."""
    return watch._states[SeriesKey(target_id=local.target_id, region=US.region, metric=Metric.TTFT)]
