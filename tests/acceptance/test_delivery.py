"""Real processes from the socket to the database: what an agent records arrives, once, whatever was away meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from fixtures.agent import Agent, StartAgent
from fixtures.collector import Collector, StartCollector
from fixtures.postgres import rows
from fixtures.simulator import Simulator
from isochrone_wire.insights import AlertKind
from testdata.reading import printed_rows
from testdata.waiting import eventually

PLAN = """
baseline: us-east-2
every: 500ms
workloads:
  short: {{prompt: "Say hello", max_output_tokens: 10}}
targets:
  - {{provider: sim, model: fault-crlf, base_url: "{base_url}", workload: short}}
  - {{provider: sim, model: fault-500, base_url: "{base_url}", workload: short}}
"""
LOG_CHARS = 4_000
REGIONS = {"us-1": "us-east-2", "sg-1": "ap-southeast-1"}
STORED = """
select count(*), count(*) - count(distinct (target_id, round_at, vantage_id)) from sample
join vantage on vantage.id = vantage_id join target on target.id = target_id
where vantage.name like %s and target.model like %s
"""


@dataclass(slots=True)
class World:
    """Collectors on one database, and agents by vantage."""

    start_collector: StartCollector
    start_agent: StartAgent
    first: Collector
    agents: dict[str, Agent] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.first.database_url

    def collector(self) -> Collector:
        return self.start_collector(port=self.first.port, database_url=self.url)

    def agent(self, vantage: str = "us-1", collector: str = "") -> Agent:
        address = collector or self.first.address
        self.agents[vantage] = self.start_agent(vantage=vantage, region=REGIONS[vantage], collector=address)
        return self.agents[vantage]

    def stored(self, vantage: str = "%", model: str = "%") -> int:
        """Return the number of stored samples of a vantage or model, none of which may be stored twice."""
        with psycopg.connect(self.url) as connection:
            stored, doubled = connection.execute(STORED, (vantage, model)).fetchone() or (0, 0)
        assert doubled == 0
        return int(stored)

    def balanced(self) -> None:
        """Stop the agents, and check that every sample that they have recorded is stored or waits."""
        for vantage, agent in self.agents.items():
            assert agent.stop() == 0
            assert agent.recorded() == self.stored(vantage) + agent.waiting()

    def eventually(self, seconds: float, true: Callable[[], bool], what: str) -> None:
        """Wait as `eventually`; a failure shows the logs."""
        try:
            eventually(seconds, true, what)
        except AssertionError as error:
            processes: list[Collector | Agent] = [*self.start_collector.started, *self.agents.values()]
            for process in processes:
                error.add_note(f"{process.log_file}, exit {process.process.poll()}:\n{process.log()[-LOG_CHARS:]}")
            raise


@pytest.fixture
def world(start_collector: StartCollector, start_agent: StartAgent) -> World:
    return World(start_collector, start_agent, start_collector())


def test_nothing_is_lost_whatever_is_away(world: World, fault_simulator: Simulator, tmp_path: Path) -> None:
    """Whatever is away, also after kill -9, the agent measures on; later everything arrives once, under its outcome."""
    world.first.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    agent = world.agent()
    world.eventually(20, lambda: world.stored() >= 6, "six samples stored")
    outcomes = {row[0] for row in rows(world.url, "select outcome from sample")}
    # On a busy machine a round may be due before the probe of the one before it has ended.
    assert outcomes - {"skipped_overlap"} == {"ok", "http_error"}
    world.first.kill()
    before = agent.recorded()
    world.eventually(20, lambda: agent.recorded() >= before + 4, "four more samples recorded offline")
    agent.kill()
    orphan = world.agent()
    before = orphan.recorded()
    world.eventually(20, lambda: orphan.recorded() >= before + 3, "three samples from the last plan")
    world.collector()
    world.eventually(40, lambda: orphan.waiting() <= 2, "the spool nearly empty")
    world.balanced()


def test_an_agent_that_is_stopped_is_not_late(world: World, fault_simulator: Simulator, tmp_path: Path) -> None:
    """SIGTERM leaves a vantage stopped, with an empty spool, until its agent is heard again; SIGKILL does not."""

    def vantage() -> dict[str, Any]:
        [row] = printed_rows(world.first.http_address, "vantages")
        return row

    world.first.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    agent = world.agent()
    world.eventually(20, lambda: world.stored() >= 4, "four samples stored")
    assert agent.stop() == 0
    assert (vantage()["liveness"], vantage()["spool_depth"]) == ("stopped", agent.waiting())
    assert agent.waiting() == 0
    assert vantage()["reason"].startswith("its agent was stopped")
    again = world.agent()
    world.eventually(20, lambda: vantage()["liveness"] == "online", "online again")
    again.kill()
    world.eventually(40, lambda: vantage()["liveness"] != "online", "no heartbeat")
    assert vantage()["liveness"] == "late"


@pytest.mark.slow
def test_versions_lose_nothing(world: World, fault_simulator: Simulator, later_collector: Path, tmp_path: Path) -> None:
    """Agents deliver to version N, also after N + 1 has migrated its database, and to N + 1."""

    def more_arrive() -> None:
        goals = {vantage: world.stored(vantage) + 3 for vantage in REGIONS}
        is_met = lambda: all(world.stored(vantage) >= goal for vantage, goal in goals.items())  # noqa: E731  # one line
        world.eventually(20, is_met, "three more samples of both vantages")

    world.first.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    for vantage in REGIONS:
        world.agent(vantage)
    more_arrive()
    new = world.start_collector(script=later_collector)
    more_arrive()
    world.agents["sg-1"].kill()
    world.agent("sg-1", new.address)
    more_arrive()
    world.balanced()
    assert "Traceback" not in world.first.log() + new.log()


@pytest.mark.parametrize("emptied", [False, True])
def test_a_restored_database_gets_what_it_has_lost(
    world: World, fault_simulator: Simulator, postgres_server: str, tmp_path: Path, *, emptied: bool
) -> None:
    """A restored database gets what its backup lacks, once; the older plan runs until the new one."""
    whole = PLAN.format(base_url=fault_simulator.base_url).splitlines()
    old, new = ("\n".join(line for line in whole if line not in left_out) for left_out in (whole[-1:], whole[-2:-1]))
    names = {part: sql.Identifier(f"{conninfo_to_dict(world.url)['dbname']}{part}") for part in ("", "_backup")}

    def administrate(statement: LiteralString) -> None:
        rows(postgres_server, sql.SQL(statement).format(name=names[""], copy=names["_backup"]))

    def alerts() -> list[str]:
        with psycopg.connect(world.url) as connection:
            return [kind for (kind,) in connection.execute("select kind from alert where kind = 'database_restored'")]

    if not emptied:
        world.first.apply(old, tmp_path)
    assert world.first.stop() == 0
    administrate("CREATE DATABASE {copy} TEMPLATE {name}")
    try:
        second = world.collector()
        second.apply(new, tmp_path)
        agent = world.agent()
        world.eventually(20, lambda: world.stored() >= 4, "four samples stored")
        second.kill()
        administrate("DROP DATABASE {name} WITH (FORCE)")
        administrate("CREATE DATABASE {name} TEMPLATE {copy}")
        third = world.collector()
        # Another plan under the number that the agent knows.
        third.apply(old.replace("500ms", "400ms"), tmp_path)
        world.eventually(60, lambda: world.stored(model="fault-crlf") >= 3, "samples of the plan in force")
        assert world.stored(model="fault-500") == 0
        third.apply(new, tmp_path)
        world.eventually(60, lambda: world.stored(model="fault-500") >= 6, "the lost samples and new ones")
        world.eventually(60, lambda: "database.lost_batches" in third.log(), "the lost batches noticed")
        world.eventually(60, lambda: agent.waiting() <= 3, "the spool nearly empty")
        world.balanced()
        world.eventually(30, lambda: alerts() == [AlertKind.DATABASE_RESTORED], "one alert")
    finally:
        administrate("DROP DATABASE {copy}")


@pytest.mark.parametrize("options", [["--collector", "10.1.2.3:4600"], ["--concurrency", "x"]])
def test_wrong_settings_end_an_agent(start_agent: StartAgent, options: list[str]) -> None:
    """Impossible settings are reported in a sentence with exit code 2, and nothing is started."""
    agent = start_agent(collector="127.0.0.1:1", vantage="a", region="b", more=options)
    assert agent.wait() == 2
    assert "Traceback" not in agent.log()
