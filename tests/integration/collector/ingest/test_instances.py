"""One agent delivers for a vantage: restarts take over at once, and clones are refused and reported."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from fix_inprocess_collector import DAY_AT, InProcessCollector
from isochrone_agent.spool.spool import Spool
from isochrone_collector.errors import Conflict, RequestError, TooMany
from isochrone_collector.ingest.instances import LEASE_US, RIVAL_US
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.store import alerts, vantages
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, SECOND_US, Vantage, Vitals

US = Vantage(name="us-1", region="us")


class Agent:
    """An agent with a real spool, which pushes one sample at a time."""

    def __init__(self, local: InProcessCollector, spool: Path) -> None:
        self._local = local
        self.path = spool
        self._begin()

    def _begin(self) -> None:
        spool = Spool(self.path)
        self.epoch, self.lineage = spool.epoch, spool.lineage
        spool.close()

    def restart(self) -> None:
        """Start again on the same spool."""
        self._begin()

    def clone(self, path: Path) -> "Agent":
        """Start an agent on a copy of the spool."""
        shutil.copyfile(self.path, path)
        return Agent(self._local, path)

    async def push(self) -> int:
        """Push one sample of now; return the number of samples stored."""
        sample = self._local.sample(self._local.clock.at)
        more: dict[str, Any] = {"epoch": self.epoch, "lineage": self.lineage, "vitals": Vitals(epoch=self.epoch)}
        return (await self._local.push(US, [sample], **more)).stored

    async def refusal(self) -> type[RequestError]:
        """Push one sample, which must be refused; return the error."""
        with pytest.raises(RequestError) as refused:
            await self.push()
        return type(refused.value)


async def report_of(local: InProcessCollector) -> tuple[int | None, list[str]]:
    """When the rival was refused last, and the kinds of all alerts."""
    await AlertDelivery(database=local.database, webhook=None, clock=local.clock).check_rivals()
    async with local.database.connection() as connection:
        (state,) = await vantages.states(connection)
        raised = await alerts.of_window(connection, Window(from_at=DAY_AT, until_at=DAY_AT + DAY_US))
    return state.rival_at, [alert.kind.value for alert in raised]


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


async def test_the_newest_start_of_a_clone_delivers_and_the_other_is_refused(
    local: InProcessCollector, tmp_path: Path
) -> None:
    """From the first push of the clone on, each round is stored from one of the two; the other one is reported after
    45 s, and takes over when the first has ended.
    """
    await local.begin(DAY_AT)
    original = Agent(local, tmp_path / "a")
    assert await original.push() == 1
    clone = original.clone(tmp_path / "b")
    began_at = local.clock.at
    refusals = []
    while local.clock.at <= began_at + RIVAL_US + SECOND_US:
        local.clock.at += 5 * SECOND_US
        assert await clone.push() == 1
        refusals.append(await original.refusal())
    assert (refusals[0], refusals[-1]) == (TooMany, Conflict)
    original.restart()
    assert await original.refusal() is TooMany
    assert await clone.push() == 1
    async with local.database.connection() as connection:
        cursor = await connection.execute("SELECT count(*), count(DISTINCT round_at) FROM sample")
        assert await cursor.fetchone() == (len(refusals) + 2, len(refusals) + 1)
    rival_at, kinds = await report_of(local)
    assert (rival_at is None, kinds) == (True, []), "the restart of the rival is another agent"
    for _ in range(10):
        local.clock.at += 5 * SECOND_US
        assert await clone.push() == 1
        await original.refusal()
    assert await report_of(local) == (local.clock.at, ["rival"])
    local.clock.at += LEASE_US + SECOND_US
    assert await original.push() == 1
    assert await clone.refusal() is TooMany


async def test_a_new_spool_waits_for_the_old_agent_to_fall_silent(local: InProcessCollector, tmp_path: Path) -> None:
    """A replaced machine, or a snapshot older than the newest start, delivers 30 s after the other's last push."""
    await local.begin(DAY_AT)
    old = Agent(local, tmp_path / "a")
    snapshot = shutil.copyfile(tmp_path / "a", tmp_path / "b")
    old.restart()
    assert await old.push() == 1
    for replacement in (Agent(local, Path(snapshot)), Agent(local, tmp_path / "c")):
        local.clock.at += SECOND_US
        assert await replacement.refusal() is TooMany
        local.clock.at += LEASE_US
        assert await replacement.push() == 1
    assert await report_of(local) == (None, [])


async def test_an_agent_of_an_earlier_version_always_delivers(local: InProcessCollector) -> None:
    """Without a lineage nothing is known about restarts."""
    await local.begin(DAY_AT)
    for epoch in (1, 2, 1):
        receipt = await local.push(US, [local.sample(DAY_AT)], epoch=epoch, vitals=Vitals(epoch=epoch))
        assert receipt.stored == 1


async def test_another_collector_notices_the_takeover(local: InProcessCollector, tmp_path: Path) -> None:
    """A collector that has not heard the clone accepts at most one push of the original: the database decides."""
    await local.begin(DAY_AT)
    other = InProcessCollector(local.database)
    await other.turn_to(DAY_AT)
    await other.plans.refresh()
    original = Agent(other, tmp_path / "a")
    assert await original.push() == 1
    clone = original.clone(tmp_path / "b")
    clone._local = local
    assert await clone.push() == 1
    assert await original.push() == 1
    assert await original.refusal() is TooMany
    assert await clone.push() == 1
