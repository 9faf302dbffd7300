"""A database that was restored from a backup: agents send what it has lost, once, and run the plan that it has now."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from fixtures.agent import Agent, StartAgent
from fixtures.collector import Collector, StartCollector
from fixtures.simulator import Simulator
from isochrone_wire.insights import AlertKind
from testdata.waiting import eventually

PLAN = """
baseline: us-east-2
every: 500ms
workloads:
  short: {{prompt: "Say hello", max_output_tokens: 10}}
targets:
  - {{provider: sim, model: "{model}", base_url: "{base_url}", workload: short}}
"""


class Backup:
    """A copy of a database, taken while no collector uses it."""

    def __init__(self, server: str, url: str) -> None:
        self._server = server
        self._name = str(conninfo_to_dict(url)["dbname"])
        self._copy = f"{self._name}_backup"
        self._run("CREATE DATABASE {copy} TEMPLATE {name}")

    def restore(self) -> None:
        """Replace the database by the copy."""
        self._run("DROP DATABASE {name} WITH (FORCE)")
        self._run("CREATE DATABASE {name} TEMPLATE {copy}")

    def drop(self) -> None:
        """Delete the copy."""
        self._run("DROP DATABASE {copy}")

    def _run(self, statement: LiteralString) -> None:
        names = {"name": sql.Identifier(self._name), "copy": sql.Identifier(self._copy)}
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(**names))


@contextmanager
def backup_of(server: str, collector: Collector) -> Iterator[Backup]:
    """Stop a collector and copy its database."""
    assert collector.stop() == 0
    backup = Backup(server, collector.database_url)
    try:
        yield backup
    finally:
        backup.drop()


def stored(collector: Collector, model: str = "%") -> int:
    query = "select count(*) from sample where target_id in (select id from target where model like %s)"
    with psycopg.connect(collector.database_url) as connection:
        row = connection.execute(query, (model,)).fetchone()
        return row[0] if row else 0


def balanced(collector: Collector, agent: Agent) -> None:
    """Wait until every sample that the agent has recorded is stored, and check that none is stored twice."""
    assert agent.stop() == 0
    assert agent.recorded() == agent.waiting() + stored(collector)
    query = "select count(*) - count(distinct (target_id, round_at, vantage_id)) from sample"
    with psycopg.connect(collector.database_url) as connection:
        assert connection.execute(query).fetchone() == (0,)


@pytest.mark.parametrize("emptied", [False, True])
def test_a_restored_database_gets_what_it_has_lost(
    start_collector: StartCollector,
    start_agent: StartAgent,
    fault_simulator: Simulator,
    postgres_server: str,
    tmp_path: Path,
    *,
    emptied: bool,
) -> None:
    """Samples and a plan that were newer than the backup: the agent delivers every sample again, once, as soon as the
    plan is applied again. Meanwhile it runs the older plan, even under the same version.
    """
    first = start_collector()
    old, new = (PLAN.format(model=model, base_url=fault_simulator.base_url) for model in ("fault-crlf", "fault-500"))
    if not emptied:
        first.apply(old, tmp_path)
    url = first.database_url

    def start() -> Collector:
        return start_collector(port=first.port, database_url=url)

    with backup_of(postgres_server, first) as backup:
        second = start()
        second.apply(new, tmp_path)
        agent = start_agent(collector=first.address, vantage="us-1", region="us-east-2")
        eventually(20, lambda: stored(second) >= 4, "four samples stored")
        second.kill()
        backup.restore()
        third = start()
        # Another plan under the number that the agent knows.
        third.apply(old.replace("500ms", "400ms"), tmp_path)
        eventually(60, lambda: stored(third, "fault-crlf") >= 3, "samples of the plan in force")
        assert stored(third, "fault-500") == 0
        third.apply(new, tmp_path)
        eventually(60, lambda: stored(third, "fault-500") >= 6, "the lost samples and new ones")
        eventually(60, lambda: "database.lost_batches" in third.log(), "the lost batches noticed")
        eventually(60, lambda: agent.waiting() <= 3, "the spool nearly empty")
        balanced(third, agent)
        eventually(30, lambda: alerts(third) == [AlertKind.DATABASE_RESTORED], "one alert")


def alerts(collector: Collector) -> list[str]:
    with psycopg.connect(collector.database_url) as connection:
        kinds = connection.execute("select kind from alert where kind = 'database_restored'").fetchall()
    return [kind for (kind,) in kinds]
