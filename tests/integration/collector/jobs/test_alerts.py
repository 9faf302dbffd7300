"""Alerts: raised once, signed, grouped, silenced, repeated, kept over restarts, and delivered in order."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from fixtures.collector import KEEP_A_MONTH, Collector, StartCollector, run_command
from fixtures.inprocess_collector import Clock
from fixtures.postgres import opened, rows
from fixtures.webhook import SECRET, Receiver
from isochrone_collector import webhook_signature
from isochrone_collector.alerting import delivery
from isochrone_collector.alerting.delivery import ReceiverDelivery
from isochrone_collector.alerting.service import AlertService, AlertState, SilenceService
from isochrone_collector.alerts.message import AlertMessage, of_low_disk, of_test
from isochrone_collector.clock import now_at
from isochrone_collector.errors import BadRequest, Conflict
from isochrone_collector.jobs.registry import JobHealth, JobHealthCheck, Notifications
from isochrone_collector.plans.service import Plans
from isochrone_collector.receivers import Format
from isochrone_collector.receivers import Receiver as ReceiverSettings
from isochrone_collector.store import alerts, audit, diagnostics, partitions, vantages
from isochrone_collector.store.job_state import Channel
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.vantages import HeartbeatReport
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import Alert, AlertKind
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Heartbeat, Vantage
from isochrone_wire.operations import Silence
from testdata import alert_messages
from testdata.alert_messages import recovers
from testdata.waiting import eventually

EVER = Window(from_at=now_at() - DAY_US, until_at=now_at() + 30 * DAY_US)
KEY = "0123456789abcdef0123456789abcdef"


@dataclass(slots=True)
class Bench:
    database: Database
    alerting: AlertService
    silencing: SilenceService
    clock: Clock

    async def fails(self, target: str, **how: Any) -> AlertMessage:
        """Begin an incident now, or escalate it."""
        message = alert_messages.fails(target, at=self.clock.at, **how)
        await self.raised(message)
        return message

    async def recovers(self, target: str) -> None:
        await self.raised(recovers(target, at=self.clock.at))

    async def raised(self, message: AlertMessage) -> None:
        async with self.database.connection() as connection:
            await self.alerting.raise_alert(connection, message)

    async def silence(self, target: str, us: int) -> Silence:
        nothing: dict[str, tuple[str, ...]] = {"providers": (), "regions": (), "kinds": ()}
        return await self.silencing.add(targets=(target,), **nothing, duration_us=us, reason="work")

    async def passes(self, us: int = 11 * SECOND_US) -> None:
        self.clock.at += us
        for one in self.alerting.receivers:
            await one.run()

    async def raise_test(self) -> None:
        """Raise an alert that is due at once."""
        await self.raised(of_test(raised_at=self.clock.at))

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

    async def listed(self) -> tuple[Alert, ...]:
        window = Window(from_at=self.clock.at - 300 * DAY_US, until_at=self.clock.at + DAY_US)
        async with self.database.connection() as connection:
            return await alerts.of_window(connection, window)


@asynccontextmanager
async def a_bench(database_url: str, *chosen: ReceiverSettings) -> AsyncIterator[Bench]:
    clock = Clock(now_at())
    async with opened(database_url) as database, AsyncExitStack() as stack:
        receivers = [ReceiverDelivery(one, database=database, clock=clock) for one in chosen]
        for one in receivers:
            stack.push_async_callback(one.close)
        alerting = AlertService(database=database, receivers=receivers, clock=clock)
        yield Bench(database, alerting, SilenceService(database=database, alerting=alerting, clock=clock), clock)


def pagerduty(receiver: Receiver, **how: Any) -> ReceiverSettings:
    return ReceiverSettings(
        **{"name": "oncall", "format": Format.PAGERDUTY, "url": receiver.address, "key": KEY, **how}
    )


def webhook(receiver: Receiver, **how: Any) -> ReceiverSettings:
    settings = {"name": "webhook", "format": Format.STANDARD, "url": receiver.address, "secret": SECRET, "group_us": 0}
    return ReceiverSettings(**{**settings, **how})


def events(receiver: Receiver) -> list[tuple[str, str]]:
    """Return the actions and keys that PagerDuty got."""
    return [(one.body["event_action"], one.body["dedup_key"]) for one in receiver.received]


@pytest.fixture
async def oncall(database_url: str, receiver: Receiver) -> AsyncIterator[Bench]:
    """A bench whose receiver is PagerDuty, which repeats every four hours."""
    async with a_bench(database_url, pagerduty(receiver, repeat_us=4 * HOUR_US)) as made:
        yield made


@pytest.fixture
async def bench(database_url: str, receiver: Receiver) -> AsyncIterator[Bench]:
    async with a_bench(database_url, webhook(receiver)) as made:
        yield made


async def test_a_provider_that_fails_is_one_page_and_resolved_once(oncall: Bench, receiver: Receiver) -> None:
    """Fifteen targets are one trigger; the group is resolved when the last of them is answered again."""
    first = await oncall.fails("openai/0")
    for n in range(1, 15):
        oncall.clock.at += SECOND_US // 10
        await oncall.fails(f"openai/{n}")
    await oncall.passes(5 * SECOND_US)
    assert events(receiver) == []
    await oncall.passes()
    key = first.details["incident"]
    assert events(receiver) == [("trigger", key)]
    assert receiver.received[0].body["payload"]["summary"] == "15 targets of openai fail"
    for n in range(14):
        await oncall.recovers(f"openai/{n}")
    await oncall.passes()
    await oncall.recovers("openai/14")
    await oncall.passes()
    assert events(receiver) == [("trigger", key), ("trigger", key), ("resolve", key)]
    assert all(one.delivered_at for one in await oncall.listed())


async def test_order_within_a_problem_survives_failures(database_url: str, receiver: Receiver) -> None:
    """While a beginning is refused its end waits, and other problems do not."""
    async with a_bench(database_url, webhook(receiver)) as bench:
        receiver.answers[:] = [500]
        await bench.fails("openai/a")
        await bench.passes(0)
        await bench.recovers("openai/a")
        await bench.fails("openai/b")
        await bench.passes(SECOND_US)
        assert [(one.body["data"]["subject"]) for one in receiver.received] == ["openai/a", "openai/b"]
        await bench.passes(6 * SECOND_US)
        await bench.passes(SECOND_US)
    kinds = [one.body["type"] for one in receiver.received if one.body["data"]["subject"] == "openai/a"]
    assert kinds == ["isochrone.target_failing", "isochrone.target_failing", "isochrone.target_recovered"]


async def test_attempts_end(oncall: Bench, receiver: Receiver, database_url: str) -> None:
    """A beginning and its end are given up after a day; the end of a known problem after a week."""

    async def state_after(us: int) -> list[str]:
        for _ in range(us // (6 * HOUR_US)):
            await oncall.passes(6 * HOUR_US)
        return [one.deliveries[0].state.value for one in await oncall.listed()]

    await oncall.fails("openai/known")
    await oncall.passes()
    receiver.answers[:] = [503] * 1000
    await oncall.recovers("openai/known")
    await oncall.fails("moonshot/unknown")
    await oncall.recovers("moonshot/unknown")
    assert sorted(await state_after(18 * HOUR_US)) == ["delivered", "pending", "pending", "pending"]
    assert sorted(await state_after(3 * DAY_US)) == ["delivered", "given_up", "given_up", "pending"]
    assert rows(database_url, "SELECT count(*) FROM alert_delivery WHERE is_open") == [(1,)]
    assert sorted(await state_after(5 * DAY_US)) == ["delivered", "given_up", "given_up", "given_up"]
    assert rows(database_url, "SELECT count(*) FROM alert_delivery WHERE is_open") == [(0,)]


async def test_the_end_of_a_known_problem_arrives_after_three_days(oncall: Bench, receiver: Receiver) -> None:
    """A receiver that is away for three days still gets the end."""
    await oncall.fails("openai/a")
    await oncall.passes()
    await oncall.recovers("openai/a")
    receiver.answers[:] = [503] * 1000
    for _ in range(72):
        await oncall.passes(HOUR_US)
    receiver.answers.clear()
    for _ in range(5):
        await oncall.passes(HOUR_US)
    assert events(receiver)[-1][0] == "resolve"
    assert (await oncall.listed())[0].delivered_at


async def test_pauses_between_attempts_grow(database_url: str, receiver: Receiver) -> None:
    """Few attempts are made until an alert is given up; it stays listed with its error."""
    async with a_bench(database_url, webhook(receiver)) as bench:
        receiver.answers[:] = [503] * 100
        await bench.raise_test()
        for _ in range(2 * DAY_US // (10 * MINUTE_US)):
            await bench.passes(10 * MINUTE_US)
        [alert] = await bench.listed()
    assert alert.attempts == len(receiver.received)
    assert 10 <= alert.attempts <= 16
    assert alert.last_error == "503 Service Unavailable"


async def test_a_silenced_problem_is_announced_when_the_silence_ends(oncall: Bench, receiver: Receiver) -> None:
    """What lasts on is sent at the end of the silence, what is over is not; both are listed as silenced meanwhile."""
    await oncall.silencing.add(
        targets=(), providers=("openai",), regions=(), kinds=(), duration_us=48 * HOUR_US, reason="maintenance"
    )
    await oncall.fails("openai/a")
    await oncall.fails("openai/b")
    await oncall.fails("moonshot/c")
    await oncall.passes()
    assert [one.body["payload"]["source"] for one in receiver.received] == ["moonshot"]
    assert {one.subject: one.deliveries[0].state.value for one in await oncall.listed()} == {
        "openai/a": "silenced",
        "openai/b": "silenced",
        "moonshot/c": "delivered",
    }
    await oncall.recovers("openai/b")
    await oncall.passes(47 * HOUR_US)
    await oncall.passes(HOUR_US)
    assert [one.body["payload"]["component"] for one in receiver.received[1:]][-1] == "openai/a"
    assert "openai/b" not in str(receiver.received)


async def test_a_silence_is_ended_by_hand_and_recorded(oncall: Bench, receiver: Receiver) -> None:
    """The undo announces what was held; who did what is in the audit trail, and a second undo is refused."""
    with audit.acting(audit.Actor(principal="ann", address="")):
        made = await oncall.silencing.add(
            targets=("openai/*",), providers=(), regions=(), kinds=(), duration_us=DAY_US, reason="work"
        )
        await oncall.fails("openai/a")
        await oncall.passes()
        assert receiver.received == []
        ended = await oncall.silencing.end(made.id)
        with pytest.raises(Conflict):
            await oncall.silencing.end(made.id)
        with pytest.raises(BadRequest):
            await oncall.silencing.end(made.id ^ 1)
    await oncall.passes()
    assert [action for action, _ in events(receiver)] == ["trigger"]
    assert (made.created_by, ended.ended_by, made.reason) == ("ann", "ann", "work")
    found = (await audit.trail(oncall.database, since_at=0)).entries
    assert {(one.principal, one.action) for one in found} == {("ann", "alert.silence"), ("ann", "alert.unsilence")}
    assert (await oncall.silencing.listed(past=False)).silences == ()
    assert (await oncall.silencing.listed(past=True)).silences == (ended,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"targets": ()},
        {"kinds": ("dirft",)},
        {"duration_us": 0},
        {"duration_us": 400 * DAY_US},
        {"reason": " "},
        {"targets": ("x" * 300,)},
    ],
)
async def test_a_silence_that_is_refused(oncall: Bench, wrong: dict[str, Any]) -> None:
    """A silence needs a pattern, a kind that exists, a duration and a reason."""
    right = {"targets": ("a",), "providers": (), "regions": (), "kinds": (), "duration_us": HOUR_US, "reason": "r"}
    with pytest.raises(BadRequest):
        await oncall.silencing.add(**{**right, **wrong})


def open_incident(database_url: str, message: AlertMessage) -> None:
    rows(
        database_url,
        "INSERT INTO incident (id, kind, target_id, subject, failing, regions, scope, never_worked,"
        " first_failed_at, last_failed_at, opened_at)"
        " VALUES (%s, 'target_failing', %s, %s, '{}', '{}', 'one', false, now(), now(), now())",
        (int(message.details["incident"].removeprefix("incident_"), 16), message.id, message.subject),
    )


async def test_open_incidents_repeat_unless_acknowledged(oncall: Bench, receiver: Receiver, database_url: str) -> None:
    """Every four hours, until it is acknowledged; again when that has expired; never after its end."""
    begun = await oncall.fails("openai/a")
    open_incident(database_url, begun)
    await oncall.passes()
    await oncall.passes(3 * HOUR_US)
    assert len(events(receiver)) == 1
    await oncall.passes(HOUR_US)
    await oncall.passes()
    assert receiver.received[1].body["payload"]["summary"].startswith("still: openai/a")
    await oncall.silencing.acknowledge(begun.details["incident"], duration_us=24 * HOUR_US, reason="on it")
    for _ in range(5):
        await oncall.passes(4 * HOUR_US)
    assert [action for action, _ in events(receiver)] == ["trigger", "trigger", "acknowledge"]
    await oncall.passes(4 * HOUR_US)
    await oncall.passes()
    assert [action for action, _ in events(receiver)][3:] == ["trigger"]
    await oncall.recovers("openai/a")
    await oncall.passes()
    rows(database_url, "UPDATE incident SET recovered_at = now()")
    await oncall.passes(8 * HOUR_US)
    assert [action for action, _ in events(receiver)][4:] == ["resolve"]
    with pytest.raises(Conflict, match="is over"):
        await oncall.silencing.acknowledge(begun.details["incident"], duration_us=HOUR_US, reason="late")


@pytest.mark.parametrize("problem", ["", "x", "incident_1", "incident_00000000000000zz", "incident_0000000000000001"])
async def test_what_cannot_be_acknowledged(oncall: Bench, problem: str) -> None:
    """An id that is none, or that no alert has, is refused."""
    with pytest.raises(BadRequest):
        await oncall.silencing.acknowledge(problem, duration_us=HOUR_US, reason="r")


async def test_a_repetition_is_another_message(database_url: str, receiver: Receiver) -> None:
    """A webhook gets a repetition under another id, so that it is no duplicate; a silence leaves repetitions out."""
    async with a_bench(database_url, webhook(receiver, repeat_us=HOUR_US)) as bench:
        open_incident(database_url, await bench.fails("openai/a"))
        await bench.passes()
        silence = await bench.silence("openai/*", 2 * HOUR_US)
        for _ in range(2):
            await bench.passes(HOUR_US - SECOND_US)
        assert len(receiver.received) == 1
        await bench.silencing.end(silence.id)
        await bench.passes(HOUR_US)
    first, second = receiver.received
    assert second.message == f"{first.message}_1"
    assert second.body["data"]["repetition"] == 1


async def test_a_receiver_that_asks_to_wait(oncall: Bench, receiver: Receiver) -> None:
    """After Retry-After nothing is sent to that receiver for the time, not even something new."""
    receiver.answers[:], receiver.retry_after = [429], "120"
    await oncall.fails("openai/a")
    await oncall.passes()
    await oncall.fails("moonshot/b")
    await oncall.passes(60 * SECOND_US)
    assert len(receiver.received) == 1
    # Another leader knows of the pause by the next attempt of what was refused.
    delivery = oncall.alerting.receivers[0]
    leader = ReceiverDelivery(delivery.receiver, database=oncall.database, clock=oncall.clock)
    await leader.run()
    await leader.close()
    assert "openai" not in {one.body["payload"]["source"] for one in receiver.received[1:]}
    await oncall.passes(61 * SECOND_US)
    assert len(receiver.received) == 3


async def test_deliveries_are_counted(oncall: Bench, receiver: Receiver) -> None:
    """Alerts count as delivered, failed or given up; what waits or is silenced is not overdue."""
    settings = oncall.alerting.receivers[0].receiver
    known = AlertState(
        database=oncall.database,
        plans=Plans(database=oncall.database, clock=oncall.clock),
        clock=oncall.clock,
        receivers=[settings, replace(settings, name="new")],
    )
    results = oncall.alerting.receivers[0].results
    receiver.answers[:] = [503, 200, 400]
    await oncall.fails("openai/a")
    await oncall.passes(5 * SECOND_US)
    await known.run()
    assert known.overdue == {"oncall": 0, "new": 0}
    await oncall.passes()
    await known.run()
    assert known.overdue == {"oncall": 1, "new": 0}
    assert results == {"delivered": 0, "failed": 1, "given_up": 0}
    await oncall.passes()
    await oncall.fails("moonshot/b")
    await oncall.passes()
    assert results == {"delivered": 1, "failed": 2, "given_up": 1}
    await oncall.silence("zhipu/*", HOUR_US)
    await oncall.fails("zhipu/c")
    await oncall.passes()
    await known.run()
    assert known.overdue["oncall"] == 0
    receiver.answers[:] = [503]
    await oncall.passes(HOUR_US)
    await known.run()
    assert known.overdue["oncall"] == 1
    assert (await oncall.listed())[0].deliveries[0].state.value == "pending"


async def test_old_alerts_are_forgotten(oncall: Bench, receiver: Receiver, database_url: str) -> None:
    """Alerts go after retention, but for open incidents, pending deliveries, and the last one about each subject."""
    await oncall.fails("openai/open")
    await oncall.fails("openai/a")
    await oncall.passes()
    await oncall.recovers("openai/a")
    await oncall.passes()
    await oncall.silence("x/*", DAY_US)
    silent = AlertService(database=oncall.database, clock=oncall.clock)
    async with oncall.database.connection() as connection:
        for regions in (("us",), ("us", "eu")):
            message = alert_messages.fails("openai/still", at=oncall.clock.at, regions=regions)
            await silent.raise_alert(connection, message)
    open_incident(database_url, message)
    oncall.clock.at += 10 * DAY_US
    receiver.answers[:] = [503] * 9
    await oncall.fails("openai/lost")
    await oncall.recovers("openai/open")
    await oncall.recovers("openai/lost")
    await oncall.passes()
    kept = await oncall.silence("y/*", 300 * DAY_US)
    oncall.clock.at += 5 * DAY_US
    assert not await partitions.forget_alerts(oncall.database, oncall.clock.at - 16 * DAY_US)
    assert not await partitions.forget_ended(oncall.database, oncall.clock.at - 16 * DAY_US, what="silences")
    assert await partitions.forget_alerts(oncall.database, oncall.clock.at)
    assert not await partitions.forget_alerts(oncall.database, oncall.clock.at)
    assert await partitions.forget_ended(oncall.database, oncall.clock.at, what="silences")
    names = sorted((one.subject, one.kind.value) for one in await oncall.listed())
    assert names == [
        ("openai/a", "target_recovered"),
        ("openai/lost", "target_failing"),
        ("openai/lost", "target_recovered"),
        ("openai/open", "target_failing"),
        ("openai/open", "target_recovered"),
        *[("openai/still", "target_failing")] * 2,
    ]
    assert (await oncall.silencing.listed(past=True)).silences == (kept,)
    assert rows(database_url, "SELECT count(*) FROM alert_delivery") == [(5,)]


async def test_a_request_that_never_succeeds_is_given_up(oncall: Bench, receiver: Receiver) -> None:
    """PagerDuty answers 400 to an event that it will never accept; the rest of the problem goes on."""
    receiver.answers[:] = [400]
    await oncall.fails("openai/a")
    await oncall.passes()
    await oncall.passes(HOUR_US)
    assert len(receiver.received) == 1
    assert (await oncall.listed())[0].deliveries[0].state.value == "given_up"
    await oncall.recovers("openai/a")
    await oncall.passes()
    assert [action for action, _ in events(receiver)] == ["trigger", "resolve"]


async def test_kinds_are_those_of_problems(database_url: str, receiver: Receiver) -> None:
    """A receiver of failures gets their ends, and nothing else."""
    kinds = frozenset({alert_messages.fails("a").kind})
    async with a_bench(database_url, webhook(receiver, kinds=kinds)) as bench:
        await bench.raised(alert_messages.switches(at=bench.clock.at))
        await bench.fails("openai/a")
        await bench.passes()
        await bench.recovers("openai/a")
        await bench.passes()
    assert receiver.kinds() == ["isochrone.target_failing", "isochrone.target_recovered"]


async def test_a_test_alert_leaves_nothing_open(oncall: Bench, receiver: Receiver) -> None:
    """PagerDuty gets a trigger and its resolution, and no secret is in the result."""
    result = await oncall.alerting.test("oncall")
    assert [action for action, _ in events(receiver)] == ["trigger", "resolve"]
    assert result.deliveries[0].receiver == "oncall"
    assert KEY not in repr(result)


def test_two_receivers_of_a_collector(
    start_collector: StartCollector,
    receiver: Receiver,
    other_receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A receiver that never answers delays no other; after SIGKILL it gets what it missed, with the same ids."""
    file, secret = tmp_path / "receivers.yaml", webhook_signature.format_secret(SECRET)
    file.write_text(
        "receivers:\n"
        f"  - {{name: slow, format: pagerduty, url: '{receiver.address}', key: {{env: PD_KEY}}, group: 0s}}\n"
        f"  - {{name: quick, format: standard, url: '{other_receiver.address}', secret: {{file: s}}, group: 0s}}\n"
    )
    (tmp_path / "s").write_text(secret)
    (tmp_path / "s").chmod(0o600)
    more = ["--alert-receivers", str(file), *KEEP_A_MONTH]
    monkeypatch.setenv("PD_KEY", KEY)
    collector = start_collector(more=more)
    receiver.never_answer = threading.Event()
    began = time.monotonic()
    raise_in(collector.database_url, alert_messages.fails("openai/a", at=now_at()))
    eventually(20, lambda: len(receiver.received) == 1 and len(other_receiver.received) == 1, "both are sent")
    raise_in(collector.database_url, recovers("openai/a", at=now_at()))
    eventually(20, lambda: len(other_receiver.received) == 2, "the quick one gets the end")
    # A collector that is killed before it records a delivery repeats it.
    eventually(20, lambda: delivered(collector, "quick") == 2, "both deliveries are recorded")
    assert time.monotonic() - began < 15
    assert len(receiver.received) <= 2
    collector.kill()
    receiver.never_answer.set()
    receiver.never_answer = None
    again = start_collector(more=more, database_url=collector.database_url, data_dir=collector.data_dir)
    eventually(60, lambda: receiver.received[-1].body["event_action"] == "resolve", "the slow one gets the end")
    assert {one.body["dedup_key"] for one in receiver.received} == {receiver.received[0].body["dedup_key"]}
    assert [one.body["event_action"] for one in receiver.received].count("resolve") == 1
    assert other_receiver.kinds() == ["isochrone.target_failing", "isochrone.target_recovered"]
    done = run_command("alerts", "test", "quick", "--collector", again.address)
    assert (done.returncode, done.stdout) == (0, "quick accepted a test alert\n"), done.stderr
    wrong = run_command("alerts", "test", "quikc", "--collector", again.address)
    assert "quick" in wrong.stderr
    made = run_command("alerts", "silence", "--provider", "openai", "--reason", "work", "--collector", again.address)
    assert made.returncode == 0, made.stderr
    listed = run_command("alerts", "silences", "--collector", again.address)
    assert "provider=openai" in listed.stdout
    name = made.stdout.split()[0]
    ended = run_command("alerts", "unsilence", name, "--collector", again.address)
    assert ended.stdout == f"{name} has ended\n"
    eventually(20, lambda: again.scrape().get('isochrone_alerts_overdue{receiver="slow"}') == 0, "nothing is overdue")
    assert delivered(again, "quick") == 1
    seen = collector.log() + again.log() + done.stdout + made.stdout
    assert not {part for part in (KEY, secret, "url-token-7f3a") if part in seen}


def delivered(collector: Collector, receiver: str) -> float:
    return collector.scrape()[f'isochrone_alert_deliveries_total{{receiver="{receiver}",result="delivered"}}']


def raise_in(database_url: str, message: AlertMessage) -> None:
    async def work() -> None:
        async with opened(database_url) as database, database.transaction() as connection:
            await alerts.record(connection, message)
            await alerts.schedule(connection, message, ["slow", "quick"], next_attempt_at=message.raised_at)

    asyncio.run(work())


def test_pauses_grow_to_an_end() -> None:
    """The pauses between attempts grow, and the attempts end after the given time."""
    pauses = [delivery.next_attempt_at(attempts=n, now_at=0, first_at=0, give_up_us=7 * DAY_US) for n in range(1, 12)]
    assert pauses[:2] == [5 * SECOND_US, 30 * SECOND_US]
    assert pauses[-1] == pauses[-2] == 4 * HOUR_US
    assert delivery.next_attempt_at(attempts=9, now_at=DAY_US, first_at=0) is None


async def test_a_new_alert_wakes_the_delivery(bench: Bench, receiver: Receiver) -> None:
    """An alert that any collector raises is sent at once when its transaction has ended, and not before."""
    notifications = Notifications(database=bench.database)
    notifications.handle(Channel.ALERTS, bench.alerting.wake)
    woken, other = bench.alerting.receivers[0].woken, AlertService(database=bench.database, clock=bench.clock)
    task = asyncio.create_task(notifications.run())
    try:
        await asyncio.wait_for(woken.wait(), 20)  # connected
        woken.clear()
        async with bench.database.transaction() as connection:
            await other.raise_alert(connection, of_low_disk("1 GB", raised_at=bench.clock.at))
            await asyncio.sleep(0.1)
            assert not woken.is_set()
        await asyncio.wait_for(woken.wait(), 20)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_an_alert_is_delivered_once_and_signed(bench: Bench, receiver: Receiver) -> None:
    """The receiver gets an alert once, with a valid signature, even if it is raised twice."""
    await bench.raise_test()
    await bench.raise_test()
    await bench.passes(0)
    await bench.passes(0)
    [told] = receiver.received
    assert told.body["type"] == "isochrone.test"
    assert told.body["data"]["id"] == told.message
    [alert] = await bench.listed()
    assert (alert.attempts, alert.delivered_at, alert.last_error) == (1, bench.clock.at, "")


async def test_an_alert_of_a_later_version_is_delivered(bench: Bench, receiver: Receiver) -> None:
    """A kind that this version does not know is delivered as it is stored, and listed."""
    await bench.raise_test()
    later = replace(of_test(raised_at=bench.clock.at + 1), kind=AlertKind("quota_moved"))
    async with bench.database.connection() as connection:
        await bench.alerting.raise_alert(connection, later)
    bench.clock.at += SECOND_US
    await bench.passes(0)
    assert sorted(receiver.kinds()) == ["isochrone.quota_moved", "isochrone.test"]
    assert sorted(alert.kind for alert in await bench.listed()) == ["quota_moved", "test"]


async def test_a_refused_alert_is_sent_again(bench: Bench, receiver: Receiver) -> None:
    """After a 500 the alert is sent again with the same id once the pause is over, and success clears the error."""
    receiver.answers[:] = [500]
    await bench.raise_test()
    await bench.passes(0)
    await bench.passes(0)
    assert len(receiver.received) == 1
    [alert] = await bench.listed()
    assert (alert.attempts, alert.delivered_at, alert.last_error) == (1, None, "500 Internal Server Error")
    bench.clock.at += 6 * SECOND_US
    await bench.passes(0)
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
    await bench.passes(0)
    [alert] = await bench.listed()
    assert alert.last_error.endswith("redirects are not followed")
    assert (len(receiver.received), receiver.get_requests) == (1, 0)


async def test_gone_is_final(bench: Bench, receiver: Receiver) -> None:
    """After a 410 the alert is not sent again."""
    receiver.answers[:] = [410]
    await bench.raise_test()
    await bench.passes(0)
    bench.clock.at += DAY_US // 2
    await bench.passes(0)
    assert len(receiver.received) == 1


async def test_a_receiver_that_never_answers(bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt ends at the timeout."""
    monkeypatch.setattr(delivery, "TIMEOUT_S", 0.3)
    receiver.never_answer = threading.Event()
    await bench.raise_test()
    async with asyncio.timeout(20):
        await bench.passes(0)
    [alert] = await bench.listed()
    assert alert.last_error == "no response within 0.3 s"


async def test_without_a_webhook_alerts_are_kept(database_url: str) -> None:
    """Without a webhook alerts are raised and listed but not sent, and a test alert fails with a message."""
    async with a_bench(database_url) as bench:
        await bench.raise_test()
        await bench.passes(0)
        [alert] = await bench.listed()
        assert (alert.attempts, alert.delivered_at) == (0, None)


async def test_a_refused_connection_is_recorded(database_url: str) -> None:
    """A refused connection is recorded as an error, without the address."""
    settings = ReceiverSettings(
        name="webhook", format=Format.STANDARD, secret=SECRET, group_us=0, url="http://127.0.0.1:9/url-token-7f3a"
    )
    async with a_bench(database_url, settings) as bench:
        await bench.raise_test()
        await bench.passes(0)
        [alert] = await bench.listed()
        assert alert.last_error == "no connection"


async def test_one_alert_per_absence_and_return(bench: Bench) -> None:
    """A vantage is absent once it is two minutes late: one alert, and one for its return, also across restarts."""
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


async def test_a_job_fails_since_it_last_worked(bench: Bench, database_url: str) -> None:
    """A job that works and fails again between two checks does not keep failing, and later fails since then only."""
    health = JobHealth()
    check = JobHealthCheck(
        database=bench.database, health=lambda: {"rollup": health}, alerting=bench.alerting, clock=bench.clock
    )

    async def fail_for(minutes: int) -> None:
        for _ in range(minutes):
            health.begin(bench.clock.at)
            health.fail(bench.clock.at, "no room")
            await check.run()
            bench.clock.at += MINUTE_US

    await fail_for(9)
    health.succeed(bench.clock.at)
    again_at = bench.clock.at
    await fail_for(1)
    assert diagnostics.facts(database_url).failing_jobs == {}
    await fail_for(8)
    assert diagnostics.facts(database_url).failing_jobs == {"rollup": again_at}
