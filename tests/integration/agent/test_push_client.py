"""Delivery to a faulty collector: every sample is stored exactly once, and the account holds throughout."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from isochrone_agent import push_client as uplink_module
from isochrone_agent.collector_client import CollectorClient
from isochrone_agent.push_client import Backoff, PushClient
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_common.channel import UNKNOWN_TARGETS_KEY
from isochrone_wire import codec
from isochrone_wire.codec import CodecError, decode
from isochrone_wire.model import DAY_US, Batch, Heartbeat, Outcome, Quality, Sample, Spend, Vantage
from isochrone_wire.v1 import fleet_pb2
from testdata.faulty_collector import Answer, Context, FaultyCollector, serving, unchanged

NO_CONDITIONS = Heartbeat()
VANTAGE = Vantage(name="t-1", region="test")


def sample(number: int) -> Sample:
    return Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number)


async def follow(version: int, _content_hash: bytes) -> int:
    return version


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink_module, "LINGER_SECONDS", 0.02)
    monkeypatch.setattr(uplink_module, "REFUSED_HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(uplink_module, "SPOOL_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("isochrone_agent.push_client.FIRST_WAIT_US", 50_000)
    monkeypatch.setattr("isochrone_agent.push_client.MAX_WAIT_US", 100_000)


@asynccontextmanager
async def delivering(
    folder: Path,
    collector: FaultyCollector,
    *,
    backlog: int = 0,
    batch: int = 5,
    conditions: Heartbeat = NO_CONDITIONS,
) -> AsyncIterator[tuple[AsyncSpool, PushClient]]:
    async with serving(collector) as channel, AsyncSpool(folder / "spool.sqlite3") as spool:
        for number in range(backlog):
            await spool.record(sample(number))
            if number % batch == batch - 1:
                spool._spool._seal_waiting()
        push_client = PushClient(
            CollectorClient(channel=lambda: channel, vantage=VANTAGE),
            spool,
            on_plan=follow,
            conditions=lambda: conditions,
        )
        # The default of `Backoff` was set before the fixture changed it.
        push_client._backoff = Backoff(ceiling_us=50_000)
        task = asyncio.create_task(push_client.run())
        try:
            yield spool, push_client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def until_empty(spool: AsyncSpool, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while (await spool.stats()).waiting:
            await asyncio.sleep(0.02)


def refusing(
    when: Callable[[fleet_pb2.Batch], bool], code: grpc.StatusCode, details: str = "", **metadata: str
) -> Answer:
    async def refuse(request: fleet_pb2.Batch, _response: object, context: Context) -> None:
        if when(request):
            await context.abort(code, details, tuple((k.replace("_", "-"), v) for k, v in metadata.items()))

    return refuse


def first(count: int) -> Callable[[fleet_pb2.Batch], bool]:
    left = iter(range(count))
    return lambda request: bool(request.samples) and next(left, None) is not None


def altering(count: int, alter: Callable[[fleet_pb2.Receipt], None]) -> Answer:
    is_due = first(count)

    async def answer(request: fleet_pb2.Batch, response: fleet_pb2.Receipt, _context: Context) -> None:
        if is_due(request):
            alter(response)

    return answer


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("before", grpc.StatusCode.UNAVAILABLE),
        ("after", grpc.StatusCode.UNAVAILABLE),
        ("before", grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("after", grpc.StatusCode.DEADLINE_EXCEEDED),
        ("before", grpc.StatusCode.INTERNAL),
    ],
)
async def test_a_failed_push_is_tried_again(tmp_path: Path, place: str, code: grpc.StatusCode) -> None:
    """A failure before the commit, or between commit and reply: in the end every sample is stored once, unaltered."""
    fault = refusing(first(4), code)
    collector = FaultyCollector(
        before=fault if place == "before" else unchanged, after=fault if place == "after" else unchanged
    )
    async with delivering(tmp_path, collector, backlog=30) as (spool, _):
        await until_empty(spool)
        stats = await spool.stats()
    assert collector.stored == list(range(30))
    assert (collector.altered, stats.stored, stats.account.holds) == (0, 30, True)


async def test_a_refused_batch_is_halved(tmp_path: Path) -> None:
    """The collector refuses large batches and one sample: that one ends in quarantine, all others are stored."""

    def is_refused(request: fleet_pb2.Batch) -> bool:
        return len(request.samples) > 3 or any(one.round_at == 17 for one in request.samples)

    collector = FaultyCollector(before=refusing(is_refused, grpc.StatusCode.INVALID_ARGUMENT, "too many"))
    async with delivering(tmp_path, collector, backlog=40, batch=20) as (spool, _):
        await until_empty(spool)
        stats = await spool.stats()
    assert collector.stored == [number for number in range(40) if number != 17]
    assert (stats.quarantined, stats.account.holds) == (1, True)


async def test_a_message_that_is_too_large_is_halved(tmp_path: Path) -> None:
    """A message larger than gRPC's limit is split, although a busy collector has the same status."""
    collector = FaultyCollector(
        before=refusing(first(2), grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 8)")
    )
    async with delivering(tmp_path, collector, backlog=20, batch=20) as (spool, _):
        await until_empty(spool)
    assert collector.stored == list(range(20))
    assert len(collector.batches) > 1


async def test_a_slow_link_has_four_calls_in_flight(tmp_path: Path) -> None:
    """While no reply has come, a fourth call is started, and never a fifth."""
    four = asyncio.Event()

    async def wait_for_four(request: fleet_pb2.Batch, _response: object, _context: Context) -> None:
        if collector.in_flight == 4:
            four.set()
        if request.samples:
            await four.wait()

    collector = FaultyCollector(delay_seconds=0.02, before=wait_for_four)
    async with delivering(tmp_path, collector, backlog=200) as (spool, _):
        await until_empty(spool)
    assert collector.stored == list(range(200))
    assert collector.max_in_flight == 4


async def test_after_a_failure_one_call_is_in_flight(tmp_path: Path) -> None:
    """While every call fails, at most one call is in flight."""

    async def refuse(_request: object, _response: object, context: Context) -> None:
        await asyncio.sleep(0.02)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    collector = FaultyCollector(before=refuse)
    async with delivering(tmp_path, collector, backlog=50):
        await until(lambda: len(collector.pushes) >= 6)
    assert collector.max_in_flight == 1


async def test_the_collector_can_delay_pushes(tmp_path: Path) -> None:
    """The next push comes no sooner than the delay in a receipt, or in the metadata of a refusal."""
    arrived, answered = list[float](), list[float]()

    async def arrive(_request: object, _response: object, _context: Context) -> None:
        arrived.append(time.monotonic())

    async def slowly(_request: object, response: fleet_pb2.Receipt, _context: Context) -> None:
        response.delay_us = 300_000
        answered.append(time.monotonic())

    async with delivering(tmp_path, FaultyCollector(before=arrive, after=slowly), backlog=10):
        await until(lambda: len(arrived) >= 2)
    assert arrived[1] - answered[0] > 0.299

    refused = list[float]()
    refuse = refusing(first(1), grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", grpc_retry_pushback_ms="400")

    async def push_back(request: fleet_pb2.Batch, response: fleet_pb2.Receipt, context: Context) -> None:
        if request.samples:
            refused.append(time.monotonic())
        await refuse(request, response, context)

    async with delivering(tmp_path / "other", FaultyCollector(before=push_back), backlog=1) as (spool, _):
        await until_empty(spool)
    earlier, later = refused
    assert later - earlier > 0.399


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "FAILED_PRECONDITION"])
async def test_a_refused_agent_keeps_its_samples(tmp_path: Path, code: str) -> None:
    """A revoked credential stops the pushes but not the recording; once accepted again, all samples are stored."""
    closed = [True]
    collector = FaultyCollector(before=refusing(lambda _: closed[0], grpc.StatusCode[code], "revoked"))
    async with delivering(tmp_path, collector, backlog=5) as (spool, push_client):
        await until(lambda: push_client.refusal is not None)
        await until(lambda: len(collector.pushes) >= 3)
        assert not any(push.samples for push in collector.pushes)
        await spool.record(sample(5))
        closed[0] = False
        await until_empty(spool)
        assert push_client.refusal is None
    assert collector.stored == list(range(6))


async def test_a_refused_agent_pushes_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the time to verify its samples has come, a refused agent sends only its heartbeats."""
    monkeypatch.setattr(uplink_module, "VERIFY_SECONDS", 0.0)
    collector = FaultyCollector(before=refusing(lambda _: True, grpc.StatusCode.UNAUTHENTICATED, "revoked"))
    async with delivering(tmp_path, collector, backlog=5) as (_, push_client):
        await until(lambda: push_client.refusal is not None)
        before = len(collector.pushes)
        await asyncio.sleep(1.0)
    assert len(collector.pushes) - before <= 7


async def test_inconsistent_counts_acknowledge_nothing(tmp_path: Path) -> None:
    """A receipt that accounts for too few samples is not accepted: the batch stays, and in the end is stored once."""
    miscounted = fleet_pb2.Receipt(stored=1)
    collector = FaultyCollector(after=altering(2, lambda response: response.CopyFrom(miscounted)))
    async with delivering(tmp_path, collector, backlog=5) as (spool, push_client):
        await until(lambda: push_client.refusal is not None)
        assert (await spool.stats()).waiting == 5
        await until_empty(spool)
    assert (collector.stored, collector.altered) == (list(range(5)), 0)


@pytest.mark.parametrize(
    "malformed",
    [
        {"stored": -5, "rejected": 10},
        {"rejections": [fleet_pb2.Rejection(index=99, reason="x")], "stored": 4, "rejected": 1},
        {"rejections": [fleet_pb2.Rejection(index=0, reason="x")] * 2, "stored": 3, "rejected": 2},
        {"server_at": 2**62, "received_at": -(2**62)},
        {"server_at": 2**62, "received_at": 2**62},
        {"delay_us": -(2**63), "plan_version": -(2**63)},
    ],
)
async def test_a_malformed_receipt_never_ends_the_agent(tmp_path: Path, malformed: dict[str, Any]) -> None:
    """Whatever a receipt contains, delivery goes on after it, the account holds, and no sample gets an absurd clock."""

    def malform(response: fleet_pb2.Receipt) -> None:
        response.MergeFrom(fleet_pb2.Receipt(**malformed))
        for name, content in malformed.items():
            if name != "rejections":
                setattr(response, name, content)

    collector = FaultyCollector(after=altering(2, malform))
    async with delivering(tmp_path, collector, backlog=20) as (spool, _):
        await until_empty(spool)
        await spool.record(sample(20))
        await until_empty(spool)
        stats = await spool.stats()
    assert (collector.stored, stats.account.holds) == (list(range(21)), True)
    offsets = [one.clock_offset_us for push in collector.pushes for one in push.samples if one.round_at == 20]
    assert all(abs(offset) < DAY_US for offset in offsets)


async def test_bytes_that_are_no_receipt_never_end_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt that cannot be decoded, or a failure in handling one, is logged, and the batch is pushed again."""
    genuine, failures = codec.decode, [RuntimeError("a bug"), CodecError("Receipt.stored: unknown")]

    def fail(cls: type[Any], message: Any) -> Any:
        if failures:
            raise failures.pop()
        return genuine(cls, message)

    monkeypatch.setattr(codec, "decode", fail)
    collector = FaultyCollector()
    async with delivering(tmp_path, collector, backlog=10) as (spool, _):
        await until_empty(spool)
        assert (await spool.stats()).account.holds
    assert collector.stored == list(range(10))


async def test_a_batch_whose_number_is_taken_is_pushed_under_a_new_epoch(tmp_path: Path) -> None:
    """The collector stored other samples under this number: nothing is deleted, and all samples are stored once."""
    collector = FaultyCollector(before=refusing(first(1), grpc.StatusCode.ALREADY_EXISTS, "stored with other samples"))
    async with delivering(tmp_path, collector, backlog=10) as (spool, _):
        epoch = spool.epoch
        await until_empty(spool)
        assert spool.epoch != epoch
        assert (await spool.stats()).account.holds
    assert (collector.stored, collector.altered) == (list(range(10)), 0)


async def test_samples_of_unknown_targets_wait_for_a_plan(tmp_path: Path) -> None:
    """Samples of unknown targets stay in the spool until the collector has another plan; the others are stored."""
    known = {2}

    async def refuse(request: fleet_pb2.Batch, _response: object, context: Context) -> None:
        unknown = sorted({one.target_id for one in request.samples} - known)
        if unknown:
            metadata = ((UNKNOWN_TARGETS_KEY, ",".join(map(str, unknown))),)
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown targets", metadata)

    async def announce(_request: object, response: fleet_pb2.Receipt, _context: Context) -> None:
        response.plan_hash = bytes(sorted(known))

    collector = FaultyCollector(before=refuse, after=announce)
    async with delivering(tmp_path, collector) as (spool, push_client):
        push_client._seal_due = time.monotonic() + 1
        for number in range(10):
            await spool.record(replace(sample(number), target_id=1 + number % 2))
        await until(lambda: len(collector.stored) == 5)
        assert collector.stored == [1, 3, 5, 7, 9]
        known.add(1)
        push_client._heartbeat_due = 0
        await spool.record(replace(sample(10), target_id=2))
        await until_empty(spool)
        stats = await spool.stats()
    assert (collector.stored, stats.stored, stats.account.holds) == (list(range(11)), 11, True)


async def test_held_samples_are_pushed_again_after_an_hour(tmp_path: Path) -> None:
    """Without another plan, receipts release no held samples before: they would be refused each time."""
    known, refused = False, 0

    async def refuse(request: fleet_pb2.Batch, _response: object, context: Context) -> None:
        nonlocal refused
        if request.samples and not known:
            refused += 1
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown targets", ((UNKNOWN_TARGETS_KEY, "1"),))

    collector = FaultyCollector(before=refuse)
    async with delivering(tmp_path, collector) as (spool, push_client):
        await pushed(collector, 1)
        await spool.record(sample(0))
        await until(lambda: push_client._unpark_at > 0)
        assert 3000 < push_client._unpark_at - time.monotonic() <= 3600
        known = True
        for number in (1, 2):
            await spool.record(sample(number))
            await until(lambda: number in collector.stored)  # noqa: B023  # at once
        assert (refused, collector.stored) == (1, [1, 2])
        push_client._unpark_at = time.monotonic()
        await spool.record(sample(3))
        await until_empty(spool)
    assert (refused, collector.stored) == (1, [0, 1, 2, 3])


async def pushed(collector: FaultyCollector, count: int) -> None:
    await until(lambda: len(collector.pushes) >= count, 10)


async def test_an_agent_with_unknown_targets_hears_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While every batch is refused no push has a receipt, so that a heartbeat follows, long before one is due."""
    monkeypatch.setattr(uplink_module, "VERIFY_AGAIN_SECONDS", 0.0)
    unknown = {UNKNOWN_TARGETS_KEY: "1"}
    has_samples: Callable[[fleet_pb2.Batch], bool] = lambda request: bool(request.samples)  # noqa: E731  # a case
    collector = FaultyCollector(before=refusing(has_samples, grpc.StatusCode.NOT_FOUND, **unknown))
    async with delivering(tmp_path, collector) as (spool, _):
        await until(lambda: len(collector.pushes) == 1)
        for number in range(3):
            before = len(collector.pushes)
            await spool.record(sample(number))
            await pushed(collector, before + 2)
    assert [push.seq for push in collector.pushes].count(0) >= 3


async def test_batches_that_the_database_lost_are_pushed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage a heartbeat lists the delivered batches; those that are missing are pushed again, unchanged."""
    monkeypatch.setattr(uplink_module, "VERIFY_AGAIN_SECONDS", 0.0)
    away = False
    refused: list[object] = []

    async def refuse(request: object, _response: object, context: Context) -> None:
        if away:
            refused.append(request)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the database is away")

    async def compare(request: fleet_pb2.Batch, response: fleet_pb2.Receipt, _context: Context) -> None:
        for kept in request.kept:
            for seq in range(kept.first_seq, kept.last_seq + 1):
                if (kept.epoch, seq) not in collector.batches:
                    response.missing.add(epoch=kept.epoch, first_seq=seq, last_seq=seq)

    collector = FaultyCollector(before=refuse, after=compare)
    async with delivering(tmp_path, collector, backlog=20) as (spool, _):
        await until_empty(spool)
        before = dict(collector.batches)
        away = True
        await spool.record(sample(20))
        await until(lambda: bool(refused))
        for key in list(collector.batches)[2:]:
            del collector.batches[key]
        away = False
        await until(lambda: len(collector.stored) == 21)
        await until_empty(spool)
        stats = await spool.stats()
    assert (collector.stored, collector.altered) == (list(range(21)), 0)
    assert before.items() <= collector.batches.items()
    assert (stats.stored, stats.account.holds) == (21, True)


async def test_rejections_are_counted_by_reason(tmp_path: Path) -> None:
    """Rejected samples count as dropped for the collector's reason, in the account and in the heartbeat."""

    def reject_one(response: fleet_pb2.Receipt) -> None:
        response.stored, response.rejected = response.stored - 1, 1
        response.rejections.add(index=0, reason="unknown_target: 12")

    collector = FaultyCollector(after=altering(9, reject_one))
    async with delivering(tmp_path, collector, backlog=10) as (spool, _):
        await until_empty(spool)
        stats = await spool.stats()
    assert (dict(stats.dropped), stats.stored, stats.account.holds) == ({"unknown_target": 2}, 8, True)


async def test_new_samples_do_not_wait_for_the_backlog(tmp_path: Path) -> None:
    """While a backlog is delivered slowly, a new sample is stored before most of it."""
    collector = FaultyCollector(delay_seconds=0.05)
    async with delivering(tmp_path, collector, backlog=300) as (spool, _):
        await until(lambda: bool(collector.order))
        await spool.record(sample(999))
        await until_empty(spool)
    assert collector.order.index(999) < 150


async def test_an_outage_leaves_full_batches(tmp_path: Path) -> None:
    """Samples recorded while the collector is unreachable are not sealed one by one."""
    collector = FaultyCollector(before=refusing(lambda _: True, grpc.StatusCode.UNAVAILABLE, "away"))
    async with delivering(tmp_path, collector) as (spool, _):
        for number in range(100):
            await spool.record(sample(number))
            await asyncio.sleep(0.005)
        sealed = spool._spool._db.execute("select count(*) from sealed").fetchone()[0]
    assert sealed <= 2


async def test_samples_have_the_clock_offset(tmp_path: Path) -> None:
    """A sample before the first exchange is flagged; later ones have the true offset within the uncertainty."""
    collector = FaultyCollector(clock_ahead_us=3_000_000)
    async with delivering(tmp_path, collector) as (spool, _):
        await spool.record(sample(0))
        await until(lambda: bool(spool.offset_estimator._recent))
        await spool.record(sample(1))
        await until_empty(spool)
    stored = {one.round_at: one for push in collector.pushes for one in push.samples}
    assert Quality(stored[0].quality) is Quality.CLOCK_UNSYNCED
    known = stored[1]
    assert Quality(known.quality) is Quality.CLEAN
    assert abs(known.clock_offset_us - 3_000_000) <= known.clock_uncertainty_us + 1000


async def test_a_push_carries_the_whole_heartbeat(tmp_path: Path) -> None:
    """The newest push has the whole heartbeat, with the spend of a hundred providers at most."""
    collector = FaultyCollector()
    conditions = Heartbeat(
        plan_version=7, rounds_missed=4, refused_plan_version=8, refused_plan_reason="no such dialect"
    )
    async with delivering(tmp_path, collector, backlog=5, conditions=conditions) as (spool, _):
        await until_empty(spool)
        now_at = time.time_ns() // 1000
        day_at = now_at - now_at % DAY_US
        spent = [Spend(provider=f"deep-{number:03}", day_at=day_at, requests=1) for number in range(150)]
        await spool.record(Sample(target_id=1, round_at=now_at, outcome=Outcome.OK, dispatched_at=now_at), spent)
        await until_empty(spool)
    heartbeat = decode(Heartbeat, collector.pushes[-1].heartbeat)
    assert (heartbeat.plan_version, heartbeat.rounds_missed) == (7, 4)
    assert (heartbeat.refused_plan_version, heartbeat.refused_plan_reason) == (8, "no such dialect")
    assert (heartbeat.finished, heartbeat.stored, heartbeat.spool_depth, heartbeat.quarantined) == (6, 5, 1, 0)
    assert heartbeat.account.holds
    assert (heartbeat.next_heartbeat_us, heartbeat.clock_uncertainty_us is not None) == (15_000_000, True)
    assert [(line.provider, line.requests) for line in heartbeat.spend[:2]] == [("deep-000", 1), ("deep-001", 1)]
    assert len(heartbeat.spend) == 100


async def test_drain_delivers_an_interrupted_batch(tmp_path: Path) -> None:
    """After the push_client is stopped during a call, `drain` delivers the batch of that call."""
    collector = FaultyCollector(delay_seconds=0.2)
    async with serving(collector) as channel, AsyncSpool(tmp_path / "spool.sqlite3") as spool:
        push_client = PushClient(CollectorClient(channel=lambda: channel, vantage=VANTAGE), spool, on_plan=follow)
        task = asyncio.create_task(push_client.run())
        await until(lambda: push_client._healthy)
        await spool.record(sample(1))
        await until(lambda: any(push.samples for push in collector.pushes))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await push_client.drain()
        assert (await spool.stats()).waiting == 0
        await push_client.announce_stop()
    assert collector.stored == [1]
    assert [push.heartbeat.stopped for push in collector.pushes[-2:]] == [False, True]


BATCH = Batch(
    vantage=Vantage(name="t-1", region="test"), epoch=1, seq=0, heartbeat=Heartbeat(plan_version=7), sent_at=1
)


async def test_pushes_are_counted_by_status() -> None:
    """Stored and refused pushes are counted under their gRPC status; other calls are not counted."""
    left = iter([True])
    busy = refusing(
        lambda _: next(left, False), grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", grpc_retry_pushback_ms="400"
    )
    async with serving(FaultyCollector(before=busy)) as channel:
        collector = CollectorClient(channel=lambda: channel, vantage=BATCH.vantage)
        assert collector.heartbeat == Heartbeat()
        with pytest.raises(grpc.aio.AioRpcError, match="busy") as caught:
            await collector.push(BATCH)
        receipt = await collector.push(BATCH)
        await collector.fetch_plan(None)
    assert Backoff().next_wait_us(caught.value.trailing_metadata() or (), 0.0) == 400_000
    assert receipt.plan_version == 1
    assert collector.pushes == {"RESOURCE_EXHAUSTED": 1, "OK": 1}
    assert collector.heartbeat.plan_version == 7
