"""Alerts: raised once, stored, signed, and delivered until the receiver accepts them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from fixtures.collector import KEEP_A_MONTH, StartCollector, run_command
from fixtures.inprocess_collector import Clock
from fixtures.webhook import SECRET, Receiver
from isochrone_collector import webhook_signature
from isochrone_collector.alerting import delivery
from isochrone_collector.alerting.delivery import ReceiverDelivery
from isochrone_collector.alerting.service import AlertService
from isochrone_collector.alerts.message import of_low_disk, of_test
from isochrone_collector.clock import now_at
from isochrone_collector.jobs.coordination import Notifications
from isochrone_collector.jobs.registry import JobHealth, JobHealthCheck
from isochrone_collector.receivers import Format
from isochrone_collector.receivers import Receiver as ReceiverSettings
from isochrone_collector.store import alerts, diagnostics, vantages
from isochrone_collector.store.job_state import Channel
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.vantages import HeartbeatReport
from isochrone_wire.answers import Window
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Heartbeat, Vantage

EVER = Window(from_at=now_at() - DAY_US, until_at=now_at() + 30 * DAY_US)


@dataclass(slots=True)
class Bench:
    """Alert delivery on a database, with the test's clock and receiver."""

    database: Database
    alerting: AlertService
    clock: Clock

    async def raise_test(self) -> None:
        """Raise an alert that is due at once."""
        async with self.database.connection() as connection:
            await self.alerting.raise_alert(connection, of_test(raised_at=self.clock.at))

    async def deliver(self) -> None:
        """Send what is due to each receiver."""
        for one in self.alerting.receivers:
            await one.run()

    async def listed(self) -> tuple[Alert, ...]:
        """Return all alerts, newest first."""
        async with self.database.connection() as connection:
            return await alerts.of_window(connection, EVER)

    async def heard(self, name: str, promise_us: int) -> None:
        """Record a push of a vantage now, with the instant of its next heartbeat."""
        who = Vantage(name=name, region="us-east-2")
        sign = HeartbeatReport(
            vantage_id=who.id, batch_epoch=1, seen_at=self.clock.at, heartbeat=Heartbeat(next_heartbeat_us=promise_us)
        )
        async with self.database.connection() as connection:
            await vantages.register(connection, who, seen_at=self.clock.at)
            await vantages.record_heartbeat(connection, [sign])

    async def roll_calls(self, until_at: int) -> None:
        """Let time pass, with a check for absences every half minute."""
        while self.clock.at < until_at:
            self.clock.at = min(self.clock.at + 30 * SECOND_US, until_at)
            await self.alerting.check_absences()


def a_webhook(url: str) -> ReceiverSettings:
    return ReceiverSettings(name="webhook", format=Format.STANDARD, url=url, secret=SECRET, group_us=0)


@asynccontextmanager
async def a_bench(database_url: str, hook: ReceiverSettings | None) -> AsyncIterator[Bench]:
    database, clock = Database(database_url), Clock(now_at())
    told = [ReceiverDelivery(hook, database=database, clock=clock)] if hook else []
    await database.open()
    try:
        yield Bench(database, AlertService(database=database, receivers=told, clock=clock), clock)
    finally:
        await database.close()
        for one in told:
            await one.close()


@pytest.fixture
async def bench(database_url: str, receiver: Receiver) -> AsyncIterator[Bench]:
    """A bench whose webhook is the receiver."""
    async with a_bench(database_url, a_webhook(receiver.address)) as made:
        yield made


async def test_a_new_alert_wakes_the_delivery(bench: Bench, receiver: Receiver) -> None:
    """An alert that any collector raises is sent at once when its transaction has ended, and not before."""
    notifications = Notifications(database=bench.database)
    notifications.handle(Channel.ALERTS, bench.alerting.wake)
    delivery, other = bench.alerting.receivers[0], AlertService(database=bench.database, clock=bench.clock)
    task = asyncio.create_task(notifications.run())
    try:
        await asyncio.wait_for(delivery.woken.wait(), 20)  # connected
        delivery.woken.clear()
        async with bench.database.transaction() as connection:
            await other.raise_alert(connection, of_low_disk("1 GB", raised_at=bench.clock.at))
            await asyncio.sleep(0.1)
            assert not delivery.woken.is_set()
        await asyncio.wait_for(delivery.woken.wait(), 20)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_an_alert_is_delivered_once_and_signed(bench: Bench, receiver: Receiver) -> None:
    """The receiver gets an alert once, with a valid signature, even if it is raised twice."""
    await bench.raise_test()
    await bench.raise_test()
    await bench.deliver()
    await bench.deliver()
    [told] = receiver.received
    assert told.body["type"] == "isochrone.test"
    assert told.body["data"]["id"] == told.message
    [alert] = await bench.listed()
    assert (alert.attempts, alert.delivered_at, alert.last_error) == (1, bench.clock.at, "")


async def test_an_alert_of_a_later_version_is_delivered(bench: Bench, receiver: Receiver) -> None:
    """A kind that this version does not know, raised by a newer collector that led before, is delivered as it is
    stored, with the others, and listed.
    """
    await bench.raise_test()
    later = replace(of_test(raised_at=bench.clock.at + 1), kind=AlertKind("quota_moved"))
    async with bench.database.connection() as connection:
        await bench.alerting.raise_alert(connection, later)
    bench.clock.at += SECOND_US
    await bench.deliver()
    assert sorted(receiver.kinds()) == ["isochrone.quota_moved", "isochrone.test"]
    assert sorted(alert.kind for alert in await bench.listed()) == ["quota_moved", "test"]


async def test_a_refused_alert_is_sent_again(bench: Bench, receiver: Receiver) -> None:
    """After a 500 the alert is sent again with the same id once the pause is over, and success clears the error."""
    receiver.answers[:] = [500]
    await bench.raise_test()
    await bench.deliver()
    await bench.deliver()
    assert len(receiver.received) == 1
    [alert] = await bench.listed()
    assert (alert.attempts, alert.delivered_at, alert.last_error) == (1, None, "500 Internal Server Error")
    bench.clock.at += 6 * SECOND_US
    await bench.deliver()
    first, second = receiver.received
    assert first.message == second.message
    [alert] = await bench.listed()
    assert (alert.attempts, alert.last_error) == (2, "")
    assert alert.delivered_at is not None


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(bench: Bench, receiver: Receiver, status: int) -> None:
    """A redirect is a failure: an alert is only sent to the operator's URL."""
    receiver.answers[:] = [status]
    await bench.raise_test()
    await bench.deliver()
    [alert] = await bench.listed()
    assert alert.last_error.endswith("redirects are not followed")
    assert (len(receiver.received), receiver.get_requests) == (1, 0)


async def test_gone_is_final(bench: Bench, receiver: Receiver) -> None:
    """After a 410 the alert is not sent again."""
    receiver.answers[:] = [410]
    await bench.raise_test()
    await bench.deliver()
    bench.clock.at += DAY_US // 2
    await bench.deliver()
    assert len(receiver.received) == 1


async def test_retries_end_after_a_day(bench: Bench, receiver: Receiver) -> None:
    """The pauses grow, and retries end a day after the alert was raised; it stays listed with its error."""
    receiver.answers[:] = [503] * 100
    await bench.raise_test()
    end_at = bench.clock.at + 2 * DAY_US
    while bench.clock.at < end_at:
        await bench.deliver()
        bench.clock.at += 10 * MINUTE_US
    [alert] = await bench.listed()
    assert alert.attempts == len(receiver.received)
    assert 10 <= alert.attempts <= 16
    assert alert.last_error == "503 Service Unavailable"


async def test_a_receiver_that_never_answers(bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt ends at the timeout."""
    monkeypatch.setattr(delivery, "TIMEOUT_S", 0.3)
    receiver.never_answer = threading.Event()
    await bench.raise_test()
    async with asyncio.timeout(20):
        await bench.deliver()
    [alert] = await bench.listed()
    assert alert.last_error == "no response within 0.3 s"


async def test_without_a_webhook_alerts_are_kept(database_url: str) -> None:
    """Without a webhook alerts are raised and listed but not sent, and a test alert fails with a message."""
    async with a_bench(database_url, None) as bench:
        await bench.raise_test()
        await bench.deliver()
        [alert] = await bench.listed()
        assert (alert.attempts, alert.delivered_at) == (0, None)


async def test_a_refused_connection_is_recorded(database_url: str) -> None:
    """A refused connection is recorded as an error, without the address."""
    hook = a_webhook("http://127.0.0.1:9/url-token-7f3a")
    async with a_bench(database_url, hook) as bench:
        await bench.raise_test()
        await bench.deliver()
        [alert] = await bench.listed()
        assert alert.last_error == "no connection"


async def test_one_alert_per_absence_and_return(bench: Bench) -> None:
    """A vantage with 15 s heartbeats is absent once it is two minutes late: one alert, and one for its return, also
    across restarts.
    """
    await bench.alerting.check_absences()
    await bench.heard("ohio-1", 15 * SECOND_US)
    gone_at = bench.clock.at
    await bench.roll_calls(gone_at + 2 * MINUTE_US)
    assert await bench.listed() == ()
    await bench.roll_calls(gone_at + 6 * MINUTE_US)
    restarted = AlertService(database=bench.database, clock=bench.clock)
    for _ in range(20):
        bench.clock.at += 30 * SECOND_US
        await restarted.check_absences()
    [absent] = await bench.listed()
    assert (absent.kind, absent.subject) == ("vantage_absent", "ohio-1")
    assert absent.raised_at - gone_at < 4 * MINUTE_US
    await bench.heard("ohio-1", 15 * SECOND_US)
    await bench.alerting.check_absences()
    bench.clock.at += SECOND_US
    await bench.alerting.check_absences()
    assert [alert.kind for alert in await bench.listed()] == ["vantage_back", "vantage_absent"]


async def test_a_second_absence_is_another(bench: Bench) -> None:
    """A vantage that is absent again after its return gets another alert."""
    await bench.alerting.check_absences()
    for _ in range(2):
        await bench.heard("ohio-1", 15 * SECOND_US)
        await bench.roll_calls(bench.clock.at + 5 * MINUTE_US)
    kinds = [alert.kind for alert in await bench.listed()]
    assert kinds.count(AlertKind.VANTAGE_ABSENT) == 2


def test_a_collector_sends_a_test_alert(start_collector: StartCollector, receiver: Receiver, tmp_path: Path) -> None:
    """The test command reports the result, and neither secret nor address is in the collector's log or list."""
    file = tmp_path / "alert.secret"
    file.write_text(webhook_signature.format_secret(SECRET))
    collector = start_collector(more=["--alert-url", receiver.address, "--alert-secret-file", str(file), *KEEP_A_MONTH])
    done = run_command("alerts", "test", "--collector", collector.address)
    assert (done.returncode, done.stdout) == (0, "webhook accepted a test alert\n"), done.stderr
    receiver.answers[:] = [500]
    failed = run_command("alerts", "test", "--collector", collector.address)
    assert failed.returncode == 1
    assert "500 Internal Server Error" in failed.stderr
    assert receiver.kinds() == ["isochrone.test", "isochrone.test"]
    listed = collector.call.alerts(EVER)
    assert listed.webhook
    assert sorted(alert.delivered_at is not None for alert in listed.alerts) == [False, True]
    seen = collector.log() + repr(listed) + done.stdout + failed.stdout + failed.stderr
    assert not {
        part for part in (webhook_signature.format_secret(SECRET), SECRET.decode(), "url-token-7f3a") if part in seen
    }
    assert "receiver.set" in collector.log()


def test_a_collector_without_a_webhook(start_collector: StartCollector) -> None:
    """A test alert without a webhook fails with a hint, and the list mentions the missing webhook."""
    collector = start_collector(more=KEEP_A_MONTH)
    with pytest.raises(grpc.RpcError) as refused:
        collector.call.test_alert()
    assert "--alert-url" in str(refused.value)
    assert collector.call.alerts(EVER).webhook is False


async def test_a_job_that_keeps_failing_is_told_once(bench: Bench, database_url: str) -> None:
    """A job that keeps failing raises one alert and fails the doctor's check, until it works again."""
    health = JobHealth()
    check = JobHealthCheck(
        database=bench.database, health=lambda: {"rollup": health}, alerting=bench.alerting, clock=bench.clock
    )
    for _ in range(4):
        health.begin(bench.clock.at)
        health.fail(bench.clock.at, "a SELECT without columns")
        bench.clock.at += 2 * MINUTE_US
        await check.run()
    async with bench.database.connection() as connection:
        found = await alerts.of_window(connection, Window(from_at=0, until_at=bench.clock.at + 1))
    assert [(one.kind, one.subject) for one in found] == [(AlertKind.JOB_FAILING, "rollup")]
    assert "a SELECT without columns" in found[0].sentence
    assert set(diagnostics.facts(database_url).failing_jobs) == {"rollup"}
    health.succeed(bench.clock.at)
    await check.run()
    assert diagnostics.facts(database_url).failing_jobs == {}
