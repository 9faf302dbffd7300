"""The plan watcher: the last valid plan runs, whatever the collector sends or the spool contains."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from fixtures.agent import Agent, StartAgent
from fixtures.collector import Collector, StartCollector, run_command
from fixtures.postgres import rows
from fixtures.simulator import API_KEY, Simulator
from isochrone_agent.collector_client import CollectorClient
from isochrone_agent.plan.credentials import Credential, Keyring
from isochrone_agent.plan.plan_watcher import PlanWatcher
from isochrone_agent.plan.probe_scheduler import ProbeScheduler
from isochrone_agent.probe.prober import Prober
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_common import identity_file
from isochrone_wire import codec
from isochrone_wire.model import Plan, Target, Timeouts, Vantage, Workload
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc
from testdata import preforked
from testdata.trust import system_trust
from testdata.waiting import eventually

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
        self.asked += 1
        return fleet_pb2.FetchPlanResponse(plan=self.plan)


@dataclass(slots=True)
class WatcherUnderTest:
    spool: AsyncSpool
    rounds: ProbeScheduler
    watcher: PlanWatcher
    fleet: FakeFleet = field(repr=False)

    def serve_plan(self, plan: Plan) -> None:
        self.fleet.plan = codec.encode(plan)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[WatcherUnderTest]:
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
        rounds = ProbeScheduler(Prober(vantage="v", tls=system_trust()), spool, keyring, concurrency=1)
        collector = CollectorClient(channel=lambda: channel, vantage=Vantage(name="v", region="r"))
        yield WatcherUnderTest(spool, rounds, PlanWatcher(collector, spool, keyring, rounds), fleet)
    await server.stop(0)


async def test_a_good_plan_is_taken_up_and_kept(agent: WatcherUnderTest) -> None:
    """A plan runs as soon as a push names its version, and is stored for the next start."""
    agent.serve_plan(GOOD)
    assert await agent.watcher.update_to(1, b"") == 1
    assert await agent.spool.last_plan() == GOOD
    assert agent.watcher.refused is None
    assert await agent.watcher.update_to(1, b"") == 1
    assert agent.fleet.asked == 1


async def test_another_plan_under_the_same_number_is_taken_up(agent: WatcherUnderTest) -> None:
    """A restored database repeats a version: the content hash decides, also for stored and refused plans."""
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
    assert agent.rounds.plan.content_hash == b"4"


@pytest.mark.parametrize(
    ("bad", "reason"), [(FOREIGN, "would send the credential 'k'"), (UNKNOWN_DIALECT, "uses the dialect 'klingon'")]
)
async def test_a_bad_plan_is_refused_and_the_old_one_runs_on(agent: WatcherUnderTest, bad: Plan, reason: str) -> None:
    """A key for another host, or an unknown dialect, is refused once and never stored; a later plan runs."""
    agent.serve_plan(GOOD)
    await agent.watcher.update_to(1, b"")
    agent.serve_plan(bad)
    assert [await agent.watcher.update_to(2, b"") for _ in range(3)] == [1, 1, 1]
    assert agent.fleet.asked == 2
    version, sentence = agent.watcher.refused or (0, "")
    assert (version, reason in sentence) == (2, True)
    assert await agent.spool.last_plan() == GOOD
    agent.serve_plan(replace(GOOD, version=3))
    assert await agent.watcher.update_to(3, b"") == 3
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
async def test_an_absurd_plan_is_refused_also_when_it_was_kept(agent: WatcherUnderTest, named: str) -> None:
    """A plan beyond the limits is refused with target and limit, never stored, and refused from the spool too."""
    agent.serve_plan(GOOD)
    await agent.watcher.update_to(1, b"")
    absurd = Plan(version=2, baseline="us", targets=(ABSURD[named],))
    agent.serve_plan(absurd)
    assert await agent.watcher.update_to(2, b"") == 1
    assert f"p/m has {named}" in (agent.watcher.refused or (0, ""))[1]
    assert await agent.spool.last_plan() == GOOD
    await agent.spool.save_plan(absurd)
    await agent.watcher._consider_kept()
    assert agent.rounds.plan.version == 1


async def test_a_plan_that_triggers_a_bug_is_refused(agent: WatcherUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that triggers a bug is refused with a sentence: the old plan runs on, and stays the stored one."""
    agent.serve_plan(GOOD)
    await agent.watcher.update_to(1, b"")
    monkeypatch.setattr(ProbeScheduler, "apply_plan", lambda *_: 1 // 0)
    agent.serve_plan(replace(GOOD, version=2))
    assert await agent.watcher.update_to(2, b"") == 1
    assert agent.watcher.refused == (2, "the agent failed on the plan: ZeroDivisionError")
    assert await agent.spool.last_plan() == GOOD


async def test_a_plan_of_a_newer_collector_is_refused(agent: WatcherUnderTest) -> None:
    """A plan that this version cannot decode is refused under the version that the push named, without a crash."""
    agent.serve_plan(GOOD)
    await agent.watcher.update_to(1, b"")
    agent.serve_plan(replace(GOOD, version=2))
    agent.fleet.plan.targets[0].overlap = 77
    assert await agent.watcher.update_to(2, b"") == 1
    version, sentence = agent.watcher.refused or (0, "")
    assert (version, "overlap" in sentence) == (2, True)


async def test_a_kept_plan_that_is_garbage_is_no_crash_loop(agent: WatcherUnderTest) -> None:
    """An unreadable plan in the spool is ignored, and the next plan replaces it."""
    await agent.spool.save_plan(GOOD)
    agent.spool._spool._db.execute("update plan set body = x'ffffffff'")
    agent.serve_plan(replace(GOOD, version=5))
    await agent.watcher.wait_for_plan()
    assert agent.rounds.plan.version == 5
    assert await agent.spool.last_plan() == replace(GOOD, version=5)


async def test_a_start_with_a_kept_plan_fetches_none(agent: WatcherUnderTest) -> None:
    """A fleet that starts again has one call less per agent: only a receipt that names another plan leads to one."""
    await agent.spool.save_plan(GOOD)
    agent.serve_plan(replace(GOOD, version=2))
    await agent.watcher.wait_for_plan()
    assert (agent.rounds.plan.version, await agent.watcher.update_to(1, b""), agent.fleet.asked) == (1, 1, 0)
    assert (await agent.watcher.update_to(2, b""), agent.fleet.asked) == (2, 1)


async def test_a_kept_plan_is_looked_at_again(agent: WatcherUnderTest) -> None:
    """A stored plan that would now send a key elsewhere is refused at the start, like a fetched one."""
    await agent.spool.save_plan(FOREIGN)
    agent.serve_plan(replace(GOOD, version=3))
    await agent.watcher._consider_kept()
    assert agent.rounds.plan.version == 0
    assert agent.watcher.refused is not None
    await agent.watcher.wait_for_plan()
    assert agent.rounds.plan.version == 3


async def test_a_refused_plan_is_taken_up_when_the_key_may_go_there(agent: WatcherUnderTest) -> None:
    """After credentials.toml has been corrected, the refused plan runs with the next push."""
    agent.serve_plan(FOREIGN)
    assert await agent.watcher.update_to(2, b"") == 0
    agent.watcher._keyring.credentials = {"k": replace(KEY, hosts=("elsewhere.test",))}
    assert await agent.watcher.update_to(2, b"") == 2
    assert agent.watcher.refused is None


PLAN = "baseline: {0}\nevery: 1s\ntargets: [{{model: a, provider: sim, base_url: http://h.invalid}}]\n"


@pytest.fixture
def collector(start_collector: StartCollector) -> Collector:
    return start_collector(more=["--tls"])


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file of a new key, whose public half is beside it."""
    file = tmp_path / "plan-key.pem"
    done = run_command("plan", "key", str(file))
    assert done.returncode == 0, done.stderr
    assert run_command("plan", "key", str(file)).stdout == done.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    file.with_suffix(".pub").write_text(done.stdout.strip())
    return file


def apply(collector: Collector, folder: Path, baseline: str, *more: str) -> str:
    return collector.apply(PLAN.format(baseline), folder, *_as_operator(collector), "--force", *more).stdout


def roll_back(collector: Collector, version: int, key: Path) -> tuple[int, str]:
    """Roll back to a version with a new signature; return exit code and output."""
    words = ("plan", "rollback", str(version), "--yes", "--sign", str(key))
    done = run_command(*words, "--collector", collector.address, *_as_operator(collector))
    return done.returncode, done.stdout + done.stderr


def refusal(collector: Collector) -> str | None:
    """Return why the agent refuses the plan, as its newest heartbeat reported it."""
    (vantage,) = collector.call.vantages().vantages
    return vantage.refused_plan_reason


def running(agent: Agent) -> list[int]:
    lines = (json.loads(line) for line in agent.log().splitlines() if line.startswith("{"))
    return [line["version"] for line in lines if line["event"] == "plan.started"]


def test_agents_run_signed_plans_only(collector: Collector, start_agent: StartAgent, key: Path, tmp_path: Path) -> None:
    """An unsigned plan and an earlier signature are refused and reported; a rollback is signed again."""
    folder = tmp_path / "vm"
    token = collector.call.invite("us-1")
    words = ("join", collector.address, "--token", token, "--data-dir", str(folder))
    done = preforked.run("isochrone_agent", *words, "--plan-key", key.with_suffix(".pub").read_text())
    assert done.returncode == 0, done.stderr
    assert identity_file.read(folder / "identity.json").plan_key == key.with_suffix(".pub").read_text()
    assert "signature: isochrone-plan-" in apply(collector, tmp_path, "us-east-2", "--sign", str(key))
    options = ["--log-format", "json"]
    agent = start_agent(vantage="us-1", folder=folder, more=options)
    eventually(20, lambda: _version(collector) == 1, "the signed plan")

    assert "agents that have pinned a key refuse" in apply(collector, tmp_path, "eu-west-1")
    eventually(30, lambda: "the plan is not signed" in (refusal(collector) or ""), "the refusal of an unsigned plan")
    assert _version(collector) == 1

    apply(collector, tmp_path, "ap-south-1", "--sign", str(key))
    eventually(30, lambda: _version(collector) == 3, "the next signed plan")
    _replay(collector, 1)
    eventually(30, lambda: "before one that ran here" in (refusal(collector) or ""), "the refusal of the replay")
    assert agent.stop() == 0
    again = start_agent(vantage="us-1", folder=folder, more=options)
    eventually(30, lambda: "before one that ran here" in again.log(), "the refusal after a restart")
    assert _version(collector) == 3

    code, said = roll_back(collector, 2, key)
    assert (code, "plan 2 was not signed with this key" in said) == (2, True), said
    code, said = roll_back(collector, 1, key)
    assert code == 0, said
    eventually(30, lambda: _version(collector) == 5, "the rollback")
    assert again.stop() == 0


def test_a_wrong_signature_is_refused(collector: Collector, key: Path, tmp_path: Path) -> None:
    """A file that is no key, and a document that the collector has changed since it was signed."""
    (tmp_path / "no-key").write_text("x")
    (tmp_path / "plan.yaml").write_text(PLAN.format("us-east-2"))
    words: Sequence[str] = ("apply", str(tmp_path / "plan.yaml"), "--collector", collector.address, "--yes", "--sign")
    done = run_command(*words, str(tmp_path / "no-key"), *_as_operator(collector))
    assert (done.returncode, "is not a private key" in done.stderr) == (2, True)
    assert run_command(*words, str(key), *_as_operator(collector)).returncode == 0
    apply(collector, tmp_path, "eu-west-1", "--sign", str(key))
    rows(
        collector.database_url,
        "UPDATE plan SET document = replace(document, 'h.invalid', 'x.invalid') WHERE version = 1",
    )
    code, said = roll_back(collector, 1, key)
    assert (code, "is not the one that was signed" in said) == (2, True), said


def _as_operator(collector: Collector) -> tuple[str, str]:
    return "--identity", str(collector.data_dir / "operator.json")


def _version(collector: Collector) -> int:
    vantages = collector.call.vantages().vantages
    return vantages[0].plan_version if vantages else 0


def _replay(collector: Collector, version: int) -> None:
    """Put an earlier plan with its own signature into force, as a stolen collector could."""
    rows(
        collector.database_url,
        "INSERT INTO plan (version, document, applied_at, applied_by, signature)"
        " SELECT 4, document, now(), 'mallory', signature FROM plan WHERE version = %s",
        [version],
    )


KEYED_PLAN = """
baseline: us-east-2
every: 300ms
targets:
  - {{provider: sim, model: fault-none, base_url: "{base_url}", credential: sim, workload: {{max_output_tokens: 3}}}}
"""


def keep(folder: Path, key: str) -> Path:
    """The agent's own file, and the file it names, which holds `key`."""
    secret, file = folder / f"{key}.secret", folder / "credentials.toml"
    secret.write_text(f"{key}\n")
    secret.chmod(0o600)
    beside = folder / "credentials.new"
    beside.write_text(f'[sim]\nfile = "{secret}"\nhosts = ["127.0.0.1"]\n')
    beside.chmod(0o600)
    beside.replace(file)
    return file


def outcomes(agent: Agent) -> list[tuple[str, int | None]]:
    """Outcome and HTTP status of every probe so far, oldest first."""
    lines = [json.loads(line) for line in agent.log().splitlines() if '"probe.done"' in line]
    return [(line["outcome"], line.get("http_status")) for line in lines]


def test_the_next_probe_uses_the_key_that_is_there_now(
    start_collector: StartCollector, start_agent: StartAgent, simulator_with_key: Simulator, tmp_path: Path
) -> None:
    """A key that the provider refuses is replaced, and one that it takes is taken away, in one and the same process."""
    collector = start_collector()
    collector.call.apply(KEYED_PLAN.format(base_url=simulator_with_key.base_url))
    told = ["--credentials", str(keep(tmp_path, "sk-wrong")), "--log-format", "json"]
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2", more=told)

    def newest() -> str:
        return (outcomes(agent) or [("none yet", None)])[-1][0]

    eventually(30, lambda: newest() == "http_error", "the provider refuses the wrong key")
    assert "ok" not in {outcome for outcome, _ in outcomes(agent)}
    keep(tmp_path, API_KEY)
    eventually(30, lambda: newest() == "ok", "the provider takes the right key")
    keep(tmp_path, "sk-wrong")
    eventually(30, lambda: newest() == "http_error", "the wrong key is sent again")
    assert agent.process.poll() is None
    assert agent.log().count('"plan.running"') >= 1
    assert agent.log().count('"agent.started"') == 1
    for key in ("sk-wrong", API_KEY):
        assert f"{key}\n" not in agent.log()
    assert agent.stop() == 0
