"""Pushes over a real socket into a real PostgreSQL: stored exactly once, counted, and refused with reasons."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import pytest

from fixtures.collector import KEEP_A_MONTH, Collector, StartCollector
from fixtures.postgres import rows
from isochrone_common.channel import UNKNOWN_TARGETS_KEY
from isochrone_wire import codec
from isochrone_wire.answers import Selection, Window
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import (
    DAY_US,
    MINUTE_US,
    SECOND_US,
    Batch,
    BatchRange,
    Heartbeat,
    Outcome,
    Quality,
    RateLimit,
    Sample,
    Spend,
    TokenSource,
    Vantage,
)
from testdata.waiting import eventually

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
VANTAGE = Vantage(name="us-1", region="us-east-2")


def now_at() -> int:
    return time.time_ns() // 1000


@pytest.fixture
def collector(start_collector: StartCollector) -> Collector:
    started = start_collector()
    started.call.apply(PLAN)
    return started


def target_of(collector: Collector) -> int:
    return collector.call.targets().targets[0].id


def a_sample(collector: Collector, **change: Any) -> Sample:
    plain = Sample(
        target_id=target_of(collector), round_at=now_at(), outcome=Outcome.OK, dispatched_at=now_at(), ttft_us=350_000
    )
    return replace(plain, **change)


def refusal(call: Any, *arguments: Any, **more: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call(*arguments, **more)
    error: Any = refused.value
    return error.code(), error.details()


def test_every_field_is_stored(collector: Collector) -> None:
    """A reader gets back every field that was pushed, to the microsecond."""
    full = a_sample(
        collector,
        late_us=-3,
        dns_us=1,
        tcp_us=2,
        tls_us=3,
        ttfb_us=4,
        ttfat_us=6,
        e2e_us=7,
        tokens_per_second=81.25,
        chunk_gap_p50_us=8,
        chunk_gap_p99_us=9,
        chunk_gap_max_us=10,
        stalls=0,
        prompt_tokens=11,
        output_tokens=12,
        reasoning_tokens=13,
        cached_tokens=14,
        first_chunk_tokens=15,
        chunks=16,
        output_chars=17,
        token_source=TokenSource.USAGE,
        rtt_us=18,
        rtt_min_us=19,
        retransmits=20,
        provider_us=21,
        remote_address="192.0.2.1",
        edge="ÖST",
        request_id="req-1",
        ratelimit=RateLimit(limit_requests=2**62, remaining_tokens=0),
        loop_lag_us=22,
        clock_offset_us=-23,
        clock_uncertainty_us=24,
        cost_usd=0.000_125,
        quality=Quality.LAGGED | Quality.USER_STAMPS,
        http_status=200,
        error="none, really",
        timeout_us=25,
    )
    bare = a_sample(collector, ttft_us=None, outcome=Outcome.SKIPPED_BUDGET)
    receipt = collector.call.push(Batch(vantage=VANTAGE, epoch=-(2**63), seq=1, samples=(full, bare)))
    assert (receipt.stored, receipt.duplicate, receipt.rejected) == (2, 0, 0)
    assert receipt.plan_version == 1
    assert abs(receipt.server_at - now_at()) < 60 * SECOND_US
    window = Window(from_at=full.round_at - SECOND_US, until_at=now_at() + SECOND_US)
    stored = collector.call.samples(Selection(window=window))
    assert [found.sample for found in stored] == [bare, full]
    assert {(found.target, found.vantage, found.region) for found in stored} == {("sim/a", "us-1", "us-east-2")}


def test_samples_of_unknown_targets_stay_with_the_agent(collector: Collector) -> None:
    """The agent, which keeps them, gets their ids, and nothing of the batch is stored."""
    batch = Batch(
        vantage=VANTAGE,
        epoch=7,
        seq=1,
        samples=(a_sample(collector), a_sample(collector, target_id=12), a_sample(collector, target_id=11)),
    )
    with pytest.raises(grpc.RpcError) as refused:
        collector.call.push(batch)
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert (UNKNOWN_TARGETS_KEY, "11,12") in [tuple(pair) for pair in error.trailing_metadata()]
    assert rows(collector.database_url, "SELECT count(*) FROM ingest_batch") == [(0,)]


def test_lost_batches_are_named(collector: Collector) -> None:
    """A heartbeat that lists delivered batches gets those that are not in the ledger, and there is one alert."""
    for seq in (1, 2, 4, 7):
        collector.call.push(Batch(vantage=VANTAGE, epoch=7, seq=seq, samples=(a_sample(collector),)))
    heartbeat = Batch(vantage=VANTAGE, epoch=7, seq=0)
    known = collector.call.push(replace(heartbeat, kept=(BatchRange(epoch=7, first_seq=1, last_seq=2),)))
    assert known.missing == ()
    kept = (BatchRange(epoch=7, first_seq=1, last_seq=8), BatchRange(epoch=6, first_seq=3, last_seq=4))
    receipts = [collector.call.push(replace(heartbeat, kept=kept)) for _ in range(3)]
    assert {receipt.missing for receipt in receipts} == {
        (
            BatchRange(epoch=7, first_seq=3, last_seq=3),
            BatchRange(epoch=7, first_seq=5, last_seq=6),
            BatchRange(epoch=7, first_seq=8, last_seq=8),
            BatchRange(epoch=6, first_seq=3, last_seq=4),
        )
    }
    window = Window(from_at=now_at() - DAY_US, until_at=now_at() + DAY_US)
    eventually(20, lambda: bool(collector.call.alerts(window).alerts), "the alert")
    assert [one.kind for one in collector.call.alerts(window).alerts] == [AlertKind.DATABASE_RESTORED]


def test_a_bad_sample_does_not_affect_the_others(collector: Collector) -> None:
    """Valid samples are stored, invalid ones rejected by index, and counts add up, also for targets not planned now."""
    samples = (
        a_sample(collector),
        a_sample(collector, ttft_us=-1),
        a_sample(collector, tokens_per_second=float("nan")),
        a_sample(collector, error="x" * 1_000),
        a_sample(collector, round_at=now_at() + 500 * DAY_US),
        a_sample(collector),
    )
    batch = Batch(vantage=VANTAGE, epoch=7, seq=1, samples=samples)
    first = collector.call.push(batch)
    collector.call.apply(PLAN.replace("model: a", "model: b"))
    second = collector.call.push(replace(batch, sent_at=now_at()))
    reasons = [(rejection.index, rejection.reason.partition(":")[0]) for rejection in first.rejections]
    assert reasons == [(1, "out_of_bounds"), (2, "not_finite"), (3, "too_long"), (4, "absurd_time")]
    assert (first.stored, first.duplicate, first.rejected) == (2, 0, 4)
    assert (second.stored, second.duplicate, second.rejected) == (0, 2, 4)
    assert second.rejections == first.rejections
    assert rows(collector.database_url, "SELECT idx FROM sample ORDER BY idx") == [(0,), (5,)]
    assert collector.call.push(replace(batch, seq=2, samples=samples[:1])).stored == 1


def test_an_outcome_of_the_future_is_rejected_alone(collector: Collector) -> None:
    """A newer agent may send an unknown outcome; the rest of its batch is stored."""
    message = codec.encode(Batch(vantage=VANTAGE, epoch=7, seq=1, samples=(a_sample(collector), a_sample(collector))))
    message.samples[0].outcome = 99
    response = collector.call.fleet.Push(message)
    assert (response.stored, response.rejected) == (1, 1)
    assert response.rejections[0].reason.startswith("unreadable: Sample.outcome")


def test_late_rounds_are_kept_apart(start_collector: StartCollector) -> None:
    """A round without a partition, or ahead of the clock, is stored apart with the reason, and counted as stored."""
    collector = start_collector(more=KEEP_A_MONTH)
    collector.call.apply(PLAN)
    samples = (
        a_sample(collector, round_at=now_at() - 60 * DAY_US),
        a_sample(collector, round_at=now_at() + 10 * DAY_US),
        a_sample(collector, round_at=now_at() - 30 * DAY_US),
        a_sample(collector, round_at=now_at() + 6 * MINUTE_US),
        a_sample(collector, round_at=now_at() + 4 * MINUTE_US),
    )
    batch = Batch(vantage=VANTAGE, epoch=7, seq=1, samples=samples)
    assert collector.call.push(batch).stored == 5
    assert collector.call.push(batch).duplicate == 5
    assert rows(collector.database_url, "SELECT idx, reason FROM sample_late ORDER BY idx") == [
        (0, "too_old"),
        (1, "in_the_future"),
        (3, "in_the_future"),
    ]
    assert rows(collector.database_url, "SELECT idx FROM sample ORDER BY idx") == [(2,), (4,)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"seq": 0}, "heartbeat"),
        ({"seq": -4}, "seq is -4"),
        ({"samples": ()}, "no samples"),
        ({"epoch": 0}, "epoch"),
        ({"vantage": Vantage(name="", region="us-east-2")}, "vantage.name"),
        ({"vantage": Vantage(name="us-1", region="x" * 10_000)}, "vantage.region"),
    ],
)
def test_an_invalid_batch_is_refused(shared_collector: Collector, change: dict[str, Any], expected: str) -> None:
    """A batch that is invalid as a whole is INVALID_ARGUMENT with the reason, and nothing of it is stored."""
    collector = shared_collector
    collector.call.apply(PLAN)
    batch = Batch(vantage=VANTAGE, epoch=7, seq=1, samples=(a_sample(collector),))
    code, details = refusal(collector.call.push, replace(batch, **change))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert expected in details
    assert rows(collector.database_url, "SELECT count(*) FROM ingest_batch") == [(0,)]


def test_a_sealed_batch_never_changes(collector: Collector) -> None:
    """Other samples under a used number are refused by name, not counted as duplicates, even as many of them."""
    batch = Batch(vantage=VANTAGE, epoch=7, seq=1, samples=(a_sample(collector),))
    collector.call.push(batch)
    for others in (batch.samples * 2, (a_sample(collector, e2e_us=1_234),)):
        code, details = refusal(collector.call.push, replace(batch, samples=others))
        assert code is grpc.StatusCode.ALREADY_EXISTS
        assert "another epoch" in details
    assert collector.call.push(replace(batch, sent_at=now_at())).duplicate == 1
    assert rows(collector.database_url, "SELECT count(*), max(e2e_us) FROM sample") == [(1, batch.samples[0].e2e_us)]


def test_a_message_too_large_is_refused(collector: Collector) -> None:
    """A message above the limit never reaches the database, and the collector continues."""
    batch = Batch(vantage=VANTAGE, epoch=7, seq=1, samples=(a_sample(collector, error="x" * 9_000_000),))
    assert refusal(collector.call.push, batch)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert collector.call.push(replace(batch, samples=(a_sample(collector),))).stored == 1


def test_a_vantage_keeps_its_region(collector: Collector) -> None:
    """The same name from another region would mix two series: it is refused with both regions."""
    batch = Batch(vantage=VANTAGE, epoch=7, seq=1, samples=(a_sample(collector),))
    collector.call.push(batch)
    moved = replace(batch, vantage=Vantage(name="us-1", region="eu-west-1"), seq=2)
    code, details = refusal(collector.call.push, moved)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "us-east-2" in details
    assert "eu-west-1" in details


def test_the_whole_heartbeat_is_kept(collector: Collector) -> None:
    """A push without samples stores all values of its heartbeat, of which invalid ones are cut, and nothing else."""
    spend = Spend(provider="sim", day_at=now_at() // DAY_US * DAY_US, usd=0.25, tokens=12, requests=3)
    heartbeat = Heartbeat(
        agent_version="0.2.0",
        plan_version=1,
        spool_depth=12,
        dropped={"spool_full": 3},
        next_heartbeat_us=30 * SECOND_US,
        finished=30,
        stored=20,
        quarantined=4,
        rounds_missed=5,
        clock_offset_us=-7,
        clock_uncertainty_us=2**62,
        loop_lag_us=8,
        refused_plan_version=2,
        refused_plan_reason="names a foreign\0 host",
        spend=(spend, replace(spend, provider="x" * 200)),
    )
    before = collector.call.push(Batch(vantage=VANTAGE, epoch=7, seq=0, heartbeat=heartbeat))
    assert (before.stored, before.duplicate, before.rejected, before.plan_version) == (0, 0, 0, 1)
    assert rows(collector.database_url, "SELECT count(*) FROM ingest_batch") == [(0,)]
    columns = "name, region, agent_version, plan_version, spool_depth, dropped, next_heartbeat_at - last_seen_at"
    [(*stated, until_next)] = rows(collector.database_url, f"SELECT {columns} FROM vantage")
    assert stated == ["us-1", "us-east-2", "0.2.0", 1, 12, {"spool_full": 3}]
    assert until_next.total_seconds() == 30
    told = "finished, stored, quarantined, rounds_missed, clock_offset_us, clock_uncertainty_us, loop_lag_us"
    [found] = rows(
        collector.database_url, f"SELECT {told}, refused_plan_version, refused_plan_reason, spend FROM vantage"
    )
    assert found[:5] == (30, 20, 4, 5, -7)
    assert found[5] == 400 * DAY_US
    assert found[6:-1] == (8, 2, "names a foreign host")
    assert found[-1] == [{"provider": "sim", "day_at": spend.day_at, "usd": 0.25, "tokens": 12, "requests": 3}]
    assert rows(collector.database_url, "SELECT epoch, newest_sample_at FROM vantage") == [(7, None)]
    after = collector.call.push(
        Batch(vantage=VANTAGE, epoch=8, seq=1, samples=(a_sample(collector),), heartbeat=heartbeat)
    )
    collector.call.push(Batch(vantage=VANTAGE, epoch=8, seq=0, heartbeat=heartbeat))
    query = "SELECT epoch, (extract(epoch FROM newest_sample_at) * 1000000)::bigint FROM vantage"
    [(epoch, newest_at)] = rows(collector.database_url, query)
    # By the clock of the database, which is that of this machine.
    assert (epoch, abs(newest_at - after.received_at) < MINUTE_US) == (8, True)
    assert before.received_at <= before.server_at <= after.received_at <= after.server_at


def test_concurrent_pushes_are_all_stored(collector: Collector) -> None:
    """Of fifty concurrent pushes, some large, some repeated, each sample is stored once, and every receipt adds up."""
    sample = a_sample(collector)
    batches = [
        Batch(vantage=Vantage(name=f"v-{n % 10}", region="us-east-2"), epoch=7, seq=n, samples=(sample,) * size)
        for n, size in enumerate([1, 7, 150, 300] * 10, start=1)
    ]
    twice = batches[::4]
    with ThreadPoolExecutor(50) as threads:
        receipts = list(threads.map(collector.call.push, [*batches, *twice]))
    for batch, receipt in zip([*batches, *twice], receipts, strict=True):
        assert receipt.stored + receipt.duplicate == len(batch.samples)
    assert sum(receipt.stored for receipt in receipts) == sum(len(batch.samples) for batch in batches)
    assert sum(receipt.duplicate for receipt in receipts) == sum(len(batch.samples) for batch in twice)
    found = rows(
        collector.database_url, "SELECT seq, count(*), count(DISTINCT idx) FROM sample GROUP BY seq ORDER BY seq"
    )
    assert found == [(batch.seq, len(batch.samples), len(batch.samples)) for batch in batches]
    assert rows(collector.database_url, "SELECT count(*), sum(samples) FROM ingest_batch") == [
        (40, sum(n for _, n, _ in found))
    ]
    assert rows(collector.database_url, "SELECT count(*) FROM vantage WHERE newest_sample_at IS NOT NULL") == [(10,)]
    assert collector.call.push(replace(batches[0], epoch=8)).stored == 1, "another epoch is another batch"


def test_a_changed_batch_in_a_group_is_refused_alone(collector: Collector) -> None:
    """Of two different batches under one number, pushed at once with others, one is stored and the other refused."""
    sample = a_sample(collector)
    one = Batch(vantage=VANTAGE, epoch=7, seq=1, samples=(sample,) * 2)
    group = [one, replace(one, samples=(sample,) * 3), *(replace(one, seq=seq) for seq in range(2, 12))]

    def push(batch: Batch) -> int | grpc.StatusCode:
        try:
            return collector.call.push(batch).stored
        except grpc.RpcError as error:
            call: Any = error
            return call.code()  # type: ignore[no-any-return]  # an error of a call is also the call

    with ThreadPoolExecutor(12) as threads:
        found = list(threads.map(push, group))
    assert grpc.StatusCode.ALREADY_EXISTS in found[:2]
    assert {*found[:2]} & {2, 3}
    assert found[2:] == [2] * 10
    assert rows(collector.database_url, "SELECT seq, count(*) FROM sample GROUP BY seq ORDER BY seq")[1:] == [
        (seq, 2) for seq in range(2, 12)
    ]


def test_cut_database_connections_lose_nothing(collector: Collector) -> None:
    """While connections are cut each batch is stored once, and no push fails after the last cut."""
    sample = a_sample(collector)
    batches = [Batch(vantage=VANTAGE, epoch=7, seq=seq, samples=(sample,) * 20) for seq in range(1, 301)]
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'isochrone-collector'"

    def push_until_taken(batch: Batch) -> int:
        while True:
            try:
                receipt = collector.call.push(batch)
            except grpc.RpcError as error:
                call: Any = error
                assert call.code() is grpc.StatusCode.UNAVAILABLE, call.details()
                time.sleep(0.02)
            else:
                return receipt.stored + receipt.duplicate

    with ThreadPoolExecutor(8) as threads:
        pushing = [threads.submit(push_until_taken, batch) for batch in batches]
        for _ in range(8):
            rows(collector.database_url, cut + " AND datname = current_database()")
            time.sleep(0.1)
    assert [push.result() for push in pushing] == [20] * 300
    assert rows(collector.database_url, "SELECT count(*), count(DISTINCT (seq, idx)) FROM sample") == [(6000, 6000)]
    assert rows(collector.database_url, "SELECT count(*), sum(stored) FROM ingest_batch") == [(300, 6000)]
    rows(collector.database_url, cut.replace("(pid)", "(pid, 5000)") + " AND datname = current_database()")
    assert collector.call.push(replace(batches[0], seq=301)).stored == 20
    assert collector.call.push(batches[0]).duplicate == 20


def test_two_collectors_share_a_database(collector: Collector, start_collector: StartCollector) -> None:
    """A batch pushed to one and repeated to the other is stored once, and a plan applied at one is known at both."""
    other = start_collector()
    batch = Batch(vantage=VANTAGE, epoch=7, seq=1, samples=(a_sample(collector),))
    assert collector.call.push(batch).stored == 1
    assert other.call.push(batch).duplicate == 1
    collector.call.apply(PLAN.replace("model: a", "model: b"))
    fresh = replace(batch, seq=2, samples=(a_sample(collector),))
    assert other.call.push(fresh).stored == 1


@pytest.mark.parametrize("samples", [0, 1, 300])
def test_bytes_that_cannot_be_decoded_are_an_invalid_argument(collector: Collector, samples: int) -> None:
    """What protobuf cannot decode is INVALID_ARGUMENT, not INTERNAL, which an agent would retry for ever."""
    batch = Batch(vantage=VANTAGE, epoch=1, seq=1, samples=(a_sample(collector),) * samples)
    unreadable = b"\x22\x01\xff" if samples else b"\xff"
    content = codec.encode(batch).SerializeToString() + unreadable
    push: grpc.UnaryUnaryMultiCallable[bytes, bytes] = collector.call.channel.unary_unary("/isochrone.v1.Fleet/Push")
    status, details = refusal(push, content, timeout=30)
    assert (status, details.partition(":")[0]) == (grpc.StatusCode.INVALID_ARGUMENT, "cannot decode the push")
    assert rows(collector.database_url, "SELECT count(*) FROM sample") == [(0,)]
