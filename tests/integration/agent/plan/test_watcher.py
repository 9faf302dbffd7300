"""Following the plan: the last good one runs, whatever comes from the collector or lies in the spool."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from isochrone_agent.delivery.uplink import CollectorClient
from isochrone_agent.plan.credentials import Credential, Keyring
from isochrone_agent.plan.round_runner import RoundRunner
from isochrone_agent.plan.watcher import PlanWatcher
from isochrone_agent.probe.prober import Prober
from isochrone_agent.spool.async_spool import AsyncSpool
from isochrone_wire import codec
from isochrone_wire.model import Plan, Target, Timeouts, Vantage, Workload
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc

TARGET = Target(id=7, name="p/m", provider="p", model="m", base_url="https://api.example.com")
GOOD = Plan(version=1, baseline="us", targets=(TARGET,))
FOREIGN = Plan(version=2, baseline="us", targets=(replace(TARGET, credential="k", base_url="https://elsewhere.test"),))
KLINGON = Plan(version=2, baseline="us", targets=(replace(TARGET, dialect="klingon"),))
KEY = Credential(name="k", hosts=("api.example.com",), env="K")


@dataclass(slots=True)
class Office(fleet_pb2_grpc.FleetServicer):
    """A collector's office for plans; hands out what lies on its desk, as bytes that only a server may choose."""

    desk: Any = None
    asked: int = 0

    async def FetchPlan(self, request: fleet_pb2.FetchPlanRequest, context: Any) -> Any:  # noqa: N802, ARG002  # gRPC's
        """What lies on the desk."""
        self.asked += 1
        return fleet_pb2.FetchPlanResponse(plan=self.desk)


@dataclass(slots=True)
class Agent:
    """What follows plans."""

    spool: AsyncSpool
    rounds: RoundRunner
    watcher: PlanWatcher
    office: Office = field(repr=False)

    def hand_out(self, plan: Plan) -> None:
        """Put a plan on the collector's desk."""
        self.office.desk = codec.encode(plan)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    """An agent with a spool and a key for one host, and an office that listens on loopback."""
    office = Office()  # type: ignore[abstract]  # nothing else is asked of it
    server = grpc.aio.server()
    fleet_pb2_grpc.add_FleetServicer_to_server(office, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with (
        AsyncSpool(tmp_path / "spool.sqlite3") as spool,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        keyring = Keyring({"k": KEY})
        rounds = RoundRunner(Prober(vantage="v", tls=ssl.create_default_context()), spool, keyring, concurrency=1)
        collector = CollectorClient(channel=lambda: channel, vantage=Vantage(name="v", region="r"))
        yield Agent(spool, rounds, PlanWatcher(collector, spool, keyring, rounds), office)
    await server.stop(0)


async def test_a_good_plan_is_taken_up_and_kept(agent: Agent) -> None:
    """A plan runs as soon as a push names its version, and lies in the spool for the next start."""
    agent.hand_out(GOOD)
    assert await agent.watcher.update_to(1) == 1
    assert await agent.spool.last_plan() == GOOD
    assert agent.watcher.refused is None
    assert await agent.watcher.update_to(1) == 1
    assert agent.office.asked == 1


@pytest.mark.parametrize(
    ("bad", "reason"), [(FOREIGN, "would send the credential 'k'"), (KLINGON, "uses the dialect 'klingon'")]
)
async def test_a_bad_plan_is_refused_and_the_old_one_runs_on(agent: Agent, bad: Plan, reason: str) -> None:
    """A foreign host for a key, or a dialect nobody speaks here: refused once, reported, and never kept; what comes
    after it is taken up.
    """
    agent.hand_out(GOOD)
    await agent.watcher.update_to(1)
    agent.hand_out(bad)
    assert [await agent.watcher.update_to(2) for _ in range(3)] == [1, 1, 1]
    assert agent.office.asked == 2
    assert agent.watcher.refused is not None
    assert agent.watcher.refused[0] == 2
    assert reason in agent.watcher.refused[1]
    assert await agent.spool.last_plan() == GOOD
    agent.hand_out(replace(GOOD, version=3))
    assert await agent.watcher.update_to(3) == 3
    assert agent.watcher.refused is None


ABSURD = {
    "every_us 0": replace(TARGET, every_us=0),
    "every_us 1,": replace(TARGET, every_us=1),
    "spread_us -5": replace(TARGET, spread_us=-5),
    "concurrency 0": replace(TARGET, workload=Workload(concurrency=0)),
    "concurrency 1000000000": replace(TARGET, workload=Workload(concurrency=10**9)),
    "gap_us 0": replace(TARGET, workload=Workload(timeouts=Timeouts(gap_us=0))),
    "total_us -1": replace(TARGET, workload=Workload(timeouts=Timeouts(total_us=-1))),
    "bytes of the prompt 100001": replace(TARGET, workload=Workload(prompt="x" * 100_001)),
}


@pytest.mark.parametrize("named", ABSURD)
async def test_an_absurd_plan_is_refused_also_when_it_was_kept(agent: Agent, named: str) -> None:
    """What no collector of ours would hand out is refused, naming target and limit, never kept, and refused again where
    an older agent has kept it.
    """
    agent.hand_out(GOOD)
    await agent.watcher.update_to(1)
    absurd = Plan(version=2, baseline="us", targets=(ABSURD[named],))
    agent.hand_out(absurd)
    assert await agent.watcher.update_to(2) == 1
    assert agent.watcher.refused is not None
    assert f"p/m has {named}" in agent.watcher.refused[1]
    assert await agent.spool.last_plan() == GOOD
    await agent.spool.save_plan(absurd)
    await agent.watcher._consider_kept()
    assert agent.rounds.plan_version == 1


async def test_a_plan_that_the_agent_fails_over_is_refused(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours that a plan brings out is a refusal with a sentence: the old one runs on, and is the one kept."""
    agent.hand_out(GOOD)
    await agent.watcher.update_to(1)
    monkeypatch.setattr(RoundRunner, "apply_plan", lambda *_: 1 // 0)
    agent.hand_out(replace(GOOD, version=2))
    assert await agent.watcher.update_to(2) == 1
    assert agent.watcher.refused == (2, "the agent failed on the plan: ZeroDivisionError")
    assert await agent.spool.last_plan() == GOOD


async def test_a_plan_of_a_newer_collector_is_refused(agent: Agent) -> None:
    """What this version cannot understand is refused under the number that the push named, and nothing falls over."""
    agent.hand_out(GOOD)
    await agent.watcher.update_to(1)
    agent.hand_out(replace(GOOD, version=2))
    agent.office.desk.targets[0].overlap = 77
    assert await agent.watcher.update_to(2) == 1
    assert agent.watcher.refused is not None
    assert agent.watcher.refused[0] == 2
    assert "overlap" in agent.watcher.refused[1]


async def test_a_kept_plan_that_is_garbage_is_no_crash_loop(agent: Agent) -> None:
    """A plan that cannot be read from the spool is passed over, and the next one takes its place."""
    await agent.spool.save_plan(GOOD)
    agent.spool._spool._db.execute("update plan set body = x'ffffffff'")
    agent.hand_out(replace(GOOD, version=5))
    await agent.watcher.wait_for_plan()
    assert agent.rounds.plan_version == 5
    assert await agent.spool.last_plan() == replace(GOOD, version=5)


async def test_a_kept_plan_is_looked_at_again(agent: Agent) -> None:
    """A kept plan that would now send a key elsewhere is refused at the start, like one that was just fetched."""
    await agent.spool.save_plan(FOREIGN)
    agent.hand_out(replace(GOOD, version=3))
    await agent.watcher._consider_kept()
    assert agent.rounds.plan_version == 0
    assert agent.watcher.refused is not None
    await agent.watcher.wait_for_plan()
    assert agent.rounds.plan_version == 3


async def test_a_refused_plan_is_taken_up_when_the_key_may_go_there(agent: Agent) -> None:
    """After the agent's own file was corrected the plan refused for it runs with the next push."""
    agent.hand_out(FOREIGN)
    assert await agent.watcher.update_to(2) == 0
    agent.watcher._keyring.replace_with(Keyring({"k": replace(KEY, hosts=("elsewhere.test",))}))
    assert await agent.watcher.update_to(2) == 2
    assert agent.watcher.refused is None
