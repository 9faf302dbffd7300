"""Lasting changes in pushed samples: found once, recorded, delivered, and listed."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fixtures.collector import KEEP_A_MONTH, Caller, Collector, StartCollector
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.webhook import SECRET, Receiver
from isochrone_collector import webhook_signature
from isochrone_collector.alerting.service import AlertService
from isochrone_collector.analysis.drift import SeriesState
from isochrone_collector.analysis.probe_records import MAX_BYTES, MediansRow, UnsettledRounds
from isochrone_collector.clock import now_at
from isochrone_collector.jobs.drift_detection import DriftDetection
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import drift
from isochrone_collector.store.batches import RecentBatches
from isochrone_collector.store.drift import SeriesKey
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.probe_queries import Scope
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.insights import DriftList
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Batch, Outcome, Sample, Vantage
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
    by_us: int = 0

    def __call__(self) -> int:
        return now_at() + self.by_us


@dataclass(slots=True)
class Watch:
    """Drift detection of the test, on a database whose collector is stopped."""

    database: Database
    drift: DriftDetection
    clock: Later


@pytest.fixture
async def watch(database: Database) -> Watch:
    plans = Plans(database=database, clock=now_at)
    await plans.refresh()
    alerting = AlertService(database=database, clock=now_at)
    clock = Later()
    return Watch(database, DriftDetection(database=database, plans=plans, alerting=alerting, clock=clock), clock)


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
    assert event.may_be_weekly
    assert (found.watched, found.too_short) == (4, 0)
    [told] = receiver.received
    assert told.body["type"] == "isochrone.drift"
    assert told.body["data"]["target"] == "sim/b"
    assert told.body["data"]["change_percent"] == pytest.approx(event.change_percent, abs=0.01)


async def test_each_run_reads_new_rounds(start_collector: StartCollector, watch: Watch) -> None:
    """A change is found as rounds arrive, late ones too; a second run, or a restarted detection, finds nothing more."""
    past = a_past(start_collector(more=KEEP_A_MONTH))
    past.push(*range(CHANGED - 40))
    await watch.drift.plans.refresh()
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
        plans=watch.drift.plans,
        alerting=AlertService(database=watch.database, clock=now_at),
        clock=now_at,
    )
    await again.run()
    assert past.found().events == before


async def test_series_with_too_few_rounds_are_counted(start_collector: StartCollector, watch: Watch) -> None:
    """Series with fewer than sixty rounds are counted as too short."""
    past = a_past(start_collector(more=KEEP_A_MONTH))
    past.push(*range(20))
    await watch.drift.plans.refresh()
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


@pytest.mark.parametrize("max_bytes", [MAX_BYTES, 0])
async def test_rounds_in_memory_are_not_read(
    local: InProcessCollector, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """Rounds of batches that this collector stored are read from the database only if memory cannot hold them."""
    read = list[Scope]()

    async def medians(connection: Connection, scope: Scope) -> list[MediansRow]:
        read.append(scope)
        return await read_medians(connection, scope)

    read_medians = drift.medians
    monkeypatch.setattr(drift, "medians", medians)
    await local.begin(DAY_AT)
    watch = watch_in(local, recent=local.ingest.recent)
    await watch.run()
    watch._unsettled = UnsettledRounds(max_bytes)
    read.clear()
    rounds = [DAY_AT + nth * 10 * SECOND_US for nth in range(30)]
    for at in rounds:
        local.clock.at = at
        await local.push(US, [local.sample(at, ttft_us) for ttft_us in (1_000, 2_000, 4_001)])
        await watch.run()
    local.clock.at += 2 * MINUTE_US
    await watch.run()
    assert watch_of(watch, local).rounds.tolist() == rounds
    assert watch_of(watch, local).values.tolist() == [2_000] * 30
    assert bool(read) is (max_bytes == 0)


async def test_batches_of_another_collector_are_read(local: InProcessCollector) -> None:
    """A round that two collectors stored has the median of all its probes, and so has one that was delivered late."""
    await local.begin(DAY_AT)
    watch = watch_in(local, recent=local.ingest.recent)
    await watch.run()
    rounds = [DAY_AT + SECOND_US, DAY_AT + MINUTE_US]
    await local.push(US, [local.sample(at, 1_000) for at in rounds])
    await local.push_elsewhere(US, [local.sample(at, ttft_us) for at in rounds for ttft_us in (2_000, 3_000)])
    local.clock.at = DAY_AT + 5 * MINUTE_US
    await watch.run()
    assert watch_of(watch, local).values.tolist() == [2_000, 2_000]
    await local.push(US, [local.sample(DAY_AT + MINUTE_US, ttft_us) for ttft_us in (4_000, 5_000)])
    local.clock.at = DAY_AT + 10 * MINUTE_US
    await watch.run()
    assert watch_of(watch, local).values.tolist() == [2_000, 3_000]


async def test_a_clock_set_back_keeps_complete_rounds(local: InProcessCollector) -> None:
    """What is delivered to a complete round is late, even if the clock was behind that round's completion again."""
    await local.begin(DAY_AT)
    watch = watch_in(local, recent=local.ingest.recent)
    await watch.run()
    await local.push(US, [local.sample(DAY_AT, ttft_us) for ttft_us in (1_000, 2_000, 3_000)])
    for at_s in (70, 95, 83):
        local.clock.at = DAY_AT + at_s * SECOND_US
        await watch.run()
    assert watch_of(watch, local).values.tolist() == [2_000]
    await local.push(US, [local.sample(DAY_AT, ttft_us) for ttft_us in (9_000, 9_001)])
    for at_s in (95, 99):
        local.clock.at = DAY_AT + at_s * SECOND_US
        await watch.run()
    assert watch_of(watch, local).values.tolist() == [2_000]
    local.clock.at += 5 * MINUTE_US
    await watch.run()
    assert watch_of(watch, local).values.tolist() == [3_000]


async def test_a_cancelled_run_loses_nothing(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the leader's session is lost while a thread adds rounds, their late probes still do not replace them."""
    await local.begin(DAY_AT)
    watch = watch_in(local, recent=local.ingest.recent)
    await watch.run()
    await local.push(US, [local.sample(DAY_AT, ttft_us) for ttft_us in (1_000, 2_000, 3_000)])
    local.clock.at = DAY_AT + 85 * SECOND_US
    await watch.run()
    settle, begun, may_end, ended = watch._unsettled.settle, *(threading.Event() for _ in range(3))

    def slow(*arguments: Any) -> list[MediansRow]:
        begun.set()
        may_end.wait()
        try:
            return settle(*arguments)
        finally:
            ended.set()

    monkeypatch.setattr(watch._unsettled, "settle", slow)
    local.clock.at += 8 * SECOND_US
    run = asyncio.create_task(watch.run())
    await asyncio.to_thread(begun.wait)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    may_end.set()
    await asyncio.to_thread(ended.wait)
    monkeypatch.undo()
    await local.push(US, [local.sample(DAY_AT, ttft_us) for ttft_us in (9_000, 9_001)])
    local.clock.at += SECOND_US
    await watch.run()
    assert watch_of(watch, local).values.tolist() == [3_000]


def watch_in(local: InProcessCollector, *, recent: RecentBatches | None = None) -> DriftDetection:
    alerting = AlertService(database=local.database, clock=local.clock)
    return DriftDetection(
        database=local.database,
        plans=local.plans,
        alerting=alerting,
        clock=local.clock,
        recent=recent or RecentBatches(),
    )


def watch_of(watch: DriftDetection, local: InProcessCollector) -> SeriesState:
    return watch._states[SeriesKey(target_id=local.target_id, region=US.region, metric=Metric.TTFT)]
