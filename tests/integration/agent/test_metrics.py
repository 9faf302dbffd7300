"""The agent's Prometheus metrics count its probes and pushes, and cost nothing if they are not enabled."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg

from fixtures.agent import StartAgent
from fixtures.collector import StartCollector
from fixtures.simulator import Simulator
from testdata.waiting import eventually


def test_probes_and_pushes_are_counted(
    start_collector: StartCollector, start_agent: StartAgent, fault_simulator: Simulator
) -> None:
    """Metrics have the expected values; each stored sample and batch has one line in the logs."""
    collector = start_collector()
    collector.call.apply(
        "baseline: us-east-2\nevery: 500ms\n"
        f"targets: [{{provider: sim, model: fault-500, base_url: '{fault_simulator.base_url}'}}]\n"
    )
    more = ("--metrics-listen", "127.0.0.1:0")
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2", more=more)
    eventually(30, lambda: agent.scrape().get('isochrone_pushes_total{status="OK"}', 0) >= 2, "two pushes")
    metrics = agent.scrape()
    labels = 'provider="sim",region="us-east-2",target="sim/fault-500"'
    assert metrics[f'isochrone_probes_total{{model="fault-500",outcome="http_error",{labels}}}'] >= 1
    assert metrics["isochrone_plan_version"] == 1
    assert metrics["isochrone_spool_bytes"] > 0
    assert metrics['isochrone_build_info{region="us-east-2",vantage="us-1",version="0.1.0"}'] == 1
    assert metrics["process_resident_memory_bytes"] > 1e6
    names = {name.partition("{")[0] for name in metrics}
    assert {name for name in names if not name.startswith(("isochrone_", "process_"))} == set()
    eventually(30, lambda: agent.log().count("batch.stored") >= 2, "two batches")
    assert agent.stop() == 0
    with psycopg.connect(collector.database_url) as connection:
        samples, batches = connection.execute("select sum(samples), count(*) from ingest_batch").fetchone() or (0, 0)
    assert agent.log().count("probe.done") == samples
    assert agent.log().count("batch.stored") == batches
    ingested = [json.loads(line) for line in collector.log().splitlines() if "batch.ingested" in line]
    assert len([line for line in ingested if line["seq"]]) == batches


def test_without_metrics_the_library_is_not_imported() -> None:
    """An agent without metrics does not import prometheus_client."""
    code = "import sys, isochrone_agent.runner, isochrone_agent.cli.run; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_exposed_endpoint_is_logged(tmp_path: Path, start_agent: StartAgent) -> None:
    """An address that other machines can reach is served, with a warning."""
    agent = start_agent(
        collector="127.0.0.1:9", vantage="us-1", region="us", folder=tmp_path, more=("--metrics-listen", "0.0.0.0:0")
    )
    eventually(20, lambda: "metrics.exposed" in agent.log(), "the warning")
    assert agent.stop() == 0
