"""The plan watcher: the last valid plan runs, whatever the collector sends or the spool contains."""

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
UNKNOWN_DIALECT = Plan(version=2, baseline="us", targets=(replace(TARGET, dialect="klingon"),))
KEY = Credential(name="k", hosts=("api.example.com",), env="K")


@dataclass(slots=True)
class FakeFleet(fleet_pb2_grpc.FleetServicer):
    """A collector that serves only `FetchPlan`, with any plan as bytes."""

    plan: Any = None
    asked: int = 0

    async def FetchPlan(self, request: fleet_pb2.FetchPlanRequest, context: Any) -> Any:  # noqa: N802, ARG002  # gRPC's
        """Return the current plan."""
        self.asked += 1
        return fleet_pb2.FetchPlanResponse(plan=self.plan)


@dataclass(slots=True)
class Agent:
    """A plan watcher with its spool, round runner and collector."""

    spool: AsyncSpool
    rounds: RoundRunner
    watcher: PlanWatcher
    fleet: FakeFleet = field(repr=False)

    def serve_plan(self, plan: Plan) -> None:
        """Set the plan that the collector returns."""
        self.fleet.plan = codec.encode(plan)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    """A plan watcher with a spool, a key for one host and a collector on loopback."""
    fleet = FakeFleet()  # type: ignore[abstract]  # nothing else is asked of it
    server = grpc.aio.server()
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with (
        AsyncSpool(tmp_path / "spool.sqlite3") as spool,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        keyring = Keyring({"k": KEY})
        rounds = RoundRunner(Prober(vantage="v", tls=ssl.create_default_context()), spool, keyring, concurrency=1)
        collector = CollectorClient(channel=lambda: channel, vantage=Vantage(name="v", region="r"))
        yield Agent(spool, rounds, PlanWatcher(collector, spool, keyring, rounds), fleet)
    await server.stop(0)


async def test_a_good_plan_is_taken_up_and_kept(agent: Agent) -> None:
    """A plan runs as soon as a push names its version, and is stored for the next start."""
    agent.serve_plan(GOOD)
    assert await agent.watcher.update_to(1) == 1
    assert await agent.spool.last_plan() == GOOD
    assert agent.watcher.refused is None
    assert await agent.watcher.update_to(1) == 1
    assert agent.fleet.asked == 1


async def test_another_plan_under_the_same_number_is_taken_up(agent: Agent) -> None:
    """A restored database gives a version to another plan: the content hash decides, also for a stored plan, and for a
    refused one.
    """
    first, second = replace(GOOD, content_hash=b"1"), replace(GOOD, baseline="eu", content_hash=b"2")
    agent.serve_plan(first)
    assert await agent.watcher.update_to(1, b"1") == 1
    assert await agent.watcher.update_to(1, b"1") == 1
    assert agent.fleet.asked == 1
    agent.serve_plan(second)
    assert await agent.watcher.update_to(1, b"2") == 1
    assert await agent.spool.last_plan() == second
    agent.serve_plan(replace(FOREIGN, version=1, content_hash=b"3"))
    await agent.watcher.update_to(1, b"3")
    assert agent.watcher.refused is not None
    agent.serve_plan(replace(first, content_hash=b"4"))
    await agent.watcher.update_to(1, b"4")
    assert agent.rounds.plan_hash == b"4"


@pytest.mark.parametrize(
    ("bad", "reason"), [(FOREIGN, "would send the credential 'k'"), (UNKNOWN_DIALECT, "uses the dialect 'klingon'")]
)
async def test_a_bad_plan_is_refused_and_the_old_one_runs_on(agent: Agent, bad: Plan, reason: str) -> None:
    """A foreign host for a key, or a dialect nobody speaks here: refused once, reported, and never kept; what comes
    after it is taken up.
    """
    agent.serve_plan(GOOD)
    await agent.watcher.update_to(1)
    agent.serve_plan(bad)
    assert [await agent.watcher.update_to(2) for _ in range(3)] == [1, 1, 1]
    assert agent.fleet.asked == 2
    assert agent.watcher.refused is not None
    assert agent.watcher.refused[0] == 2
    assert reason in agent.watcher.refused[1]
    assert await agent.spool.last_plan() == GOOD
    agent.serve_plan(replace(GOOD, version=3))
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
    agent.serve_plan(GOOD)
    await agent.watcher.update_to(1)
    absurd = Plan(version=2, baseline="us", targets=(ABSURD[named],))
    agent.serve_plan(absurd)
    assert await agent.watcher.update_to(2) == 1
    assert agent.watcher.refused is not None
    assert f"p/m has {named}" in agent.watcher.refused[1]
    assert await agent.spool.last_plan() == GOOD
    await agent.spool.save_plan(absurd)
    await agent.watcher._consider_kept()
    assert agent.rounds.plan_version == 1


async def test_a_plan_that_triggers_a_bug_is_refused(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that triggers a bug is refused with a sentence: the old plan runs on, and stays the stored one."""
    agent.serve_plan(GOOD)
    await agent.watcher.update_to(1)
    monkeypatch.setattr(RoundRunner, "apply_plan", lambda *_: 1 // 0)
    agent.serve_plan(replace(GOOD, version=2))
    assert await agent.watcher.update_to(2) == 1
    assert agent.watcher.refused == (2, "the agent failed on the plan: ZeroDivisionError")
    assert await agent.spool.last_plan() == GOOD


async def test_a_plan_of_a_newer_collector_is_refused(agent: Agent) -> None:
    """A plan that this version cannot decode is refused under the version that the push named, without a crash."""
    agent.serve_plan(GOOD)
    await agent.watcher.update_to(1)
    agent.serve_plan(replace(GOOD, version=2))
    agent.fleet.plan.targets[0].overlap = 77
    assert await agent.watcher.update_to(2) == 1
    assert agent.watcher.refused is not None
    assert agent.watcher.refused[0] == 2
    assert "overlap" in agent.watcher.refused[1]


async def test_a_kept_plan_that_is_garbage_is_no_crash_loop(agent: Agent) -> None:
    """An unreadable plan in the spool is ignored, and the next plan replaces it."""
    await agent.spool.save_plan(GOOD)
    agent.spool._spool._db.execute("update plan set body = x'ffffffff'")
    agent.serve_plan(replace(GOOD, version=5))
    await agent.watcher.wait_for_plan()
    assert agent.rounds.plan_version == 5
    assert await agent.spool.last_plan() == replace(GOOD, version=5)


async def test_a_start_with_a_kept_plan_fetches_none(agent: Agent) -> None:
    """A fleet that starts again has one call less per agent: only a receipt that names another plan leads to one."""
    await agent.spool.save_plan(GOOD)
    agent.serve_plan(replace(GOOD, version=2))
    await agent.watcher.wait_for_plan()
    assert (agent.rounds.plan_version, await agent.watcher.update_to(1), agent.fleet.asked) == (1, 1, 0)
    assert (await agent.watcher.update_to(2), agent.fleet.asked) == (2, 1)


async def test_a_kept_plan_is_looked_at_again(agent: Agent) -> None:
    """A stored plan that would now send a key elsewhere is refused at the start, like a fetched one."""
    await agent.spool.save_plan(FOREIGN)
    agent.serve_plan(replace(GOOD, version=3))
    await agent.watcher._consider_kept()
    assert agent.rounds.plan_version == 0
    assert agent.watcher.refused is not None
    await agent.watcher.wait_for_plan()
    assert agent.rounds.plan_version == 3


async def test_a_refused_plan_is_taken_up_when_the_key_may_go_there(agent: Agent) -> None:
    """After credentials.toml has been corrected, the refused plan runs with the next push."""
    agent.serve_plan(FOREIGN)
    assert await agent.watcher.update_to(2) == 0
    agent.watcher._keyring.replace_with(Keyring({"k": replace(KEY, hosts=("elsewhere.test",))}))
    assert await agent.watcher.update_to(2) == 2
    assert agent.watcher.refused is None
