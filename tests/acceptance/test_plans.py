"""Plans and budgets with real processes: agents do what an operator applies, and refusals are reported."""

import os
import subprocess
from pathlib import Path

import psycopg

from fixtures.agent import StartAgent
from fixtures.collector import StartCollector
from fixtures.simulator import StartSimulator
from testdata import preforked
from testdata.waiting import eventually

PLAN = """
baseline: us-east-2
every: 500ms
targets:
  - {{provider: sim, model: fault-crlf, base_url: "{base_url}", workload: {{max_output_tokens: 10}}{more}}}
"""
BUDGET = """
budgets:
  sim: {requests_per_day: 3}
"""


def test_a_budget_outlives_the_agent_and_the_collector(
    start_collector: StartCollector, start_agent: StartAgent, simulator: StartSimulator, tmp_path: Path
) -> None:
    """After kill -9 and without a collector the day's three requests stay spent, and each later sample says so."""
    world, collector = simulator(), start_collector()
    collector.apply(PLAN.format(base_url=world.base_url, more="") + BUDGET, tmp_path)
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    eventually(20, lambda: "skipped_budget" in agent.log(), "the budget is spent")
    where = ["--collector", collector.address, "--data-dir", str(agent.spool.parent)]
    shown = run("isochrone_agent", "check", "--vantage", "us-1", "--region", "us-east-2", *where).stdout
    assert "3 of 3 requests" in shown
    assert shown.count("sim/fault-crlf") == 5
    agent.kill()
    collector.kill()
    orphan = start_agent(collector=collector.address, vantage="us-1", region="us-east-2")
    eventually(20, lambda: orphan.log().count("skipped_budget") >= 3, "three more rounds are skipped")
    assert orphan.stop() == 0
    assert '"outcome": "ok"' not in orphan.log()
    assert len(world.truth()) == 3


def test_a_plan_is_followed_refused_and_rolled_back(
    start_collector: StartCollector, start_agent: StartAgent, simulator: StartSimulator, tmp_path: Path
) -> None:
    """A version comes with a push; one that sends a key elsewhere is refused and reported; a rollback is followed."""
    world, collector = simulator(), start_collector()
    credentials, secret = tmp_path / "credentials.toml", tmp_path / "secret"
    secret.write_text("sk-something")
    secret.chmod(0o600)
    credentials.write_text(f'[sim]\nfile = "{secret}"\nhosts = ["api.example.com"]\n')
    credentials.chmod(0o600)
    collector.apply(PLAN.format(base_url=world.base_url, more=""), tmp_path)
    told = ["--credentials", str(credentials)]
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2", more=told)

    def probed() -> int:
        return agent.log().count("probe.done")

    def refusal() -> tuple[int | None, str | None]:
        with psycopg.connect(collector.database_url) as connection:
            query = "select refused_plan_version, refused_plan_reason from vantage"
            return connection.execute(query).fetchone() or (None, None)

    eventually(20, lambda: probed() >= 1, "the first plan runs")
    collector.apply(PLAN.format(base_url=world.base_url, more=", paused: true"), tmp_path)
    eventually(20, lambda: "skipped_paused" in agent.log(), "the second plan runs")
    collector.apply(PLAN.format(base_url=world.base_url, more=", credential: sim"), tmp_path)
    eventually(20, lambda: refusal()[0] == 3, "the third plan is refused")
    assert "credential 'sim'" in (refusal()[1] or "")
    before = probed()
    eventually(20, lambda: probed() >= before + 2, "the second plan runs on")
    collector.call.roll_back(1)
    eventually(20, lambda: refusal() == (None, None), "the fourth plan runs")
    collector.call.roll_back(3)
    eventually(20, lambda: refusal()[0] == 5, "the fifth plan is refused like the third")
    credentials.write_text(credentials.read_text().replace("api.example.com", "127.0.0.1"))
    eventually(20, lambda: refusal() == (None, None), "the fifth plan runs, now that the key may go there")
    assert agent.stop() == 0


def test_a_credential_that_an_agent_lacks_is_reported(
    start_collector: StartCollector, start_agent: StartAgent, simulator: StartSimulator, tmp_path: Path
) -> None:
    """The agent's log, `check` and `isochrone vantages` state the missing credential until the file defines it."""
    world, collector = simulator(), start_collector()
    collector.apply(PLAN.format(base_url=world.base_url, more=", credential: nobody"), tmp_path)
    credentials = tmp_path / "credentials.toml"
    credentials.write_text('[sim]\nenv = "PATH"\nhosts = ["127.0.0.1"]\n')
    options = ["--vantage", "us-1", "--region", "us-east-2", "--collector", collector.address]
    checked = run("isochrone_agent", "check", *options, "--data-dir", str(tmp_path / "checked"))
    assert checked.returncode == 1
    assert "needs the credential 'nobody', which this agent does not have" in checked.stdout
    assert "--credentials FILE" in checked.stdout
    more = ["--credentials", str(credentials)]
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2", more=more)
    eventually(20, lambda: "probe.done" in agent.log(), "a round is due")
    assert "keys.missing" in agent.log().partition("probe.done")[0]
    assert f"add a [nobody] table to {credentials}" in agent.log()
    shown = "skips targets without a key: sim/fault-crlf needs the credential 'nobody'"

    def regions() -> str:
        return run("isochrone_client", "vantages", "--collector", collector.http_address).stdout.replace("\n", " ")

    eventually(20, lambda: shown in regions(), "the collector knows that the agent lacks the credential")
    secret = tmp_path / "secret"
    secret.write_text("sk-something")
    credentials.write_text(f'[nobody]\nfile = "{secret}"\nhosts = ["127.0.0.1"]\n')
    eventually(20, lambda: '"outcome": "ok"' in agent.log(), "the agent has the key")
    eventually(20, lambda: shown not in regions(), "the collector knows that the agent has the key")
    assert agent.stop() == 0


def run(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return preforked.run(module, *arguments, env={**os.environ, "COLUMNS": "200"})
