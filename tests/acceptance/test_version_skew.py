"""Collectors of versions N and N + 1 side by side, as during an upgrade of one machine after the other."""

from pathlib import Path

import psycopg
import pytest

from acceptance.test_delivery import PLAN, duplicates
from fixtures.agent import Agent, StartAgent
from fixtures.collector import Collector, StartCollector
from fixtures.simulator import Simulator
from testdata.waiting import eventually

LOG_CHARS = 4_000
REGIONS = {"us-1": "us-east-2", "sg-1": "ap-southeast-1"}


def stored(database_url: str, vantage: str) -> int:
    """Return the number of stored samples of a vantage."""
    query = "select count(*) from sample join vantage on vantage.id = vantage_id where vantage.name = %s"
    with psycopg.connect(database_url) as connection:
        row = connection.execute(query, (vantage,)).fetchone()
        return row[0] if row else 0


def more_arrive(database_url: str, *processes: Agent | Collector) -> None:
    """Wait until three more samples of both vantages are stored; a failure shows the logs of these processes."""
    goals = {vantage: stored(database_url, vantage) + 3 for vantage in REGIONS}
    try:
        eventually(
            20,
            lambda: all(stored(database_url, vantage) >= goal for vantage, goal in goals.items()),
            "three more samples of both vantages",
        )
    except AssertionError as error:
        for process in processes:
            error.add_note(f"{process.log_file}, exit code {process.process.poll()}:\n{process.log()[-LOG_CHARS:]}")
        raise


@pytest.mark.slow
def test_neighbouring_versions_lose_and_double_nothing(
    start_collector: StartCollector,
    start_agent: StartAgent,
    fault_simulator: Simulator,
    later_collector: Path,
    tmp_path: Path,
) -> None:
    """Agents deliver to a collector of version N, before and after one of version N + 1 has migrated its database, and
    to that one.
    """
    old = start_collector()
    url = old.database_url
    agents: dict[str, Agent] = {}

    def start(vantage: str, collector: str) -> None:
        agents[vantage] = start_agent(vantage=vantage, region=REGIONS[vantage], collector=collector)

    old.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    for vantage in REGIONS:
        start(vantage, old.address)
    more_arrive(url, old, *agents.values())
    new = start_collector(script=later_collector)
    more_arrive(url, old, new, *agents.values())
    agents["sg-1"].kill()
    start("sg-1", new.address)
    more_arrive(url, old, new, *agents.values())
    for vantage, agent in agents.items():
        assert agent.stop() == 0
        assert agent.recorded() == stored(url, vantage) + agent.waiting()
    assert duplicates(url) == 0
    assert "Traceback" not in old.log() + new.log()
