"""Real processes from the socket to the database: what an agent records arrives, once, whatever was away meanwhile."""

from pathlib import Path

import psycopg
import pytest

from fixtures.agent import Agent, StartAgent
from fixtures.collector import StartCollector
from fixtures.simulator import Simulator
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


def stored(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select count(*) from sample").fetchone()
        return row[0] if row else 0


def duplicates(database_url: str) -> int:
    query = "select count(*) - count(distinct (target_id, round_at, vantage_id)) from sample"
    with psycopg.connect(database_url) as connection:
        row = connection.execute(query).fetchone()
        return row[0] if row else 0


def test_samples_reach_the_database(
    start_collector: StartCollector, start_agent: StartAgent, fault_simulator: Simulator, tmp_path: Path
) -> None:
    """Successes and failures are stored under their outcome, one per round and target."""
    collector = start_collector()
    collector.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    eventually(20, lambda: stored(collector.database_url) >= 6, "six samples stored")
    assert agent.stop() == 0
    with psycopg.connect(collector.database_url) as connection:
        outcomes = {row[0] for row in connection.execute("select outcome from sample").fetchall()}
    # On a busy machine a round may be due before the probe of the one before it has ended.
    assert outcomes - {"skipped_overlap"} == {"ok", "http_error"}
    assert duplicates(collector.database_url) == 0


def test_measuring_goes_on_without_a_collector(
    start_collector: StartCollector, start_agent: StartAgent, fault_simulator: Simulator, tmp_path: Path
) -> None:
    """While the collector is away the agent measures and spools; when it is back everything arrives, once."""
    collector = start_collector()
    collector.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    eventually(20, lambda: stored(collector.database_url) >= 2, "two samples stored")
    collector.kill()
    before = agent.recorded()
    eventually(20, lambda: agent.recorded() >= before + 6, "six more samples recorded offline")
    again = start_collector(port=collector.port, database_url=collector.database_url)
    eventually(40, lambda: agent.waiting() <= 2, "the spool nearly empty")
    assert agent.stop() == 0
    eventually(10, lambda: stored(again.database_url) + agent.waiting() == agent.recorded(), "the books balance")
    assert duplicates(again.database_url) == 0


def test_a_killed_agent_loses_nothing(
    start_collector: StartCollector, start_agent: StartAgent, fault_simulator: Simulator, tmp_path: Path
) -> None:
    """After kill -9 the next start delivers what was recorded, and no sample twice."""
    collector = start_collector()
    collector.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    eventually(20, lambda: agent.recorded() >= 4, "four samples recorded")
    agent.kill()
    successor = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    eventually(20, lambda: successor.recorded() >= 8, "four more samples recorded")
    assert successor.stop() == 0
    assert stored(collector.database_url) + successor.waiting() == successor.recorded()
    assert duplicates(collector.database_url) == 0


def test_an_agent_starts_from_its_last_plan(
    start_collector: StartCollector, start_agent: StartAgent, fault_simulator: Simulator, tmp_path: Path
) -> None:
    """An agent restarted while the collector is away measures by the plan it had."""
    collector = start_collector()
    collector.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    eventually(20, lambda: agent.recorded() >= 1, "a sample recorded")
    agent.kill()
    collector.kill()
    orphan = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    before = orphan.recorded()
    eventually(20, lambda: orphan.recorded() >= before + 3, "three samples without a collector")
    assert orphan.stop() == 0


@pytest.mark.parametrize("options", [["--collector", "10.1.2.3:4600"], ["--concurrency", "x"]])
def test_wrong_settings_are_told(start_agent: StartAgent, options: list[str]) -> None:
    """Impossible settings are reported in a sentence with exit code 2, and nothing is started."""
    agent: Agent = start_agent(collector="127.0.0.1:1", vantage="a", region="b", more=options)
    assert agent.wait() == 2
    assert "Traceback" not in agent.log()
