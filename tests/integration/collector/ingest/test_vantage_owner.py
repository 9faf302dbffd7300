"""One agent delivers for a vantage: restarts take over at once, and clones are refused and reported."""

import asyncio
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import randrange
from typing import Any

import pytest
from structlog.testing import capture_logs

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_agent.spool.spool import Spool
from isochrone_collector.errors import Conflict, RequestError, ResourceExhausted
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.ingest.vantage_owner import DUPLICATE_US
from isochrone_collector.store import alerts, batches, vantages
from isochrone_collector.store.vantages import LEASE_US
from isochrone_wire import codec
from isochrone_wire.answers import Window
from isochrone_wire.durations import MAX_INSTANT_AT
from isochrone_wire.model import DAY_US, SECOND_US, Heartbeat, Sample, Vantage
from isochrone_wire.v1 import sample_pb2

US = Vantage(name="us-1", region="us")
ALREADY_STORED = "rounds.already_stored"


class Agent:
    def __init__(self, local: InProcessCollector, spool: Path) -> None:
        self._local = local
        self.path = spool
        self._begin()

    def _begin(self) -> None:
        spool = Spool(self.path)
        self.epoch, self.epoch_history = spool.epoch, spool.epoch_history
        spool.close()

    def restart(self) -> None:
        self._begin()

    def clone(self, path: Path) -> "Agent":
        shutil.copyfile(self.path, path)
        return Agent(self._local, path)

    async def push(self) -> int:
        sample = self._local.sample(self._local.clock.at)
        more: dict[str, Any] = {"epoch": self.epoch, "epoch_history": self.epoch_history}
        more["heartbeat"] = Heartbeat(epoch=self.epoch)
        return (await self._local.push(US, [sample], **more)).stored

    async def refusal(self) -> type[RequestError]:
        with pytest.raises(RequestError) as refused:
            await self.push()
        return type(refused.value)


async def report_of(local: InProcessCollector) -> tuple[int | None, list[str]]:
    """When the duplicate was refused last, and the kinds of all alerts."""
    await local.alerting.check_duplicate_agents()
    async with local.database.connection() as connection:
        (state,) = await vantages.states(connection, now_at=local.clock.at)
        raised = await alerts.of_window(connection, Window(from_at=DAY_AT, until_at=DAY_AT + DAY_US))
    return state.duplicate_at, [alert.kind.value for alert in raised]


async def test_a_restart_takes_over_at_once(local: InProcessCollector, tmp_path: Path) -> None:
    """Also after starts that the collector never heard of, and nothing is reported."""
    await local.begin(DAY_AT)
    agent = Agent(local, tmp_path / "a")
    for starts in (0, 1, 2, 10):
        for _ in range(starts):
            agent.restart()
        local.clock.at += SECOND_US
        assert await agent.push() == 1
    assert await report_of(local) == (None, [])


async def test_the_newest_start_delivers_and_the_other_is_refused(local: InProcessCollector, tmp_path: Path) -> None:
    """From the first push of the clone on, each round is stored from one of the two; the other one is reported after
    45 s, and takes over when the first has ended.
    """
    await local.begin(DAY_AT)
    original = Agent(local, tmp_path / "a")
    assert await original.push() == 1
    clone = original.clone(tmp_path / "b")
    began_at = local.clock.at
    refusals = []
    while local.clock.at <= began_at + DUPLICATE_US + SECOND_US:
        local.clock.at += 5 * SECOND_US
        assert await clone.push() == 1
        refusals.append(await original.refusal())
    assert (refusals[0], refusals[-1]) == (ResourceExhausted, Conflict)
    original.restart()
    assert await original.refusal() is ResourceExhausted
    assert await clone.push() == 1
    async with local.database.connection() as connection:
        cursor = await connection.execute("SELECT count(*), count(DISTINCT round_at) FROM sample")
        assert await cursor.fetchone() == (len(refusals) + 2, len(refusals) + 1)
    duplicate_at, kinds = await report_of(local)
    assert (duplicate_at is None, kinds) == (True, []), "the restart of the duplicate is another agent"
    for _ in range(10):
        local.clock.at += 5 * SECOND_US
        assert await clone.push() == 1
        await original.refusal()
    assert await report_of(local) == (local.clock.at, ["duplicate_agent"])
    local.clock.at += LEASE_US + SECOND_US
    assert await original.push() == 1
    assert await clone.refusal() is ResourceExhausted


async def test_a_new_spool_waits_for_the_old_agent_to_fall_silent(local: InProcessCollector, tmp_path: Path) -> None:
    """A replaced machine, or a snapshot older than the newest start, delivers 30 s after the other's last push."""
    await local.begin(DAY_AT)
    old = Agent(local, tmp_path / "a")
    snapshot = shutil.copyfile(tmp_path / "a", tmp_path / "b")
    old.restart()
    assert await old.push() == 1
    for replacement in (Agent(local, Path(snapshot)), Agent(local, tmp_path / "c")):
        local.clock.at += SECOND_US
        assert await replacement.refusal() is ResourceExhausted
        local.clock.at += LEASE_US
        assert await replacement.push() == 1
    assert await report_of(local) == (None, [])


async def test_an_agent_without_a_history_always_delivers(local: InProcessCollector) -> None:
    """Without a history of epochs nothing is known about restarts."""
    await local.begin(DAY_AT)
    for epoch in (1, 2, 1):
        receipt = await local.push(US, [local.sample(DAY_AT)], epoch=epoch, heartbeat=Heartbeat(epoch=epoch))
        assert receipt.stored == 1


async def another(local: InProcessCollector) -> InProcessCollector:
    await local.begin(DAY_AT)
    other = InProcessCollector(local.database)
    await other.turn_to(DAY_AT)
    await other.plans.refresh()
    return other


async def test_another_collector_notices_the_takeover(local: InProcessCollector, tmp_path: Path) -> None:
    """A collector that has not heard the clone stores nothing of the original: the database decides."""
    other = await another(local)
    original = Agent(other, tmp_path / "a")
    assert await original.push() == 1
    clone = original.clone(tmp_path / "b")
    clone._local = local
    assert await clone.push() == 1
    assert await original.refusal() is ResourceExhausted
    assert await original.refusal() is ResourceExhausted
    assert await clone.push() == 1
    assert await stored(local) == ([DAY_AT], ["already_stored"] * 2)


async def stored(local: InProcessCollector) -> tuple[list[int], list[str]]:
    """The rounds of all samples, in order, and the reasons of those that were set aside."""
    async with local.database.connection() as connection:
        rounds = await connection.execute("SELECT extract(epoch FROM round_at)::bigint FROM sample ORDER BY round_at")
        reasons = await connection.execute("SELECT reason FROM sample_late")
        return [row[0] * SECOND_US for row in await rounds.fetchall()], [row[0] for row in await reasons.fetchall()]


class Machine:
    """A machine with a running agent: it records samples in its spool, and delivers them."""

    def __init__(self, local: InProcessCollector, path: Path) -> None:
        self.local, self.path = local, path
        self.spool = Spool(path)

    def probe(self, *rounds: int, **more: Any) -> None:
        """Record a sample of each round, in seconds since the beginning of the day, sent a moment later."""
        for second in rounds:
            at = DAY_AT + second * SECOND_US
            self.spool.record(self.local.sample(at, **({"dispatched_at": at + randrange(100_000)} | more)))

    async def deliver(self) -> int:
        count = 0
        while batch := self.spool.lease():
            samples = [codec.decode(Sample, sample_pb2.Sample.FromString(body)) for body in batch.bodies]
            heartbeat = Heartbeat(epoch=self.spool.epoch)
            more: dict[str, Any] = {"epoch_history": self.spool.epoch_history, "heartbeat": heartbeat}
            try:
                receipt = await self.local.push(US, samples, epoch=batch.epoch, seq=batch.seq, **more)
            except RequestError:
                self.spool.release(batch)
                raise
            self.spool.acknowledge(batch)
            count += receipt.stored + receipt.duplicate
        return count

    def snapshot(self, path: Path) -> Path:
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)
        return path

    def reboot(self) -> None:
        self.spool.close()
        self.spool = Spool(self.path)


def seconds(*found: int) -> list[int]:
    return [DAY_AT + second * SECOND_US for second in found]


async def test_the_backlog_of_a_refused_clone_doubles_no_round(local: InProcessCollector, tmp_path: Path) -> None:
    """A clone delivers its backlog when the other is silent: stored rounds are set aside, and nothing is lost."""
    await local.begin(DAY_AT)
    original = Machine(local, tmp_path / "a")
    original.probe(0)
    assert await original.deliver() == 1
    clone = Machine(local, original.snapshot(tmp_path / "b"))
    for second in (10, 20, 30):
        local.clock.at = DAY_AT + second * SECOND_US
        original.probe(second, second + 5)
        clone.probe(second)
        assert await clone.deliver() == 1
        with pytest.raises(ResourceExhausted):
            await original.deliver()
    local.clock.at += LEASE_US + SECOND_US
    original.probe(61)
    assert await original.deliver() == 7
    assert await stored(local) == (seconds(0, 10, 15, 20, 25, 30, 35, 61), ["already_stored"] * 3)
    original.reboot()
    original.probe(62)
    assert await original.deliver() == 1
    assert await stored(local) == (seconds(0, 10, 15, 20, 25, 30, 35, 61, 62), ["already_stored"] * 3)


async def test_a_restored_snapshot_seals_no_sample_twice(local: InProcessCollector, tmp_path: Path) -> None:
    """What was delivered since the snapshot is sealed again under another epoch of its history, and set aside."""
    await local.begin(DAY_AT)
    before = Machine(local, tmp_path / "a")
    before.probe(1, 2)
    assert await before.deliver() == 2
    before.probe(3, 4, 4, 4)
    snapshot = before.snapshot(tmp_path / "b")
    assert await before.deliver() == 4
    restored = Machine(local, snapshot)
    restored.probe(5)
    with capture_logs() as events:
        assert await restored.deliver() == 5
    assert await stored(local) == (seconds(1, 2, 3, 4, 4, 4, 5), ["already_stored"] * 4)
    assert [event["samples"] for event in events if event["event"] == ALREADY_STORED] == [4]


async def test_a_repeated_batch_is_not_set_aside(local: InProcessCollector, tmp_path: Path) -> None:
    """An agent that was killed before the reply repeats the batch after its restart: a repetition, and no event."""
    await local.begin(DAY_AT)
    agent = Machine(local, tmp_path / "a")
    agent.probe(1, 2)
    sealed = agent.spool.lease()
    assert sealed is not None
    before = agent.snapshot(tmp_path / "b")
    agent.spool.release(sealed)
    assert await agent.deliver() == 2
    restarted = Machine(local, before)
    with capture_logs() as events:
        assert await restarted.deliver() == 2
    assert await stored(local) == (seconds(1, 2), [])
    assert ALREADY_STORED not in [event["event"] for event in events]


async def test_a_burst_that_a_restart_has_cut_is_stored_completely(local: InProcessCollector, tmp_path: Path) -> None:
    """Samples of one round in two epochs of one spool are different streams of a burst."""
    await local.begin(DAY_AT)
    agent = Machine(local, tmp_path / "a")
    for second, after in ((1, 2), (2, 1), (3, 3)):
        agent.probe(*[second] * (4 - after))
        await agent.deliver()
        agent.probe(*[second] * after)
        agent.reboot()
        assert await agent.deliver() == after
    assert await stored(local) == (seconds(*[1] * 4, *[2] * 4, *[3] * 4), [])


async def test_two_clones_at_two_collectors_double_no_round(local: InProcessCollector, tmp_path: Path) -> None:
    """They push the same rounds at the same time, and take over from each other again and again."""
    other = await another(local)
    machines = [Machine(local, tmp_path / "a")]
    machines.append(Machine(other, machines[0].snapshot(tmp_path / "b")))
    delivered = 0
    for second in range(20):
        local.clock.at = other.clock.at = DAY_AT + second * (LEASE_US + SECOND_US)
        for machine in machines:
            machine.probe(*range(20 * second, 20 * second + 20))
        done = await asyncio.gather(*(machine.deliver() for machine in machines), return_exceptions=True)
        delivered += sum(count for count in done if isinstance(count, int))
        assert all(isinstance(one, int | ResourceExhausted | Conflict) for one in done), done
    rounds, reasons = await stored(local)
    assert len(rounds) == len(set(rounds))
    assert len(rounds) + len(reasons) == delivered
    assert delivered >= 400


async def two_collectors(local: InProcessCollector, tmp_path: Path) -> tuple[InProcessCollector, Machine]:
    """Return another collector on the database of `local`, and a machine that has delivered two rounds to `local`."""
    other = await another(local)
    original = Machine(local, tmp_path / "a")
    for second in (0, 1):
        original.probe(second)
        assert await original.deliver() == 1
    return other, original


async def test_no_round_is_stored_between_comparison_and_commit(
    local: InProcessCollector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone takes over with a round, and the original pushes the same round meanwhile: it has to wait."""
    other, original = await two_collectors(local, tmp_path)
    clone = Machine(other, original.snapshot(tmp_path / "b"))
    clone.probe(2)
    original.probe(2)
    store, meanwhile = batches.store, list[asyncio.Task[int]]()

    async def slow_store(*arguments: Any) -> Any:
        if not meanwhile:
            meanwhile.append(asyncio.create_task(original.deliver()))
            await asyncio.wait(meanwhile, timeout=1)
        return await store(*arguments)

    monkeypatch.setattr(batches, "store", slow_store)
    assert await clone.deliver() == 1
    with pytest.raises(ResourceExhausted):
        await meanwhile[0]
    assert await stored(local) == (seconds(0, 1, 2), [])


async def test_a_collector_that_missed_two_takeovers_compares(local: InProcessCollector, tmp_path: Path) -> None:
    """The original delivers again, first to another collector: what the first one remembers of it is out of date."""
    other, original = await two_collectors(local, tmp_path)
    clone = Machine(other, original.snapshot(tmp_path / "b"))
    for machine, second in ((clone, 10), (original, 60)):
        machine.local, other.clock.at = other, DAY_AT + 100 * second * SECOND_US
        machine.probe(second)
        assert await machine.deliver() == 1
    original.local, local.clock.at = local, other.clock.at
    original.probe(10)
    with suppress(ResourceExhausted):
        await original.deliver()
    assert await original.deliver() in (0, 1)
    assert await stored(local) == (seconds(0, 1, 10, 60), ["already_stored"])


async def test_an_instant_in_the_future_holds_no_new_spool(local: InProcessCollector, tmp_path: Path) -> None:
    """Of a push recorded two days ahead a new spool knows nothing: it delivers, and a duplicate is one after 45 s."""
    await local.begin(DAY_AT + 2 * DAY_US)
    assert await Agent(local, tmp_path / "a").push() == 1
    await local.turn_to(DAY_AT)
    new = Agent(local, tmp_path / "b")
    assert await new.push() == 1
    duplicate = Agent(local, tmp_path / "c")
    async with local.database.connection() as connection:
        ahead_at = DAY_AT + 2 * DAY_US
        await vantages.record_duplicate(connection, US.id, duplicate.epoch, first_at=ahead_at, last_at=ahead_at)
    refusals = []
    for _ in range(DUPLICATE_US // (5 * SECOND_US) + 1):
        local.clock.at += 5 * SECOND_US
        refusals.append(await duplicate.refusal())
        assert await new.push() == 1
    assert (refusals[0], refusals[-1]) == (ResourceExhausted, Conflict)


async def test_a_rival_is_forgotten_after_a_while(local: InProcessCollector, tmp_path: Path) -> None:
    """Both have fallen silent: after ten minutes neither the alert nor the list of regions shows the second one."""
    await local.begin(DAY_AT)
    original = Agent(local, tmp_path / "a")
    assert await original.push() == 1
    clone = original.clone(tmp_path / "b")
    for _ in range(11):
        local.clock.at += 5 * SECOND_US
        assert await clone.push() == 1
        await original.refusal()
    refused_at = local.clock.at
    async with local.database.connection() as connection:
        for later_us, shown_at in ((0, refused_at), (601 * SECOND_US, None)):
            now_at = refused_at + later_us
            (state,) = await vantages.states(connection, now_at=now_at)
            assert (state.duplicate_at, len(await vantages.duplicates(connection, now_at=now_at))) == (
                shown_at,
                int(shown_at is not None),
            )


async def test_only_admitted_agents_are_heard(local: InProcessCollector, tmp_path: Path) -> None:
    """The clock of an agent that is refused, in another region, or before the year 2025 does not count."""
    heard: list[tuple[int, int]] = []
    await local.begin(DAY_AT)
    local.ingest = Ingest(
        database=local.database,
        plans=local.plans,
        window=local.ingest.window,
        clock=local.clock,
        hear_vantage=lambda *one: heard.append(one),
    )
    owner, other = Agent(local, tmp_path / "a"), Agent(local, tmp_path / "b")
    for agent, region, sent_at in (
        (owner, "us", DAY_AT + 1),
        (other, "us", DAY_AT + 2),
        (owner, "eu", DAY_AT + 3),
        (owner, "us", 4),
        (owner, "us", MAX_INSTANT_AT + 5),
    ):
        heartbeat: dict[str, Any] = {"epoch": agent.epoch, "epoch_history": agent.epoch_history, "seq": 0}
        heartbeat["heartbeat"] = Heartbeat(epoch=agent.epoch)
        with suppress(RequestError):
            await local.push(Vantage(name=US.name, region=region), sent_at=sent_at, **heartbeat)
    assert heard == [(US.id, DAY_AT + 1)]


async def test_a_fleet_that_reconnects_costs_no_reads(local: InProcessCollector, tmp_path: Path) -> None:
    """A push or heartbeat of a known agent takes one connection, also after a restart; another agent still waits."""
    await local.begin(DAY_AT)
    agent, clone = Agent(local, tmp_path / "a"), Agent(local, tmp_path / "b")
    assert await agent.push() == 1
    before = local.database.statistics()["requests_num"]
    assert await agent.push() == 1
    assert local.database.statistics()["requests_num"] - before == 1
    local.ingest = Ingest(database=local.database, plans=local.plans, window=local.ingest.window, clock=local.clock)
    await local.ingest.load()
    before = local.database.statistics()["requests_num"]
    assert await agent.push() == 1
    heartbeat: dict[str, Any] = {"epoch": agent.epoch, "epoch_history": agent.epoch_history, "seq": 0}
    await local.push(US, **heartbeat, heartbeat=Heartbeat(epoch=agent.epoch))
    assert local.database.statistics()["requests_num"] - before == 2
    assert await clone.refusal() is ResourceExhausted
