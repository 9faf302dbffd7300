"""Limits: rates, calls in progress, and the log of refusals."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from isochrone_collector.auth import limits
from isochrone_collector.auth.limits import (
    ArrivalSlots,
    BucketPerKey,
    CallSlots,
    LeakyBucket,
    RefusalLog,
    RefusalPause,
    StreamCounts,
    address_key,
    host_of,
    without_details,
)
from isochrone_collector.errors import DatabaseUnavailable, DeadlineExceeded, ResourceExhausted


@pytest.mark.parametrize(
    ("peer", "key"),
    [
        ("ipv4:192.0.2.1:4711", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::/64"),
        ("ipv6:[2001:db8::ffff:1]:4712", "2001:db8::/64"),
        ("ipv6:[::ffff:192.0.2.1]:4712", "192.0.2.1"),
        ("ipv6:[fe80::1%eth0]:9", "fe80::/64"),
        ("unix:", "unix"),
        ("", ""),
    ],
)
def test_a_caller_without_a_credential_is_known_by_its_address(peer: str, key: str) -> None:
    """The port does not count, and neither do the lower half of an IPv6 address."""
    assert address_key(peer) == key


def test_the_address_of_a_peer_has_no_port() -> None:
    """As the audit trail shows it: IPv6 without brackets, `unix` for a socket of this machine."""
    assert [host_of(peer) for peer in ("ipv4:192.0.2.1:4711", "ipv6:%5B2001:db8::1%5D:9", "unix:/run/x", "unix:")] == [
        "192.0.2.1",
        "2001:db8::1",
        "unix",
        "unix",
    ]


async def test_a_caller_takes_no_slots_of_another() -> None:
    """One caller holds at most its own slots, and the calls of another one start at once."""
    slots, started = CallSlots(total=3, each=2), []

    async def call(key: str) -> None:
        async with slots.hold(key):
            started.append(key)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call(key)) for key in ("a", "a", "a", "b")]
        while len(started) < 3:
            await asyncio.sleep(0)
        assert sorted(started) == ["a", "a", "b"]
        tasks[0].cancel()
        while len(started) < 4:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
    assert started.count("a") == 3


async def test_a_call_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without a slot is refused after a while, and at once when too many wait already."""
    monkeypatch.setattr(limits, "_WAIT_S", 0.01)
    slots = CallSlots(total=1, each=1, queue=0)
    async with slots.hold("a"):
        with pytest.raises(ResourceExhausted):
            await slots.hold("a").__aenter__()
        with pytest.raises(ResourceExhausted):
            await slots.hold("b").__aenter__()
    async with slots.hold("b"), slots.hold(None), slots.hold(None):
        assert set(slots._calls) == {"b"}


async def test_the_oldest_calls_are_served_others_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond three places calls are refused at once with growing times; those that wait get the slot in order."""
    monkeypatch.setattr(limits, "_RETRIES_PER_S", 2.0)
    slots, served = CallSlots(total=1, each=1, waiting=3), []

    async def call(key: str) -> None:
        async with slots.hold(key):
            served.append(key)

    async with slots.hold("first"):
        waiting = [asyncio.create_task(call(key)) for key in "abc"]
        await asyncio.sleep(0)
        delays_s, loop = [], asyncio.get_running_loop()
        with monkeypatch.context() as frozen:
            at = loop.time()
            frozen.setattr(loop, "time", lambda: at)
            for key in range(100):
                with pytest.raises(ResourceExhausted) as caught:
                    await call(str(key))
                delays_s.append(caught.value.delay_us / 1e6)
        assert delays_s[:3] == pytest.approx([1.0, 1.5, 2.0])
        assert max(delays_s) == pytest.approx(30.0)
        assert served == []
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
        await call("later")
    assert served == ["a", "b", "c", "later"]


async def test_a_slow_request_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request has its time to arrive while there are free slots, and little of it while another one waits."""
    monkeypatch.setattr(limits, "_HURRIED_S", 0.01)
    slots = ArrivalSlots(total=2, each=1)

    async def never_arrives(key: str) -> None:
        async with slots.hold(key):
            await asyncio.Event().wait()

    slow = [asyncio.create_task(never_arrives(key)) for key in "ab"]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in slow)
    async with asyncio.timeout(60), slots.hold("c"):
        pass
    for task in slow:
        with pytest.raises(DeadlineExceeded):
            await task
    assert (slots._waiting, slots._begun, slots._calls) == (0, {}, {})


def test_streams_are_counted_per_caller() -> None:
    """The stream over the limit is refused, and a closed one makes room."""
    counts = StreamCounts(each=1)
    with (
        counts.hold("a"),
        counts.hold("b"),
        counts.hold(None),
        counts.hold(None),
        pytest.raises(ResourceExhausted, match="limit of 1 open streams"),
        counts.hold("a"),
    ):
        pass
    with counts.hold("a"):
        pass


async def test_no_more_than_four_thousand_refusals_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that waits takes memory: one more than the limit is refused at once, and places become free again."""
    monkeypatch.setattr(limits, "_PAUSE_S", 3600.0)
    pause = RefusalPause()
    waiting = [asyncio.create_task(pause.wait()) for _ in range(4_000)]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await pause.wait()
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    last = asyncio.create_task(pause.wait())
    await asyncio.sleep(0)
    assert not last.done()
    for task in [*waiting, last]:
        task.cancel()
    await asyncio.gather(*waiting, last, return_exceptions=True)


async def test_refusals_are_given_at_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """At twenty per second, twenty calls wait up to a second; given-up calls delay others by the longest wait."""
    monkeypatch.setattr(limits, "_PAUSE_S", 0.1)
    monkeypatch.setattr(limits, "_REFUSED_PER_S", 20.0)
    monkeypatch.setattr(limits, "_PAUSED_CALLS", 20)
    pause, begun, waits = RefusalPause(), time.monotonic(), []

    async def wait() -> None:
        await pause.wait()
        waits.append(time.monotonic() - begun)

    await asyncio.gather(*(wait() for _ in range(20)))
    assert min(waits) >= 0.1
    assert sum(wait < 0.5 for wait in waits) <= 10
    assert max(waits) > 1.0
    for _ in range(1_000):
        given_up = asyncio.create_task(pause.wait())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
    async with asyncio.timeout(10):
        await pause.wait()


def test_a_bucket_lets_a_burst_through_and_then_a_rate() -> None:
    """`burst` events at once, then `per_second` of them; a clock that goes back drains nothing."""
    bucket = LeakyBucket(per_second=2.0, burst=3.0)
    assert [bucket.take(10) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(0)
    assert [bucket.take(500_010) for _ in range(2)] == [True, False]
    assert [bucket.take(9_000_000) for _ in range(4)] == [True, True, True, False]


def test_each_key_has_a_bucket() -> None:
    """One key does not use up the allowance of another; of many keys only the most recent are remembered."""
    buckets = BucketPerKey(per_second=1.0, burst=1.0, keys=2)
    assert [buckets.take(key, 0) for key in ("a", "a", "b")] == [True, False, True]
    assert buckets.take("c", 0)
    assert len(buckets._buckets) == 2


def test_a_flood_of_refusals_is_a_few_lines() -> None:
    """A flood of refusals is a few lines, and an outage of the database does not show a credential's text."""
    log = RefusalLog(clock=iter(range(0, 10_000_000, 1_000)).__next__)
    with capture_logs() as lines:
        for _ in range(10_000):
            log.write(status="UNAUTHENTICATED", reason="no credential was sent")
    assert 50 <= len(lines) <= 65
    assert "left_out" not in lines[0]
    assert len(lines) + sum(line.get("left_out", 0) for line in lines) + 1_000 >= 10_000
    with capture_logs() as lines:
        for _ in range(200):
            with pytest.raises(DatabaseUnavailable) as caught, without_details():
                raise DatabaseUnavailable("no route to host db-1")
            assert "db-1" not in str(caught.value)
    assert 0 < len(lines) < 100
    assert (lines[0]["event"], lines[0]["reason"]) == ("database.unavailable", "no route to host db-1")
