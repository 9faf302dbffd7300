"""Versions N and N + 1 side by side, as during an upgrade of one machine after the other."""

from pathlib import Path

import psycopg
import pytest

from acceptance.test_delivery import PLAN, duplicates
from fixtures.agent import Agent, StartAgent
from fixtures.collector import Collector, StartCollector
from fixtures.simulator import Simulator
from testdata import previous_version
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
    empty_database_url: str,
    tmp_path: Path,
) -> None:
    """Agents of both versions deliver to a collector of version N, before and after one of version N + 1 has migrated
    its database, and to that one; then the agent of version N is upgraded on its spool.
    """
    code, url = previous_version.unpack(tmp_path / "previous"), empty_database_url
    old = start_collector(database_url=url, script=previous_version.script(code, "isochrone_collector"))
    agents: dict[str, Agent] = {}

    def start(vantage: str, collector: str, script: Path | None = None) -> None:
        agents[vantage] = start_agent(vantage=vantage, region=REGIONS[vantage], collector=collector, script=script)

    def restart(vantage: str, collector: str, script: Path | None = None) -> None:
        agents[vantage].kill()
        start(vantage, collector, script)

    old.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    previous_agent = previous_version.script(code, "isochrone_agent")
    start("us-1", old.address, previous_agent)
    start("sg-1", old.address)
    more_arrive(url, old, *agents.values())
    new = start_collector(database_url=url)
    more_arrive(url, old, new, *agents.values())
    restart("us-1", new.address, previous_agent)
    more_arrive(url, old, new, *agents.values())
    restart("us-1", old.address)
    restart("sg-1", new.address)
    more_arrive(url, old, new, *agents.values())
    for vantage, agent in agents.items():
        assert agent.stop() == 0
        assert agent.recorded() == stored(url, vantage) + agent.waiting()
    assert duplicates(url) == 0
    assert "Traceback" not in old.log() + new.log()
